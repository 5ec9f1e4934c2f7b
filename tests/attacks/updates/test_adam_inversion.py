"""Words of rows from steps of Adam: patterns worked by hand, the path of an idle weight, trained models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from scored_runs import finding_of

from fglaudit.adversary.uploads.adam_steps import adam_path
from fglaudit.attacks.updates.adam_inversion import AdamInversion
from fglaudit.attacks.updates.unit_patterns import words_of_rows
from fglaudit.defenses.noise.quantisation import Quantisation
from fglaudit.defenses.training.dp_fedavg import DpFedAvg
from fglaudit.errors import FglauditError
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import quantity
from fglaudit.quantities.base import Question
from fglaudit.rng import derive
from fglaudit.structure import Training
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

ADAM: dict[str, Any] = {"hops": 1, "hidden": 32, "rounds": 4, "local_steps": 1, "optimizer": "adam"}
ADAM["learning_rate"] = 0.01


def graph() -> FederatedGraph:
    """Return a graph whose clients train on few nodes, with words enough for every sum to have one of its own."""
    made = example_graph(nodes=48, features=160, clients=4)
    few = tuple(mask & (torch.arange(len(mask)) % 3 == 0) for mask in made.train)
    return replace(made, x=(torch.rand(48, 160, generator=derive(1, "rows")) < 0.06).float(), train=few)


def run(defense: Defense | None = None, **settings: Any) -> Run:
    return record(FedGCN(**{**ADAM, **settings}), graph(), defense)


def finding(recorded: Run, party: str = "server") -> Finding:
    return finding_of(recorded, AdamInversion(), ObserverSpec((party,)))


def test_rows_are_patterns_that_are_no_union_of_others() -> None:
    """Rows A, at units 0 and 1, and B, at units 1 and 2: two words of A, one of both, one of B, one of none. Row C, at
    unit 3, has no word of its own: it shares one with A, and the union is found in its place."""
    moved = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]]).bool()
    expected = torch.tensor([[1, 1, 1, 0, 0, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1]]).bool()
    found = words_of_rows(moved)
    assert torch.equal(found[0], expected[0])
    assert {tuple(row) for row in found[1:].tolist()} == {tuple(row) for row in expected[1:].tolist()}
    assert words_of_rows(torch.zeros(3, 4, dtype=torch.bool)).shape == (0, 3)


@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_the_path_of_a_weight_is_torch_s(decay: float) -> None:
    rng = derive(0, "weights")
    weight, gradient = torch.randn(50, generator=rng) * 0.1, torch.randn(50, generator=rng) * 1e-3
    gradient[:20] = 0
    held = weight.clone().requires_grad_()
    optimizer = torch.optim.Adam([held], lr=0.01, weight_decay=decay)
    for _ in range(3):
        held.grad = gradient.clone()
        optimizer.step()
    stated = Training("adam", learning_rate=0.01, weight_decay=decay, local_steps=3)
    found = adam_path(weight.double(), gradient.double(), stated)
    torch.testing.assert_close(found.float(), held.detach(), atol=3e-8, rtol=0)


@pytest.mark.parametrize(
    ("settings", "least"),
    [({}, 0.6), ({"dropout": 0.0}, 0.6), ({"local_steps": 3, "rounds": 8}, 0.4), ({"hops": 0}, 0.6)],
)
def test_words_of_rows_are_found(settings: dict[str, Any], least: float) -> None:
    found = finding(run(**settings))
    assert found.status is Status.OK, found.reason
    assert (found.value or 0) >= least and found.control == 0 and found.adapted == "yes"
    assert (found.cosine or 0) > 0.8 > 0.5 > (found.control_cosine or 0)


def test_errors_of_uploads_hide_what_moved_and_fine_levels_do_not() -> None:
    """With weight decay a gradient changes a step by less than the finest levels; without, idle weights stay."""
    fine, coarse = (Quantisation(bits=bits, on=("ModelUpdate",)) for bits in (16, 4))
    shown, hidden = (finding(run(levels, weight_decay=0.0)) for levels in (fine, coarse))
    assert (shown.exact_rate or 0) > 0.6 and hidden.exact_rate == hidden.advantage == 0
    assert shown.adapted == hidden.adapted == "yes"
    assert "uploads have errors" in finding(run(fine)).reason
    private = finding(run(DpFedAvg(epsilon=4, delta=1e-3, clip=0.5, trust="local"), weight_decay=0.0))
    assert private.exact_rate == private.advantage == 0 and "Clipped" in private.adapted


def test_a_guess_has_the_most_frequent_words() -> None:
    kind, seen = quantity("layer-words"), run(rounds=1)
    view = seen.view(Observer((SERVER,), auxiliary=0.5))
    subjects = torch.tensor([[0, 0], [1, 0]])
    guess = kind.guess(view, subjects, derive(0, "guess"))
    typical = round(float(view.auxiliary.x.sum(1).mean()))
    assert guess.estimate.shape == (2, 160) and guess.estimate.sum(1).tolist() == [typical] * 2
    question = Question(subjects, guess.estimate.float(), torch.zeros(2, dtype=torch.long))
    assert kind.score(question, guess, guess).columns["exact_rate"] == 1  # type: ignore[attr-defined]


def test_what_it_takes() -> None:
    attack, server = AdamInversion(), Observer((SERVER,))
    assert "step with sgd" in str(attack.unsupported(run(optimizer="sgd").view(server)))
    assert "only the server's averages" in str(attack.unsupported(run().view(Observer((0,)))))
    assert "single hidden unit" in str(attack.unsupported(run(hidden=1).view(server)))
    assert attack.unsupported(record(FedGAT(rounds=1), graph()).view(server)) is not None
    with pytest.raises(FglauditError, match="use 1 to 8"):
        AdamInversion(rounds=9)
