"""What becomes of one loss does not depend on the others, and each of the run's own is drawn at the stated rate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.redteam.cases import FAMILIES
from bench.redteam.local_faults import BrokenGradients
from bench.redteam.planted import FAULTS, Planted
from fglaudit.empirical.audits.own_clip import own_clip_audit
from fglaudit.empirical.audits.own_sample import own_sample_audit
from fglaudit.empirical.replays.staging import Staged, clients_of, staged
from fglaudit.guarantees import Audit, Outcome
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.counted import Counted
from fglaudit.privacy.from_facts import account
from fglaudit.testing import CPU


def prepared(family: str, fault: str | type[BrokenGradients] | None) -> Staged:
    protocol, honest = FAMILIES[family].build()
    graph = FAMILIES[family].graph()
    context = protocol.context(graph)
    session = honest.bind(context)
    accounted = account(context, session.facts(), session.guarantee(), Counted(updates=1))
    assert isinstance(accounted, Accounted)
    defense = honest if fault is None else Planted(honest, FAULTS[fault] if isinstance(fault, str) else fault)
    return staged(protocol, graph, defense, accounted, seed=0, device=CPU)


@pytest.mark.parametrize(
    ("fault", "family"),
    [
        ("ClipOfTheLongest", "gradients"),
        ("ScaledByTheMedian", "gradients"),
        ("ScaledByTheMedian", "sampled-gradients"),
        ("LongDrawnMore", "sampled-gradients"),
    ],
)
def test_a_bound_made_of_other_gradients_is_refuted(fault: str, family: str) -> None:
    audit = own_clip_audit(prepared(family, fault), seed=0)
    assert audit is not None and audit.outcome is Outcome.REFUTED
    assert "depends on the gradients of others" in audit.detail


@pytest.mark.parametrize(
    ("fault", "family"),
    [(None, "gradients"), (None, "sampled-gradients"), ("GradientByGradient", "gradients"), ("AllDrawn", "gradients")],
)
def test_a_clip_of_every_gradient_is_not(fault: str | None, family: str) -> None:
    audit = own_clip_audit(prepared(family, fault), seed=0)
    assert audit is not None and audit.outcome is Outcome.PASSED


def test_where_draws_depend_on_gradients_nothing_is_said_of_clips() -> None:
    assert own_clip_audit(prepared("gradients", "GradientsUnclipped"), seed=0) is None


class OwnLossesAlone(BrokenGradients):
    """Draws no number for what lies behind a client's own losses, where gradients are 0 in a run."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []

    def prepare(self, client: Any, rng: torch.Generator) -> Any:
        self.sizes.append(int(client.train.sum()))
        return super().prepare(client, rng)

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        places = torch.arange(len(gradients))[:, None] < torch.tensor(self.sizes or [len(gradients)])
        return super().drawn(gradients, rng) * places


def sampled(fault: str | type[BrokenGradients] | None) -> Audit | None:
    protocol, _ = FAMILIES["sampled-gradients"].build()
    clients = clients_of(protocol, FAMILIES["sampled-gradients"].graph())
    shape = max(int(client.train.sum()) for client in clients), len(clients), 9
    return own_sample_audit(prepared("sampled-gradients", fault), clients, shape, seed=0)


def test_nodes_that_are_drawn_more_often_are_refuted() -> None:
    audit = sampled("DrawnByDegree")
    assert audit is not None and audit.outcome is Outcome.REFUTED and "some more often than others" in audit.detail


@pytest.mark.parametrize("fault", [None, "GradientByGradient", OwnLossesAlone])
def test_even_draws_pass(fault: str | type[BrokenGradients] | None) -> None:
    audit = sampled(fault)
    assert audit is not None and audit.outcome is Outcome.PASSED


def test_draws_that_depend_on_gradients_are_not_counted() -> None:
    audit = sampled("GradientsUnclipped")
    assert audit is not None and audit.outcome is Outcome.UNTESTED
    assert own_sample_audit(prepared("gradients", None), (), (2, 1, 3), seed=0) is None
    assert own_sample_audit(prepared("sampled-gradients", None), (), None, seed=0) is None
