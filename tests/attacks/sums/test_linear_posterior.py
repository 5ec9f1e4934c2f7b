"""The matrix of an observer's sums is decomposed once for all attacks that solve it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.sums.equations import linear_posterior as module
from fglaudit.attacks.sums.integer_propagation import IntegerPropagation
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View


@pytest.mark.parametrize("second", [IntegerPropagation(), MaximumAPosteriori()], ids=lambda a: a.name)
def test_attacks_share_the_decomposition_and_leave_it_as_it_is(second: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example_graph()
    if isinstance(second, MaximumAPosteriori):  # it decomposes the matrix of real-valued rows alone
        x = torch.randn(graph.x.shape, generator=derive(0, "rows"))
        graph = dataclasses.replace(graph, x=x, features=FeatureKind.REAL)
    run, calls, solve = record(FedGCN(hops=1, rounds=1), graph), list[int](), module.linear_posterior

    def counted(*args: object) -> module.LinearPosterior:
        calls.append(1)
        return solve(*args)  # type: ignore[arg-type]

    def rows(attack: Attack, view: View | None = None) -> torch.Tensor:
        found = attack.run(view or run.view(Observer(parties=(0,))), rng=derive(0, "attack"), device=CPU)
        assert isinstance(found, Reconstruction)
        return found.rows

    alone = rows(second)
    monkeypatch.setattr(module, "linear_posterior", counted)
    view = run.view(Observer(parties=(0,)))
    rows(RowSpace(), view)
    assert torch.equal(rows(second, view), alone)
    assert len(calls) == 1
