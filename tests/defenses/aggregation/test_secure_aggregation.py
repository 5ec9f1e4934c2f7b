"""The defense secure-aggregation in FedGCN and averaging: equal results, who reads what, bytes, settings."""

from __future__ import annotations

import builtins
import dataclasses
from typing import Any

import pytest
import torch
from fedgcn_runs import adjacency
from secret_sums import SERVER_ALONE, averaging, read, send_down, send_up
from stated_facts import stated
from torch import Tensor

from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.errors import FglauditError
from fglaudit.facts import Sealed
from fglaudit.graph import FederatedGraph
from fglaudit.payloads import SERVER, Ciphertexts, MessageBatch, ModelUpdate, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.sealing import SealedTensor
from fglaudit.secagg.rows import MaskedRows
from fglaudit.testing import check_defense, example_graph, record
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel


def rows_of(batch: MessageBatch) -> dict[tuple[int, int, int], Tensor]:
    assert isinstance(batch.payload, NeighborSums)
    message = batch.entry_messages()
    keys = zip(
        batch.senders[message].tolist(), batch.receivers[message].tolist(), batch.payload.nodes.tolist(), strict=True
    )
    return dict(zip(keys, batch.payload.sums, strict=True))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
def test_training_equals_training_in_the_clear(hops: int, aggregate: Weights, bits: int) -> None:
    protocol = FedGCN(hops=hops, aggregate=aggregate, layers=max(2, hops), rounds=3)
    plain, masked = record(protocol), record(protocol, defense=SecureAggregation(bits=bits))
    for name, weight in plain.trained.weights.items():
        torch.testing.assert_close(masked.trained.weights[name], weight, rtol=1e-4, atol=1e-6)
    assert torch.equal(plain.trained.accuracy_global, masked.trained.accuracy_global)


def test_real_valued_features_use_the_given_range() -> None:
    graph = example_graph()
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(graph.x.shape, generator=rng)
    graph = dataclasses.replace(graph, x=x, features=type(graph.features).of(x))
    plain, masked = (record(FedGCN(hops=1, rounds=2), graph, d) for d in (None, SecureAggregation()))
    for name, weight in plain.trained.weights.items():
        torch.testing.assert_close(masked.trained.weights[name], weight, rtol=1e-4, atol=1e-6)
    with pytest.raises(FglauditError, match="range"):
        record(FedGCN(hops=1, rounds=2), graph, SecureAggregation(range=0.5))


def test_count_sums_equal_the_integer_reference() -> None:
    graph = example_graph()
    run = record(FedGCN(hops=1, aggregate="counts", rounds=1), graph, SecureAggregation())
    expected = (adjacency(graph, counts=True) @ graph.x.double()).float()
    (batch,) = read(run, SERVER_ALONE, NeighborSums)
    assert isinstance(batch.payload, NeighborSums) and bool((batch.senders == SERVER).all())
    assert torch.equal(batch.payload.sums, expected[batch.payload.nodes])


def test_the_same_seed_gives_the_same_record_and_the_order_of_clients_does_not_matter() -> None:
    models = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    results = []
    for order in (torch.arange(6), torch.arange(6), torch.tensor([3, 1, 5, 0, 2, 4])):
        channel = averaging(6, SecureAggregation())
        results.append(send_down(channel, send_up(channel, models[order]).mean(0), 6))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    torch.testing.assert_close(results[0][0], models.mean(0), atol=2e-7, rtol=0)


def test_single_messages_are_random_words_and_say_nothing_about_rows() -> None:
    """Each of two opposite inputs gives words that pass the same test of uniformity, and every client sends every
    row."""
    graph = example_graph()
    session = SecureAggregation().bind(FedGCN(hops=1).context(graph))
    channel = RecordingChannel(session, 3, derive(0, "defense"))
    nodes = torch.tensor([5, 9, 9])
    sums = torch.stack([torch.zeros(24), torch.ones(24) * 0.5, torch.zeros(24)])
    up = MessageBatch(
        0, torch.arange(3), torch.full((3,), SERVER), NeighborSums(nodes, sums), torch.tensor([0, 1, 2, 3])
    )
    arrived = channel.send(up)
    assert isinstance(arrived, NeighborSums) and isinstance(arrived.sums, SealedTensor)
    masked = arrived.sums.sealed
    assert isinstance(masked, MaskedRows) and masked.shape == (3 * 60, 24)
    assert torch.equal(arrived.nodes, torch.arange(60).repeat(3))
    for words in masked.words.view(3, -1):
        counts = torch.bincount(words.view(torch.uint8).int(), minlength=256).double()
        assert float(((counts - counts.mean()) ** 2 / counts.mean()).sum()) < 255 + 6.5 * (2 * 255) ** 0.5
        assert len(torch.unique(words)) > len(words) - 3
    with pytest.raises(FglauditError, match="lacks some"):
        channel.send(MessageBatch(0, torch.tensor([SERVER]), torch.tensor([1]), arrived, torch.tensor([0, 180])))


def test_who_reads_what() -> None:
    graph = example_graph(clients=4)
    protocol = FedGCN(hops=1, rounds=2)
    plain, masked = record(protocol, graph), record(protocol, graph, SecureAggregation())
    assert stated(masked.session, Sealed).readers == 3
    for observer in (SERVER_ALONE, Observer(wire=True)):
        for payload in (NeighborSums, ModelUpdate):
            assert all(bool((b.senders == SERVER).all()) for b in read(masked, observer, payload))
        shown = read(masked, observer, Ciphertexts)
        assert all(b.payload.size.unique().numel() == 1 for b in shown if isinstance(b.payload, Ciphertexts))  # type: ignore[no-untyped-call]
        (first,) = [b for b in shown if b.round == 0]
        assert isinstance(first.payload, Ciphertexts)
        assert torch.equal(first.payload.nodes, torch.arange(graph.num_nodes).repeat(4))
    own = Observer(parties=(SERVER, 0))
    uploads = [b for b in read(masked, own, NeighborSums) if bool((b.senders != SERVER).any())]
    assert [b.senders.tolist() for b in uploads] == [[0]]
    everyone = Observer(parties=(SERVER, 0, 1, 2))
    opened = {k: v for b in read(masked, everyone, NeighborSums) for k, v in rows_of(b).items()}
    for key, row in ((k, v) for b in read(plain, everyone, NeighborSums) for k, v in rows_of(b).items()):
        torch.testing.assert_close(opened[key], row, atol=1e-6, rtol=0)
    assert {k[0] for k in opened} == {SERVER, 0, 1, 2, 3}


def test_a_single_other_client_is_exposed_by_the_total() -> None:
    graph = example_graph(clients=2)
    run = record(FedGCN(hops=1, aggregate="counts", rounds=1), graph, SecureAggregation())
    batches = read(run, Observer(parties=(SERVER, 0)), NeighborSums)
    total, own, other = torch.zeros(3, graph.num_nodes, graph.num_features)
    for batch in batches:
        assert isinstance(batch.payload, NeighborSums)
        (total if bool((batch.senders == SERVER).all()) else own)[batch.payload.nodes] = batch.payload.sums
    plain = record(FedGCN(hops=1, aggregate="counts", rounds=1), graph)
    (upload,) = [b for b in read(plain, SERVER_ALONE, NeighborSums) if bool((b.receivers == SERVER).all())]
    assert isinstance(upload.payload, NeighborSums)
    other[upload.payload.nodes[upload.splits[1] :]] = upload.payload.sums[upload.splits[1] :]  # type: ignore[index]
    assert torch.equal(total - own, other)


def test_keys_shares_and_masked_rows_are_counted() -> None:
    models = torch.zeros(10, 100)
    channel = averaging(10, SecureAggregation())
    send_down(channel, send_up(channel, models).mean(0), 10)
    keys, share, masked = 64, 82, 400  # two keys; two 33-byte shares and a tag; 4-byte words
    assert channel.bytes_up.tolist() == [keys + 9 * share + masked + 10 * 33] * 10
    assert channel.bytes_down.tolist() == [9 * (keys + share) + 10 * 8 + 400] * 10
    assert channel.bytes_sealed == 10 * masked


def test_models_may_come_in_several_batches_and_never_twice() -> None:
    models = torch.randn(5, 30, generator=torch.Generator().manual_seed(4))
    channel, total = averaging(5, SecureAggregation()), None
    for part in (torch.tensor([0, 3]), torch.tensor([1, 2, 4])):
        payload = channel.send(MessageBatch(1, part, torch.full_like(part, SERVER), ModelUpdate(models[part])))
        assert isinstance(payload, ModelUpdate)
        total = payload.vector.sum(0) if total is None else total + payload.vector.sum(0)
    assert total is not None
    torch.testing.assert_close(send_down(channel, total / 5, 5)[0], models.mean(0), atol=3e-7, rtol=0)
    with pytest.raises(FglauditError, match="comes twice"):
        send_up(channel, models)


def test_sums_with_unequal_weights_are_refused() -> None:
    weighted = FedGCN(hops=0, weighting="train-nodes")
    reason = SecureAggregation().unsupported(weighted.context(example_graph()))
    assert reason is not None and "weights ModelUpdate" in reason
    with pytest.raises(FglauditError, match="masks cancel only in plain sums"):
        SecureAggregation().bind(weighted.context(example_graph()))
    channel = averaging(3, SecureAggregation())
    arrived = send_up(channel, torch.ones(3, 5))
    with pytest.raises(FglauditError, match="different weights"):
        torch.tensor([0.2, 0.3, 0.5]) @ arrived
    with pytest.raises(FglauditError, match="lacks some"):
        send_down(channel, arrived[:2].mean(0), 3)


def test_what_it_cannot_serve_is_refused_with_the_reason() -> None:
    assert "one client" in str(SecureAggregation().unsupported(FedGCN(hops=0).context(example_graph(clients=1))))
    many = example_graph(nodes=600, clients=300)
    assert "up to 256 clients" in str(SecureAggregation().unsupported(FedGCN(hops=0).context(many)))
    only_sums = SecureAggregation(on=("NeighborSums",))
    assert "gets none of NeighborSums" in str(only_sums.unsupported(FedGCN(hops=0).context(example_graph())))
    clear = only_sums.bind(FedGCN(hops=1).context(example_graph())).guarantee()
    assert "NeighborSums" in clear.mechanism and clear.epsilon_accounted is None and "3" in clear.key_custody
    models = SecureAggregation(on=("ModelUpdate",)).bind(FedGCN(hops=1).context(example_graph())).guarantee()
    assert "in the clear: NeighborSums" in models.mechanism


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"range": 0.0}, "range must be positive"),
        ({"threshold": 0.5}, "threshold is a share"),
        ({"threshold": 1.01}, "threshold is a share"),
        ({"dropouts": 1.0}, "dropouts is a share"),
        ({"dropouts": -0.1}, "dropouts is a share"),
        ({"bits": 16}, "bits must be one of"),
        ({"on": ()}, "on names payloads"),
        ({"on": ("Neighborsums",)}, "unknown payload"),
    ],
)
def test_bad_settings_are_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        SecureAggregation(**fields)


def test_a_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cryptography":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FglauditError, match=r"fglaudit\[secagg\]"):
        SecureAggregation().bind(FedGCN(hops=1).context(example_graph()))


@pytest.mark.parametrize("hops", [0, 1, 2])
@pytest.mark.parametrize("dropouts", [0.0, 0.2])
def test_conformance(hops: int, dropouts: float) -> None:
    check_defense(
        SecureAggregation(dropouts=dropouts), FedGCN(hops=hops, rounds=2), example_graph(clients=5), quick=True
    )


def test_aggregates_bound_what_is_sent() -> None:
    """Against brute force on the dense weights: rows, receivers, largest entries, numbers of messages."""
    graph: FederatedGraph = example_graph()
    owner = graph.owner()
    for hops, counts in ((1, True), (1, False), (2, False)):
        protocol = FedGCN(hops=hops, aggregate="counts" if counts else "normalised")
        sums = protocol.aggregates(graph)[NeighborSums]
        weights = adjacency(graph, counts=counts)
        assert sums.largest is not None and sums.integers is counts and not sums.weighted
        torch.testing.assert_close(sums.largest.double(), weights.sum(1))
        holders = torch.stack([(weights[:, owner == k] > 0).any(1) for k in range(3)]).sum(0)
        assert bool((sums.summands >= holders).all())
        received = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
        received[sums.receivers, sums.rows] = True
        for k in range(3):
            own = owner == k
            expected = own if hops == 1 else (weights[:, own] > 0).any(1)
            assert torch.equal(received[k], expected)


def test_the_session_keeps_nothing_that_a_server_must_not_have_in_what_it_sends() -> None:
    channel = averaging(3, SecureAggregation())
    arrived = send_up(channel, torch.ones(3, 5))
    assert isinstance(arrived, SealedTensor) and isinstance(arrived.sealed, MaskedRows)
    held = {f.name: getattr(arrived.sealed, f.name) for f in dataclasses.fields(arrived.sealed)}
    assert all(isinstance(value, (Tensor, int)) for value in held.values())
