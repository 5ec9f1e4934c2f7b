"""Labels from latents and edges together: neither is worth less beside the other."""

from __future__ import annotations

import pytest
import torch
from scored_runs import inferred, truth_about
from user_graphs import user_graph

from fglaudit.attacks.latents.label_guess import label_guess
from fglaudit.attacks.latents.latent_labels import LatentLabels
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.quantities import Question
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Observer


def accuracies(run: Run, observer: Observer) -> tuple[float, float]:
    """Return the accuracy of the attack, and that of the guess."""
    view, kind = run.view(observer), inferred("labels")
    asked = kind.ask(truth_about(run, observer))
    assert isinstance(asked, Question)
    found = LatentLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    guess = kind.guess(view, asked.subjects, derive(0, "guess"))
    right = [kind.score(asked, answer, guess).values.mean().item() for answer in (found, guess)]
    return right[0], right[1]


@pytest.mark.parametrize("smoothness", [10.0, 100.0])
def test_latents_do_not_cost_a_server_what_edges_say(smoothness: float) -> None:
    """Latents that the regulariser makes alike were read at one scale: 0.66 and 0.61 beside a guess of 0.78."""
    attempts = []
    for seed in range(3):
        run = record(NFedGNN(rounds=20, smoothness=smoothness), user_graph(nodes=120), seed=seed)
        attempts.append(accuracies(run, Observer((SERVER,), topology=True, auxiliary=0.2)))
    found, guess = torch.tensor(attempts).mean(0).tolist()
    assert guess > 0.7
    assert found >= guess - 0.05


def test_vectors_that_say_nothing_leave_what_edges_say() -> None:
    run = record(NFedGNN(rounds=1), user_graph(nodes=120))
    view = run.view(Observer((SERVER,), topology=True, auxiliary=0.3))
    noise = torch.randn(120, 8, generator=derive(0, "noise"), dtype=torch.double)
    found = label_guess(view, [noise, torch.zeros_like(noise)])
    guess = inferred("labels").guess(view, found.subjects, derive(0, "guess"))
    torch.testing.assert_close(found.estimate, guess.estimate, atol=0.05, rtol=0.0)


def test_vectors_that_say_everything_overrule_edges() -> None:
    run = record(NFedGNN(rounds=1), user_graph(nodes=120))
    view = run.view(Observer((SERVER,), topology=True, auxiliary=0.3))
    telling = torch.nn.functional.one_hot(run.graph.y).double()
    found = label_guess(view, [torch.zeros_like(telling), telling])
    assert torch.equal(found.estimate.argmax(1), run.graph.y[found.subjects])


def test_two_different_labels_are_the_fewest() -> None:
    run = record(NFedGNN(rounds=1), user_graph(nodes=12))
    assert "no labels" in str(LatentLabels().unsupported(run.view(Observer(wire=True, auxiliary=0.1))))
    view = run.view(Observer(wire=True, auxiliary=0.2))
    assert LatentLabels().unsupported(view) is None
    assert len(LatentLabels().run(view, rng=derive(0, "attack"), device=CPU).subjects) > 0
