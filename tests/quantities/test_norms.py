"""Norms of rows: what a guess of them is, and near misses where messages were altered."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from recordings import recorded, seen
from scored_runs import inferred, truth_about
from torch import Tensor

from fglaudit.attacks.latents.update_norms import UpdateL1Norms
from fglaudit.facts import Additive, Field
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER
from fglaudit.quantities import Attempt
from fglaudit.quantities.base import Comparison, Question
from fglaudit.quantities.nodes.norms import of_others
from fglaudit.rng import derive
from fglaudit.view import Observer

SETUP, SERVER_ALONE, KNOWING = "nfedgnn-private", Observer(parties=(SERVER,)), Observer((SERVER,), auxiliary=0.5)


def compared(observer: Observer, answer: Tensor, truth: Tensor, noise: float = 0.0) -> Comparison:
    """Compare ``answer`` [S] with guesses of ``truth`` [S]."""
    kind, view = inferred("l1-norms"), seen(SETUP, observer)
    asked = kind.ask(truth_about(recorded(SETUP), observer))
    assert isinstance(asked, Question)
    asked = dataclasses.replace(asked, truth=truth[: len(asked.truth)])
    fact = Additive(Field("Latents", "values", "up"), "gaussian", noise)
    view = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=(fact,) if noise else ()))
    guess = kind.guess(view, asked.subjects, derive(0, "guess"))
    result = Inference("l1-norms", asked.subjects, answer[: len(asked.truth)])
    return kind.compare(UpdateL1Norms(), [Attempt(view, asked, result, guess)])


def norms(draw: int) -> Tensor:
    return torch.poisson(torch.full((24,), 4.0), generator=derive(draw, "norms")).double()


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_norms_of_other_nodes_are_no_achievement(noise: float) -> None:
    """Of a server that knows no row the guess was right of none, any answer with the right distribution of some."""
    ahead = []
    for draw in range(40):
        found = compared(SERVER_ALONE, norms(draw)[torch.randperm(24, generator=derive(draw, "dealt"))], norms(draw))
        ahead.append(float((found.values - found.controls).mean().item()))
    assert sum(ahead) / len(ahead) < 0.02, ahead


def test_what_others_have_is_told_without_the_node_itself() -> None:
    for draw in range(30):
        truth = norms(draw)[:7]
        question = Question(torch.arange(7), truth, torch.zeros(7, dtype=torch.long))
        found = of_others(question)
        for place in range(7):
            rest = torch.cat([truth[:place], truth[place + 1 :]])
            counts = {value: int((rest == value).sum()) for value in rest.tolist()}
            assert counts[float(found[place])] == max(counts.values())
        mean = of_others(dataclasses.replace(question, graded=True))
        torch.testing.assert_close(mean, torch.stack([truth[torch.arange(7) != place].mean() for place in range(7)]))
    alike = Question(torch.arange(3), torch.full((3,), 5.0), torch.zeros(3, dtype=torch.long))
    assert of_others(alike).tolist() == [5.0] * 3


@pytest.mark.parametrize("observer", [SERVER_ALONE, KNOWING])
def test_near_misses_count_where_messages_are_altered(observer: Observer) -> None:
    """Norms known to five percent: none is right within one percent, so that noise seemed to stop the attack."""
    truth = 20 + 3 * norms(0)
    plain, noisy = (compared(observer, 1.05 * truth, truth, noise) for noise in (0.0, 0.1))
    assert plain.metric == "exact_rate" and float(plain.values.sum()) == 0
    assert noisy.metric == "ratio" and noisy.columns["exact_rate"] == 0
    torch.testing.assert_close(noisy.values, torch.full_like(noisy.values, 1 / 1.05))
    assert float(noisy.controls.mean()) < 0.9
