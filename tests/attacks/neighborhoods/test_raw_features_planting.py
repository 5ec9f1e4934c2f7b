"""The self-test of ``raw-features`` on protocols that send rows to neighbours, in any round."""

from __future__ import annotations

import pytest

from fglaudit.attacks.neighborhoods.raw_features import PlainFeatures
from fglaudit.interfaces import FederatedProtocol
from fglaudit.protocols.distributed_gcn.bds_gcn import BDSGCN
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, record
from fglaudit.view import Observer


@pytest.mark.parametrize("protocol", [DistributedGCN(rounds=2), BDSGCN(rounds=2)], ids=lambda one: one.name)
@pytest.mark.parametrize("observer", [Observer((0,)), Observer((), wire=True)], ids=["client", "wire"])
def test_rows_that_neighbours_are_sent_pass(protocol: FederatedProtocol, observer: Observer) -> None:
    """Rows without a neighbour were planted, which these protocols send to nobody: every run began with an alarm."""
    view = record(protocol).view(observer)
    assert planted_flaw(PlainFeatures(), view, derive(0, "self-test"), CPU) is None
