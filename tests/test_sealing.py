"""Sealed tensors, and the channel that carries them: with a scheme that hides nothing, so that every value can be
compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pretended_seals import BYTES, OpenRows, Pretend
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.payloads import SERVER, Ciphertexts, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.sealing import SealedTensor, sealed_tensor
from fglaudit.testing import record
from fglaudit.view import Observer

ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
WEIGHTS = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.5, 0.0]])
LINEAR: dict[str, Callable[[Tensor], Tensor]] = {
    "sum of two": lambda t: t + t,
    "number times": lambda t: 3 * t,
    "times number": lambda t: t * 0.5,
    "divided": lambda t: t / 4,
    "a number per row": lambda t: t * torch.tensor([[1.0], [2.0], [3.0]]),
    "weights": lambda t: WEIGHTS @ t,
    "one vector of weights": lambda t: WEIGHTS[0] @ t,
    "sum": lambda t: t.sum(0),
    "mean": lambda t: t.mean(0),
    "rows": lambda t: t[torch.tensor([2, 0, 0])],
    "mask": lambda t: t[torch.tensor([True, False, True])],
    "slice": lambda t: t[1:],
    "scatter": lambda t: torch.index_add(torch.zeros(2, 2), 0, torch.tensor([1, 1, 0]), t),
    "copies": lambda t: t.mean(0).expand(3, -1),
    "sum in place": lambda t: (t * 2).add_(t),
    "joined rows": lambda t: t[torch.tensor([0, 1, 1, 2])].view(2, 2, 2),
    "axes": lambda t: t.view(3, 2, 1).movedim(2, 1)[torch.tensor([2, 0])],
    "shape": lambda t: t.view(3, 2, 1).flatten(1).double(),
}
FORBIDDEN: dict[str, Callable[[Tensor], object]] = {
    "norm": lambda t: t.norm(),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "a product of two": lambda t: t * t,
    "relu": lambda t: t.relu(),
    "addition to a public tensor": lambda t: t + ROWS,
    "index_add_": lambda t: torch.zeros(2, 2).index_add_(0, torch.tensor([1, 1, 0]), t),
    "along another axis": lambda t: t.sum(1),
    "reshaping of its rows": lambda t: t.reshape(2, 3),
    "public weights @ sealed": lambda t: t @ torch.eye(2),
    "after movedim": lambda t: t.view(3, 2, 1).movedim(2, 1).flatten(1),
    "movedim of its rows": lambda t: t.movedim(0, 1),
    "numbers of shape": lambda t: t * torch.ones(2),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_operations_are_those_of_plain_tensors(name: str) -> None:
    plain, sealed = LINEAR[name](ROWS), LINEAR[name](sealed_tensor(OpenRows(ROWS.double())))
    assert isinstance(sealed, SealedTensor) and isinstance(sealed.sealed, OpenRows) and sealed.shape == plain.shape
    assert torch.equal(sealed.opened(sealed.sealed.x), plain.to(sealed.dtype))


@pytest.mark.parametrize("name", FORBIDDEN)
def test_anything_else_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(FglauditError, match=name):
        FORBIDDEN[name](sealed_tensor(OpenRows(ROWS.double())))


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("on", [NeighborSums, ModelUpdate])
@pytest.mark.parametrize("server_reads", [False, True])
def test_training_on_sealed_sums_equals_training_in_the_clear(hops: int, on: type[Payload], server_reads: bool) -> None:
    protocol = FedGCN(hops=hops, rounds=3)
    plain, sealed = record(protocol), record(protocol, defense=Pretend(server_reads, (on,)))
    for name, weight in plain.trained.weights.items():
        torch.testing.assert_close(sealed.trained.weights[name], weight)


def test_who_reads_what() -> None:
    """Clients share the key: the server has ciphertexts, a client its own messages, both together or a client at the
    wire all."""
    plain, sealed = record(FedGCN(hops=1, rounds=1)), record(FedGCN(hops=1, rounds=1), defense=Pretend())

    def read(run: object, observer: Observer, payload: type[Payload] = NeighborSums) -> list[MessageBatch]:
        return list(run.view(observer).messages.of(payload))  # type: ignore[attr-defined]

    for blind in (Observer(parties=(SERVER,)), Observer(wire=True)):
        assert not read(sealed, blind)
        shown = read(sealed, blind, Ciphertexts)
        originals = read(plain, blind)
        assert len(shown) == len(originals)
        for batch, original in zip(shown, originals, strict=True):
            assert isinstance(batch.payload, Ciphertexts) and isinstance(original.payload, NeighborSums)
            assert torch.equal(batch.payload.nodes, original.payload.nodes)
            assert bool((batch.payload.size == plain.graph.num_features * BYTES).all())
    for reader in (Observer(parties=(0,)), Observer(parties=(SERVER, 0)), Observer(parties=(0,), wire=True)):
        found, expected = read(sealed, reader), read(plain, reader)
        assert len(found) == len(expected) > 0
        for batch, original in zip(found, expected, strict=True):
            assert isinstance(batch.payload, NeighborSums) and isinstance(original.payload, NeighborSums)
            torch.testing.assert_close(batch.payload.sums, original.payload.sums)


def test_ciphertext_bytes_are_counted_on_the_wire() -> None:
    plain, sealed = record(FedGCN(hops=1, rounds=1)), record(FedGCN(hops=1, rounds=1), defense=Pretend())
    values = sum(
        batch.payload.sums.numel()
        for batch in plain.view(Observer(wire=True)).messages.of(NeighborSums)
        if isinstance(batch.payload, NeighborSums)
    )
    assert sealed.channel.bytes_sealed == values * BYTES
    more = sealed.channel.bytes_up.sum() + sealed.channel.bytes_down.sum()
    less = plain.channel.bytes_up.sum() + plain.channel.bytes_down.sum()
    assert more - less == values * (BYTES - 4)
