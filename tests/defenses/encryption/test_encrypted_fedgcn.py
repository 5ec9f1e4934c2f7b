"""FedGCN trained on sums that are homomorphically encrypted: bounds, unchanged training, padding, refusals."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.errors import FglauditError
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.he.keys import seal
from fglaudit.payloads import MessageBatch, NeighborSums, payload_type
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.testing import check_defense, example_graph, record
from fglaudit.view import Observer

pytest.importorskip("tenseal")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _real_graph() -> FederatedGraph:
    graph = example_graph()
    return dataclasses.replace(graph, x=torch.randn(graph.x.shape, generator=generator(6)), features=FeatureKind.REAL)


@pytest.mark.parametrize("graph", [example_graph(), _real_graph()], ids=["binary", "real"])
@pytest.mark.parametrize("aggregate", ["counts", "normalised"])
@pytest.mark.parametrize("hops", [1, 2])
def test_stated_bounds_hold(graph: FederatedGraph, aggregate: Weights, hops: int) -> None:
    """Every message and every sum of messages stays within what fields are made for; receivers get the rows they are
    named for."""
    protocol = FedGCN(hops=hops, rounds=1, aggregate=aggregate)
    stated = protocol.aggregates(graph)[NeighborSums]
    run = record(protocol, graph)
    total, terms = torch.zeros(graph.num_nodes, graph.num_features), torch.zeros(graph.num_nodes, dtype=torch.long)
    received = set()
    for batch in run.transcript.seen_by(Observer(wire=True)).of(NeighborSums):
        assert isinstance(batch.payload, NeighborSums)
        if int(batch.senders[0]) >= 0:
            total.index_add_(0, batch.payload.nodes, batch.payload.sums.abs())
            terms += torch.bincount(batch.payload.nodes, minlength=graph.num_nodes)
        else:
            owner = batch.receivers[batch.entry_messages()]
            received |= set(zip(batch.payload.nodes.tolist(), owner.tolist(), strict=True))
    assert stated.largest is not None
    assert bool((total.amax(1) <= stated.largest * (1 + 1e-6)).all()) and torch.equal(terms, stated.summands)
    assert received == set(zip(stated.rows.tolist(), stated.receivers.tolist(), strict=True))
    assert stated.signed == bool((graph.x < 0).any())
    if aggregate == "counts" and not stated.signed:
        assert stated.integers and torch.equal(stated.largest, graph.degrees().double() + 1)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_training_on_counts_is_unchanged(hops: int, padded: bool) -> None:
    protocol, defense = FedGCN(hops=hops, rounds=2, aggregate="counts"), HomomorphicEncryption(padded=padded)
    if padded and hops > 1:
        assert "several receivers" in (defense.unsupported(protocol.context(example_graph())) or "")
        return
    plain, sealed = record(protocol), record(protocol, defense=defense)
    for name, weight in plain.trained.weights.items():
        assert torch.equal(sealed.trained.weights[name], weight)


@pytest.mark.parametrize(
    "defense", [HomomorphicEncryption(bits=28), HomomorphicEncryption(scheme="ckks")], ids=["bfv", "ckks"]
)
@pytest.mark.parametrize("graph", [example_graph(), _real_graph()], ids=["binary", "real"])
def test_training_on_normalised_sums_is_nearly_unchanged(defense: HomomorphicEncryption, graph: FederatedGraph) -> None:
    protocol = FedGCN(hops=2, rounds=2)
    plain, sealed = record(protocol, graph), record(protocol, graph, defense)
    for name, weight in plain.trained.weights.items():
        torch.testing.assert_close(sealed.trained.weights[name], weight, atol=1e-5, rtol=1e-4)


def test_padding_hides_presence_from_the_server_and_key_holders_read_past_it() -> None:
    protocol = FedGCN(hops=1, rounds=1)
    plain, padded = record(protocol), record(protocol, defense=HomomorphicEncryption(padded=True))
    shown = _uploads(padded.transcript.seen_by(Observer(parties=(-1,))), "Ciphertexts")
    for batch in shown:
        assert batch.splits is not None and bool((batch.splits.diff() == 60).all())
        assert len(torch.unique(batch.payload.size)) == 1  # type: ignore[attr-defined]
    reader = Observer(parties=(-1, 0))
    for batch, original in zip(
        _uploads(padded.transcript.seen_by(reader), "NeighborSums"),
        _uploads(plain.transcript.seen_by(reader), "NeighborSums"),
        strict=True,
    ):
        filled = original.payload.sums.any(1)  # type: ignore[attr-defined]
        assert torch.equal(batch.payload.nodes, original.payload.nodes[filled])  # type: ignore[attr-defined]


def _uploads(messages: object, payload: str) -> list[MessageBatch]:
    return [b for b in messages.of(payload_type(payload)) if int(b.senders[0]) >= 0]  # type: ignore[attr-defined]


def test_conformance_and_refusals() -> None:
    check_defense(HomomorphicEncryption(), FedGCN(hops=1, rounds=1), quick=True)
    graph = example_graph()
    assert "Hungarian" in (HomomorphicEncryption().unsupported(FedGT(rounds=1).context(graph)) or "")
    assert "ModelUpdate" in (
        HomomorphicEncryption(on=("ModelUpdate",)).unsupported(FedGCN(rounds=1).context(graph)) or ""
    )
    assert HomomorphicEncryption().unsupported(FedGCN(hops=0, rounds=1).context(graph)) is not None
    for wrong, words in (
        ({"degree": 2048}, "at least 4096"),
        ({"degree": 1000}, "1000"),
        ({"scheme": "bvf"}, "did you mean 'bfv'"),
        ({"bits": 13}, "14"),
        ({"scheme": "ckks", "degree": 4096}, "8192"),
        ({"on": ("NeighbourSums",)}, "NeighborSums"),
    ):
        with pytest.raises(FglauditError, match=words):
            HomomorphicEncryption(**wrong)
    with pytest.raises(FglauditError, match="cannot serve"):
        HomomorphicEncryption().bind(FedGT(rounds=1).context(graph))


def test_without_tenseal_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seal.cache_clear()
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    with pytest.raises(FglauditError, match=r"fglaudit\[he\]"):
        HomomorphicEncryption().bind(FedGCN(hops=1).context(example_graph()))
    seal.cache_clear()
