"""What an attack holds leads to nothing that its observer has not: one test per way in which it once did.

Cheating on purpose cannot be stopped in Python; these are about what lies open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.defenses.none import NoDefense
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import Kept, Recording, record_training
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.view import Observer, View
from fglaudit.wire.transcript import Transcript


def recorded(folder: Path | None = None, seed: int = 0) -> Recording:
    return record_training(example_graph(), FedGCN(hops=1, rounds=1), NoDefense(), seed=seed, keep=Kept(folder=folder))[
        0
    ]


def reachable(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield ``value`` and all that its attributes, entries and keys lead to; not what functions close over."""
    if id(value) in seen or isinstance(value, torch.Tensor | type):
        return
    seen.add(id(value))
    yield value
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        inner = list(value)
    else:
        inner = list(getattr(value, "__dict__", {}).values())
    for part in inner:
        yield from reachable(part, seen)


@pytest.mark.parametrize("observer", [Observer(parties=(0,)), Observer(wire=True)])
def test_a_view_holds_no_transcript_and_no_path(tmp_path: Path, observer: Observer) -> None:
    """A transcript has everybody's messages, its folder lies beside that of the truth."""
    recording = recorded(tmp_path / "transcripts" / "cell")
    recording.save(tmp_path / "transcripts" / "cell")
    for one in (recording, Recording.load(tmp_path / "transcripts" / "cell")):
        held = list(reachable(one.view(observer), set()))
        assert len(held) > 20
        assert not any(isinstance(part, Transcript | Path) for part in held)
        assert not any(isinstance(part, str) and str(tmp_path) in part for part in held)


def test_a_client_gets_no_row_of_messages_between_others() -> None:
    recording = recorded()
    for batch in recording.view(Observer(parties=(0,))).messages.of(NeighborSums):
        assert bool(((batch.senders == 0) | (batch.receivers == 0)).all())
    every = list(recording.view(Observer(wire=True)).messages.of(NeighborSums))
    assert any(bool(((b.senders != 0) & (b.receivers != 0)).any()) for b in every)


@dataclass(frozen=True)
class Tells(Attack):
    """Returns the seed of the generator it was given, in place of a row."""

    name: ClassVar[str] = "tells"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums, ModelUpdate)
    metric: ClassVar[str] = "exact_rate"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        number = torch.tensor([[float(rng.initial_seed())]], dtype=torch.double)
        return Reconstruction(number, torch.tensor([0]), torch.ones(1))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return Planted(view, torch.zeros(1, 1), torch.tensor([0]))


def told(recording: Recording) -> float:
    """The seed of the generator that an attack on ``recording`` gets."""
    (output,) = run_attacks(recording, [ObserverSpec(("server",))], [Tells()])
    (result,) = output.results
    assert isinstance(result, Reconstruction)
    return float(result.rows[0, 0].item())


def test_the_generator_of_an_attack_depends_on_its_messages_and_not_on_the_seed() -> None:
    """With a generator made from the cell's seed, few tries would find the seed, and with it all that was drawn."""
    recording = recorded(seed=3)
    renumbered = dataclasses.replace(recording, description={**recording.description, "seed": 4})
    assert told(recording) == told(recording) == told(renumbered)
    assert told(recording) != told(recorded(seed=4))
    drawn = [
        float(derive(seed, *path).initial_seed())
        for seed in range(50)
        for path in (("train",), ("defense",), ("partition",), ("attack", "tells", "server"))
    ]
    assert told(recording) not in drawn
