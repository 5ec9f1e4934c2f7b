"""Structure only against a plain dense formulation, and what may not be in its messages."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.home_head import HomeHead, unit_rows
from fglaudit.graph import FederatedGraph
from fglaudit.nn.codes import public_codes
from fglaudit.payloads import SERVER, HopSums, ModelUpdate
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer


def adjacency(graph: FederatedGraph, *, within: bool = False) -> Tensor:
    """Return the normalised adjacency with self-loops [N, N], of the whole graph or ``within`` clients."""
    row, column = graph.edge_index
    owner = graph.owner()
    keep = owner[row] == owner[column] if within else torch.ones_like(row, dtype=torch.bool)
    matrix = torch.eye(graph.num_nodes, dtype=torch.float64)
    matrix[row[keep], column[keep]] = 1
    scale = matrix.sum(1).rsqrt()
    return scale.unsqueeze(1) * matrix * scale


def test_pseudo_labels_go_on_with_validation_rows_and_without_their_labels() -> None:
    """Rounds before are those of training without; later ones move with a validation node's row, never with its
    label."""
    graph, protocol = example_graph(), StructureOnly(hops=(2,), width=8, rounds=2, pseudo_labels=True)
    validating = int(graph.clients[0][graph.val[0]][0].item())
    x, y = graph.x.clone(), graph.y.clone()
    x[validating], y[validating] = 1 - x[validating], (y[validating] + 1) % graph.num_classes

    def models(of: StructureOnly, world: FederatedGraph) -> list[Tensor]:
        batches = record(of, world).transcript.seen_by(Observer(parties=(SERVER,))).of(ModelUpdate)
        sent = [batch.payload for batch in batches if bool((batch.senders != SERVER).all())]
        return [payload.vector for payload in sent if isinstance(payload, ModelUpdate)]

    plain = models(protocol, graph)
    alone = models(dataclasses.replace(protocol, pseudo_labels=False), graph)
    labelled, moved = (models(protocol, dataclasses.replace(graph, x=a, y=b)) for a, b in ((graph.x, y), (x, graph.y)))
    assert len(plain) == protocol.num_rounds == 4
    assert all(torch.equal(a, b) for a, b in zip(plain[:2], alone, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(plain, labelled, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(plain[:2], moved[:2], strict=True))
    assert not torch.equal(plain[2], moved[2])


def test_every_hop_is_a_power_of_the_adjacency() -> None:
    graph, protocol = example_graph(), StructureOnly(hops=(2, 4), width=8, rounds=1)
    step, codes = adjacency(graph), public_codes(graph.num_nodes, 8, 0).double()
    batches = list(record(protocol, graph).transcript.seen_by(Observer(wire=True)).of(HopSums))
    up = [batch for batch in batches if bool((batch.senders != SERVER).all())]
    assert len(up) == 3  # the first step needs no message, the last one is kept at home
    rows = codes
    for batch in up:
        rows = step @ rows
        assert isinstance(batch.payload, HopSums)
        assert torch.allclose(batch.payload.sums.double(), rows[batch.payload.nodes], atol=1e-6)


def test_rows_go_to_neighbours_at_other_clients_alone() -> None:
    graph = example_graph()
    owner = graph.owner()
    row, column = graph.edge_index
    cross = owner[row] != owner[column]
    wanted = set(zip(owner[row[cross]].tolist(), column[cross].tolist(), strict=True))
    for batch in (
        record(StructureOnly(hops=(3,), width=4, rounds=1), graph).transcript.seen_by(Observer(wire=True)).of(HopSums)
    ):
        assert isinstance(batch.payload, HopSums)
        parties = (batch.senders, batch.receivers)[int(bool((batch.senders == SERVER).all()))][batch.entry_messages()]
        pairs = set(zip(parties.tolist(), batch.payload.nodes.tolist(), strict=True))
        expected = {(int(owner[node]), node) for _, node in wanted}
        assert pairs == (wanted if bool((batch.senders == SERVER).all()) else expected)


def test_no_feature_and_no_label_is_in_what_is_propagated() -> None:
    graph, protocol = example_graph(), StructureOnly(hops=(2,), width=4, rounds=1)
    other = dataclasses.replace(graph, x=1 - graph.x, y=graph.y.flip(0))
    for one, two in zip(
        *(record(protocol, g).transcript.seen_by(Observer(wire=True)).of(HopSums) for g in (graph, other)), strict=True
    ):
        assert isinstance(one.payload, HopSums) and isinstance(two.payload, HopSums)
        assert torch.equal(one.payload.sums, two.payload.sums)


@pytest.mark.parametrize(("kind", "hops"), [("own-row", 0), ("own-subgraph", 2)])
def test_features_at_home_reach_no_further_than_the_client(kind: str, hops: int) -> None:
    graph, head = example_graph(), HomeHead(kind, 2.0, 1, 1, 1.0, 0.0)
    clients = [graph.client(k) for k in range(graph.num_clients)]
    rows = graph.x.double()
    for _ in range(hops):
        rows = adjacency(graph, within=True) @ rows
    found = head.home(clients, graph.num_nodes, torch.device("cpu"))
    assert torch.allclose(found.double(), 2 * unit_rows(rows), atol=1e-6)


def test_without_features_the_head_is_narrower() -> None:
    graph = example_graph()
    trained = record(StructureOnly(hops=(2,), width=4, rounds=1, features_at_home="none"), graph).trained
    assert trained.layout["layers.0.weight"] == (4, graph.num_classes)


def test_codes_show_where_a_node_lies() -> None:
    """Two far apart communities whose features say nothing are told apart by codes alone."""
    graph = example_graph(nodes=60, classes=2, clients=3)
    first = torch.arange(60) % 2
    row, column = graph.edge_index
    inside = first[row] == first[column]
    graph = dataclasses.replace(graph, x=torch.ones_like(graph.x), edge_index=graph.edge_index[:, inside])
    accuracy = record(StructureOnly(hops=(4, 8), width=64), graph).trained.whole_test_set
    assert accuracy >= 0.9


@pytest.mark.parametrize(
    "fields",
    [{"hops": ()}, {"hops": (0,)}, {"hops": (4, 2)}, {"width": 0}, {"features_at_home": "rows"}, {"home_weight": 0.0}],
)
def test_bad_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(FglauditError):
        StructureOnly(**fields)  # type: ignore[arg-type]
