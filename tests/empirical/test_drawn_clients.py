"""An account by clients drawn at random: whose word it rests on, and how many there are to draw from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from dp_accounting import GaussianDpEvent

from fglaudit.context import Uploads
from fglaudit.empirical.audits.drawn_clients import drawn_clients_audits
from fglaudit.guarantees import Outcome
from fglaudit.interfaces import FederatedProtocol, Guarantee
from fglaudit.privacy.accounted import Accounted, Noised
from fglaudit.privacy.accounting import Relation
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph

NOISE = Noised("ModelUpdate", True, "gaussian", 1.0, 1.0, 2)
ACCOUNTED = Accounted(1.0, 1e-5, "client", Relation.REPLACE, GaussianDpEvent(1.0), (NOISE,))


@dataclass(frozen=True)
class Elsewhere(FedGCN):
    """FedGCN as somebody else's protocol."""


def outcomes(protocol: FederatedProtocol, senders: int, among: int, coalition: int | None = 1) -> list[Outcome]:
    context = replace(protocol.context(example_graph()), uploads=Uploads(senders, among, 1 / senders))
    promise = Guarantee(coalition=coalition)
    return [audit.outcome for audit in drawn_clients_audits(protocol, context, promise, ACCOUNTED)]


@pytest.mark.parametrize(
    ("among", "expected"), [(0, Outcome.UNTESTED), (1, Outcome.REFUTED)], ids=["as many as there are", "one too many"]
)
def test_a_sample_that_somebody_else_states_is_not_believed(among: int, expected: Outcome) -> None:
    there = example_graph().num_clients
    assert outcomes(Elsewhere(), there - 1, there + among) == [expected]


def test_nothing_is_asked_where_the_sample_is_no_word_of_others_or_lowers_nothing() -> None:
    there = example_graph().num_clients
    assert not outcomes(FedGCN(), there - 1, there)
    assert not outcomes(Elsewhere(), there, there)
    assert not outcomes(Elsewhere(), there - 1, there, coalition=None)
