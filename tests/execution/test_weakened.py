"""Rule 4 in a cell: an attack that gets nothing must be seen to succeed through the same defense at no strength."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fglaudit.adversary.running.attack_stream import attack_stream
from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.auditing import audit
from fglaudit.context import Context
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm import draw
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.defenses.none import NoDefense
from fglaudit.execution.run_cell import run_cell
from fglaudit.facts import Additive, Fact, Field
from fglaudit.finding import NO, RAISED, YES, Finding
from fglaudit.interfaces import Attack, Defense, DefenseSession, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MessageBatch, NeighborSums, Payload
from fglaudit.privacy.strength import check_factor
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.scoring.through_defense import works_through
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU, record
from fglaudit.tracebacks import collected
from fglaudit.view import Observer, View


@dataclass(frozen=True)
class _Noisy(DefenseSession):
    std: float

    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def facts(self) -> tuple[Fact, ...]:
        return (Additive(Field("NeighborSums", "sums"), "gaussian", self.std),)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not isinstance(batch.payload, NeighborSums):
            return batch.payload
        sums = batch.payload.sums
        return dataclasses.replace(batch.payload, sums=sums + self.std * torch.randn(sums.shape, generator=rng))


@dataclass(frozen=True)
class Loud(Defense):
    """Noise that drowns everything, stated as it is; its strength cannot be set."""

    name: ClassVar[str] = "loud"
    std: float = 300.0

    def bind(self, context: Context) -> DefenseSession:
        return _Noisy(self.std)


@dataclass(frozen=True)
class Adjustable(Loud):
    """The same with a strength."""

    name: ClassVar[str] = "adjustable"

    def weakened(self, factor: float) -> Adjustable:
        check_factor(factor)
        return Adjustable(self.std * factor**2)


@dataclass(frozen=True)
class Stubborn(Loud):
    """Has a strength of which it keeps nearly all."""

    name: ClassVar[str] = "stubborn"

    def weakened(self, factor: float) -> Stubborn:
        check_factor(factor)
        return Stubborn(self.std * (0.9 + 0.1 * factor))


@dataclass(frozen=True)
class Replaced(Loud):
    """Is weakened to no defense at all."""

    name: ClassVar[str] = "replaced"

    def weakened(self, factor: float) -> NoDefense:  # type: ignore[override]
        check_factor(factor)
        return NoDefense()


@dataclass(frozen=True)
class Dropped(Loud):
    """Does and states nothing where it is weakened."""

    name: ClassVar[str] = "dropped"

    def weakened(self, factor: float) -> Dropped:
        check_factor(factor)
        return Dropped(0.0)

    def bind(self, context: Context) -> DefenseSession:
        return super().bind(context) if self.std else DefenseSession()


@dataclass(frozen=True)
class Untrainable(Loud):
    """Has a strength at which nothing can be bound."""

    name: ClassVar[str] = "untrainable"

    def weakened(self, factor: float) -> Untrainable:
        check_factor(factor)
        return Untrainable(-1.0)

    def bind(self, context: Context) -> DefenseSession:
        if self.std < 0:
            raise ValueError("no noise is below 0")
        return super().bind(context)


@dataclass(frozen=True)
class Fragile(MaximumAPosteriori):
    """Raises where the stated noise is hardly any."""

    name: ClassVar[str] = "fragile"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        noise = [fact for fact in view.public.facts if isinstance(fact, Additive)]
        if any(fact.scale < 1 for fact in noise):
            raise ValueError("too quiet")
        return super().run(view, rng=rng, device=device)


def row(defense: Defense, attack: Attack | None = None) -> Finding:
    """Return the row of one attack by each client on a small cell."""
    options = CsbmOptions(nodes=90, edges=120, dimensions=20, classes=3, ones_per_row=5)
    cell = Cell(
        dataset=DatasetSpec("csbm", csbm=options, split="random", train=0.3, val=0.2, test=0.5),
        partition=PartitionSpec("dirichlet", 5, 10000.0),
        protocol=FedGCN(hops=1, rounds=1),
        defense=defense,
        seed=0,
        observers=(ObserverSpec(("client:each",), topology=True, auxiliary=0.2),),
        attacks=(attack or MaximumAPosteriori(),),
        empirical=False,
    )
    (found,) = run_cell(cell, suite="test", device=CPU).findings
    return found


@pytest.mark.parametrize(
    ("defense", "word"), [(Adjustable(), YES), (Stubborn(), NO), (Loud(), NO), (Replaced(), NO), (Dropped(), NO)]
)
def test_what_failed_is_asked_at_next_to_no_strength(defense: Defense, word: str) -> None:
    """Without a strength, planted rows must be found through the defense; this one drowns those too."""
    found = row(defense)
    assert found.advantage is not None and found.advantage <= 0.02 and found.adapted == "yes"
    assert found.succeeds_weakened == word
    assert found.can_reassure == (word == YES and not found.confused)


@pytest.mark.parametrize(
    ("defense", "attack", "words"),
    [
        (
            Untrainable(),
            None,
            "training at next to no strength raised ValueError: no noise is below 0 (test_weakened.py",
        ),
        (Adjustable(), Fragile(), "at next to no strength, it raised ValueError: too quiet (test_weakened.py"),
    ],
)
def test_what_raises_at_next_to_no_strength_is_told(
    monkeypatch: pytest.MonkeyPatch, defense: Defense, attack: Attack | None, words: str
) -> None:
    """A crash is no measurement: the row says so, and its traceback is kept."""
    monkeypatch.setattr("fglaudit.attacking.registry.shipped", lambda *_: True)  # others' are not asked again
    with collected() as texts:
        found = row(defense, attack)
    assert found.succeeds_weakened == NO and not found.can_reassure
    assert RAISED in found.reason and words in found.reason
    assert any("Traceback" in text and "ValueError" in text for text in texts)


def test_what_raises_on_planted_rows_is_told() -> None:
    view = record(FedGCN(hops=1, rounds=1), defense=Loud(1e-6)).view(Observer(parties=(0,), degrees=True))
    with collected() as texts:
        through = works_through(Fragile(), view, attack_stream(Fragile(), view, "test"), CPU)
    assert not through.works
    assert "fragile or the defense raised ValueError: too quiet (test_weakened.py" in through.raised
    assert len(texts) == 1 and "Traceback" in texts[0]


def test_undefended_rows_and_leaks_are_not_asked() -> None:
    assert row(NoDefense()).succeeds_weakened == ""
    leak = row(Adjustable(std=1e-4))
    assert leak.advantage is not None and leak.advantage > 0.1 and leak.succeeds_weakened == ""


def test_quiet_defenses_without_a_strength_let_planted_rows_through() -> None:
    """Noise far below what is read hides nothing that an attack plants."""
    attack = MaximumAPosteriori()
    for std, works in ((1e-6, True), (300.0, False)):
        view = record(FedGCN(hops=1, rounds=1), defense=Loud(std)).view(Observer(parties=(0,), degrees=True))
        assert works_through(attack, view, attack_stream(attack, view, "test"), CPU).works is works


def test_no_attack_is_seen_to_work_through_a_defense_that_cannot_be_applied_again() -> None:
    view = record(FedGCN(hops=1, rounds=1), defense=Loud(1e-6)).view(Observer(parties=(0,), degrees=True))
    view = dataclasses.replace(view, public=dataclasses.replace(view.public, release=None))
    attack = MaximumAPosteriori()
    assert not works_through(attack, view, attack_stream(attack, view, "test"), CPU).works


def test_a_few_clients_in_turn_without_self_tests() -> None:
    recording = record(FedGCN(hops=1, rounds=1), defense=Loud(1e-6)).recording
    spec = ObserverSpec(("client:each",))
    (all_of_them,) = run_attacks(recording, [spec], [MaximumAPosteriori()])
    (few,) = run_attacks(recording, [spec], [MaximumAPosteriori()], most_members=2, self_tests=False)
    assert len(all_of_them.views) > len(few.views) == len(few.results) == 2 and few.pooled
    assert few.on_noise is None and few.flaw is None and all_of_them.on_noise is not None


@pytest.mark.parametrize(("defense", "word"), [(Adjustable(), YES), (Loud(), NO)])
def test_a_graph_in_memory_is_asked_as_well(defense: Defense, word: str) -> None:
    graph = draw(CsbmOptions(nodes=90, edges=120, dimensions=20, classes=3, ones_per_row=5), "in memory")
    report = audit(
        graph,
        protocol=FedGCN(hops=1, rounds=1),
        defense=defense,
        observers=[ObserverSpec(("client:each",), topology=True, auxiliary=0.2)],
        attacks=[MaximumAPosteriori()],
        clients=5,
        split="random",
        device="cpu",
        empirical=False,
    )
    (found,) = (row for record in report.records for row in record.findings)
    assert found.succeeds_weakened == word
