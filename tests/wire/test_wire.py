"""Payloads, channel, transcript and views: what was sent is what is counted, kept and seen."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.files.own import stamped, unstamped
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, is_repeated, payload_type
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import Kept, Recording, record_training
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.view import Observer, View
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.side_knowledge import draw_auxiliary
from fglaudit.wire.transcript import MAPPED_FROM, MOST_RANGES, Transcript, party_ranges


def sums_up(features: int = 5) -> MessageBatch:
    """Client 0 sends two rows, client 1 none, client 2 one."""
    payload = NeighborSums(torch.tensor([4, 7, 1]), torch.arange(3.0 * features).view(3, features))
    return MessageBatch(0, torch.tensor([0, 1, 2]), torch.full((3,), SERVER), payload, torch.tensor([0, 2, 2, 3]))


def models_down() -> MessageBatch:
    return MessageBatch(1, torch.full((3,), SERVER), torch.arange(3), ModelUpdate(torch.arange(12.0).view(3, 4)))


def test_bytes_are_those_of_the_tensors() -> None:
    channel = RecordingChannel(DefenseSession(), 3, derive(0))
    channel.send(sums_up())
    channel.send(models_down())
    # A row is a 64-bit node id and five 32-bit floats; a model is four 32-bit floats.
    assert channel.bytes_up.tolist() == [2 * 28, 0, 28]
    assert channel.bytes_down.tolist() == [16, 16, 16]


def test_batches_that_do_not_fit_are_refused() -> None:
    payload = NeighborSums(torch.tensor([4]), torch.zeros(1, 2))
    with pytest.raises(FglauditError, match="ragged payload needs splits"):
        MessageBatch(0, torch.tensor([0]), torch.tensor([SERVER]), payload)
    with pytest.raises(FglauditError, match="share their leading axis"):
        MessageBatch(0, torch.tensor([0]), torch.tensor([SERVER]), payload, torch.tensor([0, 2]))
    with pytest.raises(FglauditError, match="did you mean 'NeighborSums'"):
        payload_type("NeighbourSums")


@pytest.mark.parametrize("in_folder", [False, True])
def test_transcript_round_trip(tmp_path: Path, in_folder: bool) -> None:
    transcript = Transcript(tmp_path / "t" if in_folder else None)
    channel = RecordingChannel(DefenseSession(), 3, derive(0), transcript)
    channel.send(sums_up())
    channel.send(models_down())
    transcript.save(tmp_path / "t")
    loaded = Transcript.load(tmp_path / "t")
    (batch,) = loaded.seen_by(Observer(wire=True)).of(NeighborSums)
    assert isinstance(batch.payload, NeighborSums)
    assert torch.equal(batch.payload.sums, torch.arange(15.0).view(3, 5))
    assert batch.splits is not None and batch.splits.tolist() == [0, 2, 2, 3]
    assert [entry.round for entry in loaded.entries] == [0, 1]


def test_an_observer_sees_its_own_messages_only() -> None:
    transcript = Transcript()
    channel = RecordingChannel(DefenseSession(), 3, derive(0), transcript)
    channel.send(sums_up())
    channel.send(models_down())
    (batch,) = transcript.seen_by(Observer(parties=(2,))).of(NeighborSums)
    assert isinstance(batch.payload, NeighborSums)
    assert batch.senders.tolist() == [2] and batch.payload.nodes.tolist() == [1]
    (down,) = transcript.seen_by(Observer(parties=(0, 2))).of(ModelUpdate)
    assert down.receivers.tolist() == [0, 2]
    (everything,) = transcript.seen_by(Observer(parties=(SERVER,))).of(NeighborSums)
    assert len(everything.senders) == 3


def test_batches_that_do_not_concern_an_observer_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript(tmp_path)
    for client in (0, 3):
        payload = ModelUpdate(torch.full((1, 2), float(client)))
        transcript.add(MessageBatch(1, torch.tensor([SERVER]), torch.tensor([client]), payload))
    transcript.save(tmp_path)
    read: list[int] = []
    original = Transcript.read

    def count(self: Transcript, index: int) -> MessageBatch:
        read.append(index)
        return original(self, index)

    monkeypatch.setattr(Transcript, "read", count)
    loaded = Transcript.load(tmp_path)
    (batch,) = loaded.seen_by(Observer(parties=(2, 3))).of(ModelUpdate)
    assert isinstance(batch.payload, ModelUpdate) and batch.payload.vector[0, 0] == 3 and read == [1]
    assert list(loaded.seen_by(Observer(parties=(1,))).of(ModelUpdate)) == [] and read == [1]
    assert len(list(loaded.seen_by(Observer(parties=(SERVER,))).of(ModelUpdate))) == 2
    assert len(list(loaded.seen_by(Observer(wire=True)).of(ModelUpdate))) == 2


def test_transcripts_without_parties_are_read_in_full(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path)
    transcript.add(sums_up())
    transcript.save(tmp_path)
    index = tmp_path / "transcript.json"
    stored = unstamped(index.read_bytes(), index.name)
    assert stored["format"] == 2 and stored["entries"][0].pop("parties") == [[-1, 2]]
    index.write_text(stamped(stored, index.name))
    loaded = Transcript.load(tmp_path)
    assert loaded.entries[0].parties is None
    (batch,) = loaded.seen_by(Observer(parties=(2,))).of(NeighborSums)
    assert batch.senders.tolist() == [2]
    assert list(loaded.seen_by(Observer(parties=(7,))).of(NeighborSums)) == []


def test_ranges_cover_all_parties_and_stay_few() -> None:
    def ranges(parties: list[int]) -> tuple[tuple[int, int], ...]:
        payload = ModelUpdate(torch.zeros(len(parties), 1))
        return party_ranges(MessageBatch(1, torch.full((len(parties),), SERVER), torch.tensor(parties), payload))

    assert ranges([0, 1, 2, 7, 5, 6]) == ((-1, 2), (5, 7))
    assert ranges([4, 4]) == ((-1, -1), (4, 4))
    many = ranges(list(range(0, 3000, 3)))
    assert len(many) == MOST_RANGES
    assert all(any(low <= k <= high for low, high in many) for k in [-1, *range(0, 3000, 3)])


def test_recorder_keeps_what_is_needed() -> None:
    transcript = Transcript()
    keep = Keep({ModelUpdate: None}, frozenset({1}))
    channel = RecordingChannel(DefenseSession(), 3, derive(0), transcript, keep)
    channel.send(sums_up())
    channel.send(models_down())
    assert [entry.payload for entry in transcript.entries] == ["ModelUpdate"]
    assert transcript.read(0).receivers.tolist() == [1]
    assert channel.wants(ModelUpdate) and not channel.wants(NeighborSums)


def test_large_messages_are_mapped_and_each_reader_has_its_own(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path)
    values = torch.arange(float(2**19)).view(2, -1)
    batch = MessageBatch(1, torch.tensor([0, 1]), torch.full((2,), SERVER), ModelUpdate(values))
    transcript.add(batch)
    assert transcript.entries[0].path(tmp_path).stat().st_size > MAPPED_FROM
    first, second = (transcript.read(0).payload for _ in range(2))
    assert isinstance(first, ModelUpdate) and isinstance(second, ModelUpdate)
    first.vector.zero_()  # an attack that breaks the rules harms nobody but itself
    assert torch.equal(second.vector, values)
    again = Transcript(tmp_path)
    again.entries = transcript.entries
    for _ in range(2):  # read and compared with its digest, then mapped
        payload = again.read(0).payload
        assert isinstance(payload, ModelUpdate) and torch.equal(payload.vector, values)
    held = again.read(0).payload
    file = transcript.entries[0].path(tmp_path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.unlink()
    file.write_bytes(data)
    assert isinstance(held, ModelUpdate) and torch.equal(held.vector, values)
    with pytest.raises(FglauditError, match="its digest is that of another content"):
        again.read(0)


def test_damaged_transcripts_name_the_file(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path)
    transcript.add(sums_up())
    transcript.save(tmp_path)
    file = tmp_path / "messages-00000.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(FglauditError, match="messages-00000"):
        Transcript.load(tmp_path).read(0)
    index = tmp_path / "transcript.json"
    index.write_text(stamped({"format": 99, "entries": []}, index.name))
    with pytest.raises(FglauditError, match="format 2"):
        Transcript.load(tmp_path)
    index.write_text("{")
    with pytest.raises(FglauditError, match=r"transcript\.json"):
        Transcript.load(tmp_path)


def recorded(keep: Kept | None = None) -> Recording:
    return record_training(example_graph(), FedGCN(hops=1, rounds=1), NoDefense(), keep=keep)[0]


def test_side_knowledge_is_only_what_was_stated() -> None:
    recording = recorded()
    view = recording.view(Observer(parties=(1,)))
    assert [c.client for c in view.own] == [1]
    assert view.topology is None and view.degrees is None and len(view.auxiliary.nodes) == 0
    assert view.own[0].remote_degrees is not None
    blind = recording.view(Observer(parties=(1,), degrees=False))
    assert blind.own[0].remote_degrees is None
    server = recording.view(Observer(parties=(SERVER,)))
    assert server.own == ()


def test_auxiliary_rows_depend_on_the_seed_alone() -> None:
    graph = example_graph()
    first, again, other = (draw_auxiliary(graph, 0.25, seed) for seed in (3, 3, 4))
    assert (
        len(first.nodes) == 15 and torch.equal(first.nodes, again.nodes) and not torch.equal(first.nodes, other.nodes)
    )
    assert torch.equal(first.x, graph.x[first.nodes])


def test_what_was_not_kept_is_named_with_the_fix() -> None:
    recording = recorded(Kept(clients=(0,), fractions=(0.25,)))
    assert len(recording.view(Observer(parties=(0,), auxiliary=0.25)).auxiliary.nodes) == 15
    with pytest.raises(FglauditError, match=r"client:2 is not.*record: all"):
        recording.view(Observer(parties=(0, 2)))
    with pytest.raises(FglauditError, match=r"shares 0, 0\.25, not 0\.5"):
        recording.view(Observer(parties=(0,), auxiliary=0.5))


def tensors(value: Any) -> list[Tensor]:
    """Every tensor that ``value`` holds, messages included."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for held in value.values() for tensor in tensors(held)]
    if isinstance(value, tuple | list):
        return [tensor for held in value for tensor in tensors(held)]
    if isinstance(value, View):
        sent = [list(value.messages.of(payload)) for payload in (NeighborSums, ModelUpdate)]
        return tensors([sent, *(getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "messages")])
    if dataclasses.is_dataclass(value):
        return tensors([getattr(value, f.name) for f in dataclasses.fields(value)])
    return []


@pytest.mark.parametrize("saved", [False, True])
def test_a_write_through_a_view_changes_nothing(tmp_path: Path, saved: bool) -> None:
    """Neither the graph, nor the truth, nor what the next observer sees."""
    graph = example_graph()
    recording, truth = record_training(graph, FedGCN(hops=1, rounds=1), NoDefense(), keep=Kept(fractions=(0.25,)))
    if saved:
        recording.save(tmp_path)
        recording = Recording.load(tmp_path)
    observer = Observer(parties=(SERVER, 0, 2), topology=True, degrees=True, auxiliary=0.25)
    before = [tensor.clone() for tensor in tensors([recording.view(observer), graph, truth.graph, truth.trained])]
    written = tensors(recording.view(observer))
    assert len(written) > 30
    for tensor in (t[:1] if is_repeated(t) else t for t in written):
        tensor.copy_(torch.ones_like(tensor) if tensor.dtype == torch.bool else tensor + 1)
    after = tensors([recording.view(observer), graph, truth.graph, truth.trained])
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_saved_recording_loads_in_a_fresh_process(tmp_path: Path) -> None:
    graph, observer = example_graph(), Observer(parties=(0, SERVER), topology=True, auxiliary=0.25)
    recording, _ = record_training(
        graph, FedGCN(hops=1, rounds=1), NoDefense(), keep=Kept(fractions=(0.25,), folder=tmp_path)
    )
    recording.save(tmp_path)
    view, loaded = recording.view(observer), Recording.load(tmp_path).view(observer)
    assert loaded.observer == observer
    stored = (
        dataclasses.replace(public, fit=None, rehearse=None, release=None) for public in (view.public, loaded.public)
    )
    assert next(stored) == next(stored)
    assert loaded.public.fit is not None and loaded.public.rehearse is not None and loaded.public.release is not None
    assert all(torch.equal(a, b) for a, b in zip(tensors(view), tensors(loaded), strict=True))
    code = (
        "import sys; from pathlib import Path; from fglaudit.recording import Recording;"
        "from fglaudit.payloads import SERVER, NeighborSums; from fglaudit.view import Observer;"
        "v = Recording.load(Path(sys.argv[1])).view(Observer((0, SERVER), topology=True, auxiliary=0.25));"
        "print(sum(b.payload.sums.sum().item() for b in v.messages.of(NeighborSums)), len(v.auxiliary.nodes))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    sums = sum(batch.payload.tensors()["sums"].sum().item() for batch in view.messages.of(NeighborSums))
    assert out.stdout.split() == [str(sums), "15"] and sums > 0


@pytest.mark.parametrize("file", ["recording.json", "side.json", "side.safetensors"])
def test_damaged_recordings_say_what_to_do(tmp_path: Path, file: str) -> None:
    recorded().save(tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(FglauditError, match=f"{path.stem}.*record the run again"):
        Recording.load(tmp_path)
