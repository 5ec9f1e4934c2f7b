"""GAP and ProGAP: what is summed, how far a record moves it, what else it enters, and what is promised to whom."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import dp_accounting
import pytest
import torch
from torch import Tensor

from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.errors import FglauditError
from fglaudit.federated.embedding_sums import EmbeddingExchange
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import FederatedGraph, canonical_edges
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import SERVER, EmbeddingSums, HopSums, MessageBatch, ModelUpdate
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.counted import Counted, Sent
from fglaudit.privacy.from_facts import account
from fglaudit.protocols.private.gap import EDGE, GAP, NODE, REPORTING, NoiseAt
from fglaudit.protocols.private.progap import ProGAP
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

FEW: dict[str, Any] = {"encoder_rounds": 2, "rounds": 2, "dimension": 4}
EVERYBODY = Observer(wire=True)


class Quiet:
    """A channel that delivers what is sent and remembers it."""

    def __init__(self) -> None:
        self.sent: list[MessageBatch] = []

    def send(self, batch: MessageBatch) -> object:
        self.sent.append(batch)
        return batch.payload


def exchange(graph: FederatedGraph, most_uses: int = 0, padded: bool = False) -> EmbeddingExchange:
    edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
    return EmbeddingExchange.of(edges, graph.num_clients, most_uses, padded=padded)


def totals(graph: FederatedGraph, rows: Tensor, most_uses: int = 0, padded: bool = False) -> tuple[Tensor, Quiet]:
    channel = Quiet()
    return exchange(graph, most_uses, padded).total(rows, channel, 1), channel  # type: ignore[arg-type]


def without_an_edge(graph: FederatedGraph) -> FederatedGraph:
    """Return ``graph`` without the first edge between two clients."""
    owner = graph.owner()
    row, column = graph.edge_index
    at = int((owner[row] != owner[column]).nonzero()[0])
    gone = {(int(row[at]), int(column[at])), (int(column[at]), int(row[at]))}
    keep = torch.tensor([(int(a), int(b)) not in gone for a, b in graph.edge_index.T])
    return dataclasses.replace(graph, edge_index=graph.edge_index[:, keep])


def sums_of(run: Run, up: bool) -> list[EmbeddingSums]:
    batches = run.transcript.seen_by(EVERYBODY).of(EmbeddingSums)
    return [b.payload for b in batches if bool((b.receivers == SERVER).all()) is up]  # type: ignore[misc]


@pytest.mark.parametrize("padded", [False, True])
def test_totals_are_sums_over_open_neighbourhoods(padded: bool) -> None:
    """By hand on a path 0 - 1 - 2 - 3: node 1 gets the rows of 0 and 2."""
    graph = example_graph()
    dense = torch.zeros(graph.num_nodes, graph.num_nodes)
    dense[graph.edge_index[0], graph.edge_index[1]] = 1
    rows = torch.randn(graph.num_nodes, 4, generator=derive(0, "rows"))
    assert torch.allclose(totals(graph, rows, padded=padded)[0], dense @ rows, atol=1e-5)
    path = canonical_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), graph.num_nodes)
    found, _ = totals(dataclasses.replace(graph, edge_index=path), rows, padded=padded)
    assert torch.allclose(found[1], rows[0] + rows[2], atol=1e-6) and not bool(found[5].any())


def test_padded_rows_do_not_tell_edges_by_being_there() -> None:
    graph = example_graph()
    rows = torch.ones(graph.num_nodes, 2)
    (_, one), (_, other) = totals(graph, rows, padded=True), totals(without_an_edge(graph), rows, padded=True)
    for a, b in zip(one.sent, other.sent, strict=True):
        assert isinstance(a.payload, EmbeddingSums) and isinstance(b.payload, EmbeddingSums)
        assert torch.equal(a.payload.nodes, b.payload.nodes) and a.splits is not None and b.splits is not None
        assert torch.equal(a.splits, b.splits)
    assert len(one.sent[0].payload.nodes) == graph.num_nodes * graph.num_clients  # type: ignore[attr-defined]


def test_an_edge_moves_all_sums_by_the_root_of_two() -> None:
    graph = example_graph()
    rows = torch.nn.functional.normalize(torch.randn(graph.num_nodes, 4, generator=derive(0, "rows")))
    one, other = (totals(g, rows, padded=True)[1].sent[0].payload for g in (graph, without_an_edge(graph)))
    assert isinstance(one, EmbeddingSums) and isinstance(other, EmbeddingSums)
    assert float((one.sums - other.sums).norm()) == pytest.approx(math.sqrt(2), rel=1e-4)
    (release,) = GAP(unit=EDGE).releases(graph)
    assert release.gain == pytest.approx(math.sqrt(2)) and release.times == 2


@pytest.mark.parametrize("most_uses", [1, 3])
def test_a_row_is_used_by_as_many_neighbours_as_stated(most_uses: int) -> None:
    graph = example_graph()
    plan = exchange(graph, most_uses)
    used = torch.bincount(plan.source, minlength=graph.num_nodes)
    assert torch.equal(used, graph.degrees().clamp(max=most_uses))
    assert plan.gain() == pytest.approx(math.sqrt(most_uses))
    node = int(graph.degrees().argmax())
    rows = torch.zeros(graph.num_nodes, 2)
    rows[node, 0] = 1.0
    assert float(totals(graph, rows, most_uses)[0].norm()) == pytest.approx(math.sqrt(most_uses))


def test_a_reporting_nodes_row_enters_sums_alone() -> None:
    """With equal sums every other message is equal, whatever its row is."""
    graph = example_graph()
    node = int(graph.clients[0][graph.test[0]][0])
    protocol = GAP(unit=REPORTING, **FEW)
    one = record(protocol, graph)
    kept = iter(sums_of(one, up=True))

    def same_sums(batch: MessageBatch, payload: object) -> object:
        return next(kept) if isinstance(payload, EmbeddingSums) and bool((batch.receivers == SERVER).all()) else payload

    x = graph.x.clone()
    x[node] = 1 - x[node]
    other = dataclasses.replace(graph, x=x)
    two = record(protocol, other, tamper=same_sums)  # type: ignore[arg-type]
    for kind in (ModelUpdate, HopSums):
        pairs = zip(*(run.transcript.seen_by(EVERYBODY).of(kind) for run in (one, two)), strict=True)
        assert all(
            torch.equal(a, b)
            for x_, y_ in pairs
            for a, b in zip(x_.payload.tensors().values(), y_.payload.tensors().values(), strict=True)
        )
    plain = record(protocol, other)
    assert not torch.equal(sums_of(one, up=True)[0].sums, sums_of(plain, up=True)[0].sums)


def test_further_steps_over_public_edges_are_no_releases() -> None:
    graph = example_graph()
    for protocol, times in ((GAP(unit=REPORTING, hops=(1, 3), **FEW), 1), (GAP(unit=EDGE, hops=(3,), **FEW), 3)):
        run = record(protocol, graph)
        assert len(sums_of(run, up=True)) == times
        assert protocol.releases(graph)[0].times == times
        assert bool(list(run.transcript.seen_by(EVERYBODY).of(HopSums))) is (times == 1)


def test_progap_sums_hidden_rows_and_every_step_is_a_release() -> None:
    graph = example_graph()
    protocol = ProGAP(unit=REPORTING, **FEW)
    run = record(protocol, graph)
    assert protocol.releases(graph)[0].times == 2 and len(sums_of(run, up=True)) == 2
    assert protocol.num_rounds == 6 and len(run.trained.accuracy_global) == 6
    assert run.recording.public.structure.to_json()["EmbeddedRows"]["later"] == "hidden"


@pytest.mark.parametrize("noise_at", ["clients", "server"])
def test_the_noise_is_that_of_all_steps_on_the_root_of_two(noise_at: NoiseAt) -> None:
    """Two Gaussian releases at distance sqrt(2) are one at distance 2: its own sigma, from the closed form."""
    graph = example_graph()
    protocol = GAP(noise_at=noise_at, **FEW)
    run = record(protocol, graph, Gaussian(on="EmbeddingSums", unit=EDGE, epsilon=3.0))
    promise = run.recording.guarantee
    assert promise.unit == EDGE and promise.relation is Relation.ADD_OR_REMOVE
    assert promise.server_trusted is (noise_at == "server")
    assert promise.epsilon_accounted == pytest.approx(3.0, rel=1e-5)
    (fact,) = run.recording.public.facts
    assert fact.scale == pytest.approx(2.0 * dp_accounting.get_sigma_gaussian(3.0, 1e-5), rel=1e-5)  # type: ignore[attr-defined]
    clear = record(protocol, graph)
    side = noise_at == "clients"
    assert not torch.equal(sums_of(run, side)[0].sums, sums_of(clear, side)[0].sums)
    same = torch.equal(sums_of(run, not side)[0].sums, sums_of(clear, not side)[0].sums)
    assert same is (noise_at == "server")  # what clients send to a trusted server is as it was


def counted(protocol: GAP, updates: int = 0) -> Counted:
    sums = Sent("EmbeddingSums", False, 2, 1, protocol.noisy_steps, protocol.noisy_steps, 4, ("sums",))
    return Counted((sums,), (1,) * 5, updates)


def accounted(protocol: GAP, defense: Gaussian, **changed: object) -> Accounted | str:
    context = protocol.context(example_graph())
    session = defense.bind(context)
    promise: Guarantee = dataclasses.replace(session.guarantee(), **changed)  # type: ignore[arg-type]
    return account(context, session.facts(), promise, counted(protocol))


def test_the_accountant_takes_the_norm_from_the_protocol() -> None:
    protocol = GAP(unit=REPORTING, most_uses=4, **FEW)
    found = accounted(protocol, Gaussian(on="EmbeddingSums", unit=REPORTING, epsilon=2.0, clip=50.0))
    assert isinstance(found, Accounted) and found.epsilon == pytest.approx(2.0, rel=1e-4)
    assert found.mechanisms[0].sensitivity == pytest.approx(4.0)  # 2 sqrt(4), whatever the clip of rows


def test_the_accountant_refuses_relations_that_the_bound_is_not_about() -> None:
    row = Gaussian(on="EmbeddingSums", unit=REPORTING)
    zeroed = accounted(GAP(unit=REPORTING, **FEW), row, relation=Relation.ZERO_OUT)
    assert isinstance(zeroed, str) and "turn around" in zeroed
    gone = accounted(GAP(unit=REPORTING, **FEW), row, relation=Relation.ADD_OR_REMOVE)
    assert isinstance(gone, str)
    replaced = accounted(GAP(**FEW), Gaussian(on="EmbeddingSums", unit=EDGE), relation=Relation.REPLACE)
    assert isinstance(replaced, str) and "comes or goes" in replaced


def test_any_nodes_row_is_in_the_models_too() -> None:
    """Alone the sums' noise covers nothing; with dp-sgd both are counted together."""
    graph = example_graph()
    protocol = GAP(unit=NODE, **FEW)
    noise = Gaussian(on="EmbeddingSums", unit=NODE, epsilon=2.0)
    assert record(protocol, graph, noise).recording.guarantee.epsilon_accounted is None
    found = accounted(protocol, noise)
    assert isinstance(found, str) and "ModelUpdate in the clear" in found
    parts = [
        {"name": "gaussian", "on": "EmbeddingSums", "unit": NODE, "epsilon": 2.0},
        {"name": "dp-sgd", "edges": "public", "degree_bound": 100, "epsilon": 3.0},
    ]
    both = record(protocol, graph, build("defense", "stack", {"parts": parts})).recording.guarantee
    assert both.epsilon_accounted == pytest.approx(5.0, rel=1e-4) and both.unit == NODE


def test_a_guarantee_of_another_unit_is_refused() -> None:
    context = GAP(unit=EDGE, **FEW).context(example_graph())
    assert "per edge" in str(Gaussian(on="EmbeddingSums", unit=NODE).unsupported(context))


def test_rows_of_zeros_and_long_rows_have_embeddings_of_length_one_at_most() -> None:
    graph = example_graph()
    x = graph.x.clone()
    x[0], x[1] = 0.0, 1e6
    run = record(GAP(unit=REPORTING, most_uses=1, **FEW), dataclasses.replace(graph, x=x))
    for sums in sums_of(run, up=True):
        assert float(sums.sums.norm(dim=1).max()) <= float(graph.degrees().max()) + 1e-4


@pytest.mark.parametrize(
    ("protocol", "fields", "match"),
    [
        (GAP, {"most_uses": 4}, "most_uses"),
        (GAP, {"unit": "nobody"}, "unit"),
        (GAP, {"noise_at": "nowhere"}, "noise_at"),
        (GAP, {"dimension": 0}, "dimension"),
        (GAP, {"home_weight": 0.0}, "home_weight"),
        (GAP, {"sums_of": "codes", "unit": "node"}, "public codes"),
        (ProGAP, {"sums_of": "codes"}, "public codes"),
        (ProGAP, {"hops": (1, 3)}, "stage after every sum"),
    ],
)
def test_bad_input(protocol: type[GAP], fields: dict[str, Any], match: str) -> None:
    with pytest.raises(FglauditError, match=match):
        protocol(**fields)


def test_sums_of_codes_hold_no_feature() -> None:
    """Whatever the rows are, the sums are the same; an edge moves them, and its epsilon is that of any other sum."""
    graph = example_graph()
    protocol = GAP(sums_of="codes", **FEW)
    other = dataclasses.replace(graph, x=1 - graph.x)
    one, two = (sums_of(record(protocol, each), up=True) for each in (graph, other))
    assert all(torch.equal(a.sums, b.sums) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0].sums, sums_of(record(protocol, without_an_edge(graph)), up=True)[0].sums)
    promise = record(protocol, graph, Gaussian(on="EmbeddingSums", unit=EDGE)).recording.guarantee
    assert promise.unit == EDGE and promise.epsilon_accounted == pytest.approx(8.0, rel=1e-5)


def test_it_trains_and_says_what_is_missing() -> None:
    graph = example_graph()
    channel_free = record(GAP(**FEW), graph)
    assert any("gaussian" in note for note in channel_free.trained.notes)
    noisy = record(GAP(**FEW), graph, Gaussian(on="EmbeddingSums", unit=EDGE))
    assert not any("gaussian" in note for note in noisy.trained.notes)
