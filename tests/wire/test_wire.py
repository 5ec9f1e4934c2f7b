"""Payloads, channel, transcript and views: what was sent is what is counted, kept and seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fglaudit.errors import FglauditError
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, payload_type
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.view import Observer, PublicFacts
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.side_knowledge import draw_auxiliary, load_views, make_view, save_views
from fglaudit.wire.transcript import MOST_RANGES, Transcript, party_ranges


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
    stored = json.loads(index.read_text())
    assert stored["format"] == 1 and stored["entries"][0].pop("parties") == [[-1, 2]]
    index.write_text(json.dumps(stored))
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


def test_damaged_transcripts_name_the_file(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path)
    transcript.add(sums_up())
    transcript.save(tmp_path)
    file = tmp_path / "messages-00000.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(FglauditError, match="messages-00000"):
        Transcript.load(tmp_path).read(0)
    index = tmp_path / "transcript.json"
    index.write_text(json.dumps({"format": 99, "entries": []}))
    with pytest.raises(FglauditError, match="format 1"):
        Transcript.load(tmp_path)
    index.write_text("{")
    with pytest.raises(FglauditError, match=r"transcript\.json"):
        Transcript.load(tmp_path)


def public_facts() -> PublicFacts:
    graph = example_graph()
    return PublicFacts(
        protocol="fedgcn",
        hyperparameters={"hops": 1},
        defense="none",
        defense_parameters={},
        **graph.schema(),
    )


def test_side_knowledge_is_only_what_was_stated() -> None:
    graph, transcript = example_graph(), Transcript()
    none = draw_auxiliary(graph, 0.0, 0)
    view = make_view(Observer(parties=(1,)), graph, transcript, public_facts(), none)
    assert [c.client for c in view.own] == [1]
    assert view.topology is None and view.degrees is None and len(view.auxiliary.nodes) == 0
    assert view.own[0].remote_degrees is not None
    blind = make_view(Observer(parties=(1,), degrees=False), graph, transcript, public_facts(), none)
    assert blind.own[0].remote_degrees is None
    server = make_view(Observer(parties=(SERVER,)), graph, transcript, public_facts(), none)
    assert server.own == ()


def test_auxiliary_rows_depend_on_the_seed_alone() -> None:
    graph = example_graph()
    first, again, other = (draw_auxiliary(graph, 0.25, seed) for seed in (3, 3, 4))
    assert (
        len(first.nodes) == 15 and torch.equal(first.nodes, again.nodes) and not torch.equal(first.nodes, other.nodes)
    )
    assert torch.equal(first.x, graph.x[first.nodes])


def test_saved_views_load_in_a_fresh_process(tmp_path: Path) -> None:
    graph, transcript = example_graph(), Transcript(tmp_path)
    transcript.add(sums_up())
    transcript.save(tmp_path)
    observer = Observer(parties=(0, SERVER), topology=True, auxiliary=0.25)
    view = make_view(observer, graph, transcript, public_facts(), draw_auxiliary(graph, 0.25, 0))
    save_views([view], tmp_path)
    (loaded,) = load_views(tmp_path)
    assert loaded.observer == observer and loaded.public == view.public
    assert torch.equal(loaded.own[0].x, view.own[0].x)
    code = (
        "import sys; from pathlib import Path; from fglaudit.wire.side_knowledge import load_views;"
        "from fglaudit.payloads import NeighborSums; v, = load_views(Path(sys.argv[1]));"
        "b, = v.messages.of(NeighborSums); print(b.payload.sums.sum().item(), len(v.auxiliary.nodes))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["105.0", "15"]
