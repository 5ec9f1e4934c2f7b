"""FedSage+: gradients against autograd, what is hidden and attached, who sends what to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fglaudit.auditing import audit
from fglaudit.errors import FglauditError
from fglaudit.nn.neighbor_generator import FeatureGenerator, generated_loss, nearest
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, GeneratorInputs, MessageBatch, NeighborGenerators, RawFeatures
from fglaudit.protocols.fedsage.fedsage import FedSage, Generator
from fglaudit.protocols.fedsage.impaired_graphs import Impaired
from fglaudit.protocols.fedsage.mended_graphs import mended
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, check_protocol, example_graph, record
from fglaudit.view import Observer

SMALL = FedSage(
    rounds=2, hidden=8, embedding=8, generator_hidden=16, generator_epochs=60, generator_rounds=2, exchanged=8
)
SHAPE = FeatureGenerator(embedding=3, hidden=4, slots=2, features=5)


def messages(run: Run, payload: type) -> list[MessageBatch]:
    return list(run.view(Observer(wire=True)).messages.of(payload))


def slow_loss(vector: Tensor, inputs: Tensor, counts: Tensor, x: Tensor) -> Tensor:
    """Return the loss of one holder, row by row."""
    weights = {name: weight[0] for name, weight in unflatten(vector.unsqueeze(0), SHAPE.layout()).items()}
    parts = []
    for z, count in zip(inputs, counts.tolist(), strict=True):
        unit = torch.relu(z @ weights["hidden.weight"] + weights["hidden.bias"])
        rows = torch.tanh(unit @ weights["rows.weight"] + weights["rows.bias"]).view(2, 5)
        for row in rows[: int(count)]:
            parts.append(min(((row - other) ** 2).mean() for other in x))
    return torch.stack(parts).mean()


def test_gradients_are_those_of_the_loss_in_words() -> None:
    rng = derive(0, "generator")
    width = sum(torch.Size(shape).numel() for shape in SHAPE.layout().values())
    vectors = torch.randn(2, width, generator=rng, dtype=torch.double)
    inputs = torch.randn(2, 3, 3, generator=rng, dtype=torch.double)
    counts = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 1.0]], dtype=torch.double)
    x = torch.rand(2, 4, 5, generator=rng, dtype=torch.double).round()
    present = torch.tensor([[True, True, True, False], [True] * 4])
    found = SHAPE.gradients(vectors, inputs, counts, x, present)
    for j in range(2):
        leaf = vectors[j].clone().requires_grad_()
        (expected,) = torch.autograd.grad(slow_loss(leaf, inputs[j], counts[j], x[j][present[j]]), leaf)
        torch.testing.assert_close(found[j], expected)


def test_local_loss_takes_the_nearest_hidden_neighbour() -> None:
    made = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    targets = torch.tensor([[[[1.0, 1.0], [0.0, 1.0]]]])
    real = torch.tensor([[[True, True]]])
    assert generated_loss(made, torch.tensor([[1.0]]), targets, real).item() == pytest.approx(0.5)
    assert generated_loss(made, torch.tensor([[2.0]]), targets, real).item() == pytest.approx(0.5)
    alone = torch.tensor([[[True, False]]])
    assert generated_loss(made, torch.tensor([[2.0]]), targets, alone).item() == pytest.approx(0.75)


def test_padding_is_nobodys_nearest_row() -> None:
    rows, x = torch.zeros(1, 1, 2), torch.tensor([[[1.0, 1.0], [0.0, 0.0]]])
    assert nearest(rows, x, torch.tensor([[True, False]])).tolist() == [[[1.0, 1.0]]]


def test_hidden_neighbours_are_counted_and_found() -> None:
    graph = example_graph()
    clients = [graph.client(k) for k in range(3)]
    impaired = Impaired.of(clients, 0.5, 2, derive(0, "hide"), CPU)
    for k, client in enumerate(clients):
        left = impaired.surfaces.inputs.present[k]
        assert int(left.sum()) == len(client.nodes) - round(len(client.nodes) / 2)
        for index, node in enumerate(impaired.lacking[k][impaired.real[k]].tolist()):
            targets = impaired.targets[k, index][impaired.shown[k, index]]
            assert len(targets) == impaired.counts[k, node] > 0
            assert len(set(targets.tolist())) == len(targets) <= 2
        assert int((impaired.counts[k] > 0).sum()) == int(impaired.real[k].sum())


def test_attached_rows_hang_on_their_nodes() -> None:
    client = example_graph().client(0)
    rows = torch.full((2, 24), 0.5)
    whole = mended(client, rows, torch.tensor([3, 3, 5]), torch.tensor([0, 1, 1]))
    count = len(client.nodes)
    assert whole.edge_index.shape[1] == client.edge_index.shape[1] + 6
    attached = [count, count + 1, count + 1]
    assert whole.edge_index[:, -6:].tolist() == [[3, 3, 5, *attached], [*attached, 3, 3, 5]]
    assert not whole.train[count:].any() and not whole.test[count:].any() and bool((whole.y[count:] == -1).all())


def test_everybody_asks_everybody_else() -> None:
    run = record(SMALL, example_graph())
    pairs = [
        sorted(zip(b.senders.tolist(), b.receivers.tolist(), strict=True)) for b in messages(run, NeighborGenerators)
    ]
    assert len(pairs) == 2 * 3
    everyone = sorted((i, j) for i in range(3) for j in range(3) if i != j)
    assert sorted(pair for part in pairs[:3] for pair in part) == everyone
    assert not list(run.view(Observer(parties=(SERVER,))).messages.of(GeneratorInputs))


def test_simulated_neighbours_are_the_true_ones_with_noise() -> None:
    graph = example_graph()
    for noise in (0.0, 0.1):
        (batch,) = messages(record(replace(SMALL, generator="simulated", noise=noise), graph), RawFeatures)
        assert isinstance(batch.payload, RawFeatures)
        error = batch.payload.x - graph.x[batch.payload.nodes]
        assert float(error.std()) == pytest.approx(noise, abs=0.01)
        owner, senders = graph.owner(), batch.senders[batch.entry_messages()]
        assert torch.equal(owner[batch.payload.nodes], senders)
        wanted = sum(len(graph.client(k).remote_nodes) for k in range(3))
        assert len(senders) == wanted


@pytest.mark.parametrize("noise", [0.1, 0.0])
def test_simulated_neighbours_are_read_through_the_protocols_noise(noise: float) -> None:
    """Real-valued rows with noise were called proven, which they are not, so that the attack read broken."""
    x = torch.randn(60, 12, generator=derive(0, "rows"))
    edges = torch.randint(60, (2, 90), generator=derive(0, "edges"))
    graph = {"x": x, "y": torch.arange(60) % 3, "edge_index": torch.cat([edges, edges.flip(0)], 1)}
    protocol = replace(SMALL, generator="simulated", noise=noise)
    report = audit(graph, protocol=protocol, clients=3, observers=["client:0", "server"], attacks=["raw-features"])
    found: Any = report.findings.itertuples()
    (row,) = found
    assert row.observer == "client:0" and row.status == "ok"
    assert (row.metric, row.identifiable_rate) == (("cosine", 0.0) if noise else ("exact_rate", 1.0))
    assert row.value > 0.98


def test_rows_of_simulated_neighbours_alone_reach_a_client() -> None:
    graph, protocol = example_graph(), replace(SMALL, generator="simulated")
    remote = [graph.client(k).remote_nodes for k in range(3)]
    assert torch.equal(protocol.exposed(graph, Observer(parties=(0,))), remote[0])
    assert len(protocol.exposed(graph, Observer(parties=(SERVER,)))) == 0
    assert torch.equal(protocol.exposed(graph, Observer(wire=True)), torch.unique(torch.cat(remote)))


def test_generated_rows_change_what_is_trained() -> None:
    graph = example_graph()
    plain = record(replace(SMALL, generator="simulated", noise=0.0), graph).trained.weights
    generated = record(SMALL, graph).trained.weights
    assert not torch.equal(plain["input.weight"], generated["input.weight"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("generator", "gan"), ("hidden_share", 0.0), ("slots", 0), ("noise", -1.0), ("exchanged", 0)],
)
def test_bad_fields(field: str, value: object) -> None:
    with pytest.raises(FglauditError, match=field):
        FedSage(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("generator", ["trained", "simulated"])
def test_protocol(generator: Generator) -> None:
    check_protocol(replace(SMALL, generator=generator), example_graph())


def test_clients_without_an_edge_of_their_own_train_too() -> None:
    """Nothing can be hidden then; training ended in an error, and so did every self-test on such a graph."""
    graph = example_graph(nodes=30)
    owner = torch.zeros(30, dtype=torch.long)
    for client, nodes in enumerate(graph.clients):
        owner[nodes] = client
    row, column = graph.edge_index
    across = replace(graph, edge_index=graph.edge_index[:, owner[row] != owner[column]])
    run = record(FedSage(rounds=1, generator_rounds=2, generator_epochs=2), across)
    assert bool(torch.isfinite(run.trained.accuracy).all())
