"""Which fields of messages an attack read: noted once each, without a change of type or value."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import MessageBatch, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record

SUMS = NeighborSums(torch.arange(4), torch.arange(8.0).reshape(4, 2))


def closed() -> tuple[NeighborSums, set[tuple[str, str]]]:
    log: set[tuple[str, str]] = set()
    return SUMS.noted(log), log


def test_a_field_is_noted_when_it_is_read_and_not_before() -> None:
    payload, log = closed()
    assert type(payload) is NeighborSums and isinstance(payload, NeighborSums) and payload.ragged and not log
    assert payload.shapes() == {"nodes": (4,), "sums": (4, 2)} and payload.numbers() == 12
    assert payload.real_fields() == ("sums",) and payload.bytes_per_entry() == SUMS.bytes_per_entry() and not log
    value = payload.sums
    assert log == {("NeighborSums", "sums")}
    assert value is SUMS.sums
    assert payload.nodes is SUMS.nodes and len(log) == 2
    with pytest.raises(AttributeError, match="has no attribute 'sum'"):
        _ = payload.sum  # type: ignore[attr-defined]


def test_messages_that_are_picked_out_are_noted_too() -> None:
    payload, log = closed()
    batch = MessageBatch(1, torch.tensor([0, 1]), torch.tensor([-1, -1]), payload, torch.tensor([0, 3, 4]))
    chosen = batch.select(torch.tensor([False, True]))
    assert not log
    assert isinstance(chosen.payload, NeighborSums)
    value = chosen.payload.sums
    assert log == {("NeighborSums", "sums")}
    assert torch.equal(value, SUMS.sums[3:])


@pytest.mark.parametrize("everything", [dict, lambda t: list(t.items()), lambda t: list(t.values()), lambda t: {**t}])
def test_looking_a_field_up_notes_it_and_going_through_all_notes_all(everything: object) -> None:
    payload, log = closed()
    value = payload.tensors()["sums"]
    assert log == {("NeighborSums", "sums")}  # by itself: a failing assertion prints, and so reads, all fields
    assert value is SUMS.sums
    log.clear()
    assert len(everything(payload.tensors())) == 2  # type: ignore[operator]
    assert len(log) == 2


def test_copies_have_the_values() -> None:
    for make in (copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p)), dataclasses.replace):
        payload, _ = closed()
        made = make(payload)
        assert type(made) is NeighborSums and torch.equal(made.sums, SUMS.sums) and torch.equal(made.nodes, SUMS.nodes)


def test_an_attack_is_said_to_have_read_what_it_read() -> None:
    run = record(FedGCN(hops=1, rounds=1), example_graph())
    (output,) = run_attacks(run.recording, (ObserverSpec(("client:0",)),), (RowSpace(),))
    assert output.read == {("NeighborSums", "nodes"), ("NeighborSums", "sums")}  # and no ModelUpdate, which it sees
