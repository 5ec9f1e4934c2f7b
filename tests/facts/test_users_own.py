"""Defenses of a user's own, as a newcomer writes them: one that does nothing, and two that keep quiet about what they
do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from report_runs import store

from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.context import Context
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.defenses.none import NoDefense
from fglaudit.execution.run_cell import run_cell
from fglaudit.facts import Additive, Fact, Field
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.interfaces import Attack, Defense, DefenseSession, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.reports.answers import AnswerWord
from fglaudit.reports.labels import Labels
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import make_verdict
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU, check_defense, example_graph


@dataclass(frozen=True)
class MyNone(Defense):
    """Does nothing at all."""

    name: ClassVar[str] = "my-none"

    def bind(self, context: Context) -> DefenseSession:
        return DefenseSession()


@dataclass(frozen=True)
class _Noisy(DefenseSession):
    std: float
    says_so: bool

    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def facts(self) -> tuple[Fact, ...]:
        return (Additive(Field("NeighborSums", "sums"), "gaussian", self.std),) if self.says_so else ()

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not isinstance(batch.payload, NeighborSums):
            return batch.payload
        sums = batch.payload.sums
        return dataclasses.replace(batch.payload, sums=sums + self.std * torch.randn(sums.shape, generator=rng))


@dataclass(frozen=True)
class MyNoise(Defense):
    """Adds Gaussian noise to sums, and states it or not."""

    name: ClassVar[str] = "my-noise"
    std: float = 0.05
    says_so: bool = False

    def bind(self, context: Context) -> DefenseSession:
        return _Noisy(self.std, self.says_so)


@dataclass(frozen=True)
class _Grid(DefenseSession):
    step: float

    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not isinstance(batch.payload, NeighborSums):
            return batch.payload
        return dataclasses.replace(batch.payload, sums=(batch.payload.sums / self.step).round() * self.step)


@dataclass(frozen=True)
class MyGrid(Defense):
    """Rounds sums to a grid and keeps quiet about it."""

    name: ClassVar[str] = "my-grid"
    step: float = 0.2

    def bind(self, context: Context) -> DefenseSession:
        return _Grid(self.step)


class _Helpers(DefenseSession):
    """Its own methods may have any name."""

    def noise(self) -> float:
        return 0.05


@dataclass(frozen=True)
class Helping(Defense):
    name: ClassVar[str] = "helping"

    def bind(self, context: Context) -> DefenseSession:
        return _Helpers()


def test_a_session_may_have_methods_of_its_own() -> None:
    recording, _ = record_training(example_graph(), FedGCN(rounds=1), Helping())
    assert recording.public.facts == ()


def cell(protocol: FederatedProtocol, defense: Defense, attack: Attack, observer: ObserverSpec) -> Cell:
    return Cell(
        dataset=DatasetSpec(
            "csbm", split="random", csbm=CsbmOptions(nodes=120, edges=260, dimensions=40, ones_per_row=5)
        ),
        partition=PartitionSpec("dirichlet", 6, 10000.0),
        protocol=protocol,
        defense=defense,
        seed=0,
        observers=(observer,),
        attacks=(attack,),
    )


@cache
def record(protocol: FederatedProtocol, defense: Defense, attack: Attack, observer: ObserverSpec) -> CellRecord:
    return run_cell(cell(protocol, defense, attack, observer), suite="test", device=CPU)


def finding(protocol: FederatedProtocol, defense: Defense, attack: Attack, observer: ObserverSpec) -> Finding:
    (row,) = record(protocol, defense, attack, observer).findings
    return row


GAT = FedGAT(rounds=3, heads=2, hidden=4)
GCN = FedGCN(hops=1, rounds=2)
CLIENT, SERVER = ObserverSpec(("client:0",)), ObserverSpec(("server",), topology=True)


@pytest.mark.parametrize(
    ("protocol", "attack", "observer"),
    [(GAT, JointDiagonalisation(), CLIENT), (FedGCN(hops=2, rounds=2), ServerPartialSums(), SERVER)],
)
def test_a_defense_that_does_nothing_changes_nothing(
    protocol: FederatedProtocol, attack: Attack, observer: ObserverSpec
) -> None:
    mine, none = (finding(protocol, defense, attack, observer) for defense in (MyNone(), NoDefense()))
    apart = {"cell": "", "defense": "", "seconds_train": None, "seconds_attack": None}
    assert dataclasses.replace(mine, **apart) == dataclasses.replace(none, **apart)  # type: ignore[arg-type]
    assert mine.status is Status.OK and mine.adapted == "yes"
    assert mine.exact_rate is not None and mine.exact_rate > 0.5


@pytest.mark.parametrize("defense", [MyNoise(), MyGrid()], ids=lambda d: d.name)
def test_a_silent_change_is_unstated_and_held_by_nobody(defense: Defense, tmp_path: Path) -> None:
    protocol = FedGCN(hops=2, rounds=2)
    row = finding(protocol, defense, ServerPartialSums(), SERVER)
    assert row.adapted == "no: Unstated" and not row.can_reassure
    run = load_run(store(tmp_path / "run", [record(protocol, defense, ServerPartialSums(), SERVER)]))
    settings = summarize(run)
    (observer,) = make_verdict(run, settings, Labels.of(settings)).observers
    assert observer.word is not AnswerWord.HELD and observer.lowest == ""
    with pytest.raises(AssertionError, match="states no fact"):
        check_defense(defense, protocol, quick=True)


def test_noise_that_is_stated_is_reckoned_with() -> None:
    protocol = FedGCN(hops=2, rounds=2)
    silent = finding(protocol, MyNoise(), ServerPartialSums(), SERVER)
    stated = finding(protocol, MyNoise(says_so=True), ServerPartialSums(), SERVER)
    assert stated.adapted == "yes" and stated.advantage is not None and silent.advantage is not None
    assert stated.advantage > max(0.05, silent.advantage)
    check_defense(MyNoise(says_so=True), protocol, quick=True)
