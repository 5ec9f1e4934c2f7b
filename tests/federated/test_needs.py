"""What cannot be trained here is refused before it begins, with what it would need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fedgat_runs import SMALL, mixed_graph, quiet, recording, train
from user_graphs import user_graph

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.execution.message_budget import LargeMessages
from fglaudit.execution.preflight import check_data
from fglaudit.federated import needs
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MaskedMatrices, MaskedVectors
from fglaudit.protocols.fedgat import message_bytes
from fglaudit.protocols.fedgat.fedgat import FedGAT, Remote, Variant
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.recording import record
from fglaudit.reproduce.run import reproduce
from fglaudit.rng import derive
from fglaudit.suite.overrides import load_suite


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
def test_masked_messages_are_refused_by_the_bytes_that_would_be_sent(
    monkeypatch: pytest.MonkeyPatch, variant: Variant, remote: Remote
) -> None:
    graph = mixed_graph(torch.float32)
    protocol = FedGAT(variant=variant, remote=remote, **SMALL | {"rounds": 1})
    heard = recording(graph)
    train(protocol, graph, heard)
    transcript = heard.transcript
    assert transcript is not None
    kinds = {kind.__name__ for kind in (MaskedMatrices, MaskedVectors)}
    batches = [transcript.read(i) for i, entry in enumerate(transcript.entries) if entry.payload in kinds]
    sent = sum(int(batch.bytes_per_message().sum().item()) for batch in batches)
    monkeypatch.setattr(needs, "MOST_MADE", sent)
    protocol.refuse_messages(graph, recording(graph))
    monkeypatch.setattr(needs, "MOST_MADE", sent - 1)
    with pytest.raises(FglauditError, match=f"needs .* of {protocol.masked.__name__}; use variant: vector"):
        protocol.refuse_messages(graph, recording(graph))
    train(protocol, graph, quiet(graph))  # nobody keeps or changes them: they are only counted
    monkeypatch.setattr(needs, "MOST_SENT", sent)
    assert protocol.large_messages(graph) == ""
    monkeypatch.setattr(needs, "MOST_SENT", sent - 1)
    told = protocol.large_messages(graph)
    assert protocol.masked.__name__ in told and ("remote: embeddings" in told) == (remote == "matrices")
    assert ("variant: vector" in told) == (variant == "matrix")


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_recorded_messages_are_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch, variant: Variant
) -> None:
    protocol = FedGAT(variant=variant)
    cell = replace(load_suite("fedgat").cells()[0], protocol=protocol)
    graph = cell.partition.apply(cell.dataset.load(), cell.dataset, derive(cell.seed, "partition"))
    made: list[int] = []
    monkeypatch.setattr(message_bytes, "refuse_made", lambda protocol, name, number, what, fix: made.append(number))
    protocol.refuse_messages(graph, recording(graph))
    protocol.check_messages(graph, lambda payload: payload is protocol.masked)
    assert made[0] == made[1] > 0  # every message goes to its owner alone
    protocol.check_messages(graph, lambda payload: False)
    assert len(made) == 2
    monkeypatch.undo()
    monkeypatch.setattr(needs, "MOST_MADE", made[0] - 1)
    monkeypatch.setattr(FedGAT, "context", lambda self, graph: pytest.fail("its context was asked for"))
    with pytest.raises(FglauditError, match=f"needs .* of {protocol.masked.__name__}; use variant: vector"):
        record(cell)


def test_that_much_will_be_sent_is_told_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By a run, by a reproduced row, and afterwards in the record; nobody keeps the messages."""
    monkeypatch.setattr(needs, "MOST_SENT", 1000)
    suite = load_suite("fedgat")
    cell = replace(suite.cells()[0], attacks=(), empirical=False, protocol=FedGAT(**SMALL | {"rounds": 1}))
    both = replace(suite, protocols=(cell.protocol, FedGCN()))
    (answer,) = check_data(both, LargeMessages.of(both)).answers
    assert "MaskedMatrices before its first round" in answer
    assert LargeMessages.of(replace(suite, protocols=(FedGCN(),))) is None
    recording, _ = record(cell)
    assert any("MaskedMatrices before its first round" in note for note in recording.notes)

    heard: list[str] = []
    monkeypatch.setattr(FedGAT, "train", lambda *_, **__: pytest.fail(f"trained after {heard}"))
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: mixed_graph(torch.float32))
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match=r"trained after.*warning: fedgat .* sends"):
        reproduce("fedgat-table1", tmp_path, only="FedGAT, cora, iid", announce=heard.append)


def test_attention_beyond_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mixed_graph()
    needed = 2 * 4 * (graph.edge_index.shape[1] + graph.num_nodes) * 8 * 8
    monkeypatch.setattr(needs, "machine_memory", lambda: needed)
    FedGAT().check(graph)
    monkeypatch.setattr(needs, "machine_memory", lambda: needed - 1)
    with pytest.raises(FglauditError, match=r"fedgat on .* needs about .* for attention over its edges"):
        FedGAT().check(graph)


def test_users_weights_beyond_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = user_graph()
    protocol = NFedGNN(hidden=2)
    needed = 3 * 4 * 2 * int((graph.x != 0).sum().item())
    monkeypatch.setattr(needs, "machine_memory", lambda: needed)
    protocol.check(graph)
    monkeypatch.setattr(needs, "machine_memory", lambda: needed - 1)
    with pytest.raises(FglauditError, match=r"nfedgnn on .* needs about .* for the weights of users' own features"):
        protocol.check(graph)
