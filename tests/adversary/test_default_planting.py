"""The self-test of an attack that brings none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import pytest
import torch

from fglaudit.adversary.default_planting import planted_for
from fglaudit.attacks.neighborhoods.raw_features import PlainFeatures
from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, HiddenStates, Payload
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, record
from fglaudit.view import Observer, View

CLIENT, SERVER_KNOWING = Observer((0,), topology=True), Observer((SERVER,), topology=True)


@cache
def seen_by(observer: Observer) -> View:
    return record(FedGCN(hops=1, rounds=1)).view(observer)


def none(self: Attack, view: View, *, rng: torch.Generator) -> Planted | None:
    return Attack.plant(self, view, rng=rng)


@dataclass(frozen=True)
class BareSums(SubsetSum):
    plant = none  # type: ignore[assignment]


@dataclass(frozen=True)
class BareRows(PlainFeatures):
    plant = none  # type: ignore[assignment]


@dataclass(frozen=True)
class Lazy(BareSums):
    """Rebuilds nothing."""

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        empty = torch.empty(0)
        return Reconstruction(torch.empty(0, view.public.num_features), empty.long(), empty)


@dataclass(frozen=True)
class BareInference(RowPresence):
    plant = none  # type: ignore[assignment]


@pytest.mark.parametrize("observer", [CLIENT, SERVER_KNOWING], ids=["client", "server"])
def test_an_attack_that_works_passes_and_one_that_does_not_is_found_out(observer: Observer) -> None:
    view = seen_by(observer)
    assert planted_flaw(BareSums(), view, derive(0), CPU) is None
    assert planted_flaw(Lazy(), view, derive(0), CPU) is not None


def test_rows_that_are_sent_as_they_are() -> None:
    view = record(FedGAT(rounds=1, heads=2, hidden=4, degree=4)).view(SERVER_KNOWING)
    assert planted_flaw(BareRows(), view, derive(0), CPU) is None


def test_a_target_has_one_neighbor_or_none() -> None:
    for observer, neighbors in ((CLIENT, 1), (SERVER_KNOWING, 0)):
        view = seen_by(observer)
        planted = planted_for(BareSums(), view, derive(1))
        assert len(planted.rows) == len(torch.unique(planted.nodes)) > 10
        assert planted.view.topology is not None
        degrees = torch.bincount(planted.view.topology[0], minlength=view.public.num_nodes)
        assert (degrees[planted.nodes] == neighbors).all()


@dataclass(frozen=True)
class BareStates(BareSums):
    consumes: ClassVar[tuple[type[Payload], ...]] = (HiddenStates,)


def test_where_nothing_is_sent_of_nodes_alone_they_have_an_empty_neighbor_at_another_client() -> None:
    view = record(DistributedGCN(rounds=1)).view(Observer(wire=True, topology=True))
    planted = planted_for(BareStates(), view, derive(1))
    assert planted.view.topology is not None
    degrees = torch.bincount(planted.view.topology[0], minlength=view.public.num_nodes)
    assert len(planted.nodes) == view.public.num_nodes // 2 and (degrees == 1).all()
    sent = torch.cat([states.nodes for _, states in planted.view.sent(HiddenStates)])
    assert torch.isin(planted.nodes, sent).all()


def test_an_inference_must_plant_its_own() -> None:
    with pytest.raises(FglauditError, match=r"define plant\(view"):
        planted_for(BareInference(), seen_by(SERVER_KNOWING), derive(0))
