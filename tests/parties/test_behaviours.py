"""Parties that break the rules: what is sent and claimed is recorded and trained on; honest cells are as ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from node_graphs import graph as node_graph

from fglaudit.attacking import run_attacks
from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.updates.update_shares import UpdateShares
from fglaudit.defenses.none import NoDefense
from fglaudit.defenses.training.dp_fedavg import DpFedAvg
from fglaudit.execution.display import cell_label
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.parties import SERVERS
from fglaudit.parties.base import Behaviour
from fglaudit.parties.crafted_weights import CraftedWeights
from fglaudit.parties.insert_edges import InsertEdges
from fglaudit.parties.named import behaviour
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.recording import Recording, record_training
from fglaudit.rng import derive
from fglaudit.scoring.score import Scorer
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import server_label
from fglaudit.suite.suite import resolve
from fglaudit.testing import example_graph
from fglaudit.view import Observer

TWO_HOPS = FedGCN(hops=2, hidden=8, rounds=6, local_steps=1, dropout=0.0)


def recorded(
    protocol: FederatedProtocol, graph: FederatedGraph, active: Behaviour | None, defense: Defense | None = None
) -> tuple[Recording, GroundTruth]:
    return record_training(graph, protocol, defense or NoDefense(), behaviour=active)


def finding(run: tuple[Recording, GroundTruth], attack: Attack, party: str) -> Finding:
    scorer = Scorer(run[1])
    [output] = run_attacks(run[0], [ObserverSpec((party,))], [attack], nothing_to_ask=scorer.nothing_to_ask)
    return scorer.measure(output).finding


def alike() -> FederatedGraph:
    """Return a graph of nodes of one size: 3 words each, in rings of 4 within a client."""
    graph = example_graph(nodes=72, features=24, clients=3, classes=3)
    rng = derive(3, "words")
    words = torch.rand(72, 24, generator=rng).topk(3, dim=1).indices
    pairs = torch.cat([torch.stack([ids, ids.view(-1, 4).roll(1, 1).flatten()]) for ids in graph.clients], 1)
    edges = torch.cat([pairs, pairs.flip(0)], 1)
    edges = edges[:, (edges[0] * 72 + edges[1]).argsort()]
    y = torch.randint(3, (72,), generator=rng)
    return replace(graph, x=torch.zeros(72, 24).scatter_(1, words, 1.0), edge_index=edges, y=y)


def test_crafted_weights_show_label_distributions_exactly_where_nodes_are_of_one_size() -> None:
    """An oracle without the attack's formula: shares of sizes are shares of heads if all sizes are one."""
    crafted = finding(recorded(TWO_HOPS, alike(), CraftedWeights(rounds=4)), UpdateShares(), "server")
    honest = finding(recorded(TWO_HOPS, alike(), None), UpdateShares(), "server")
    assert crafted.status is Status.OK and (crafted.cosine or 0) > 0.999 and (crafted.value or 0) > 0.99
    assert (crafted.value or 0) > (honest.value or 0) + 0.05
    assert (crafted.server, honest.server) == ("crafted-weights(rounds=4)", "honest")


def test_crafted_weights_of_a_gat_show_label_distributions_of_heads() -> None:
    """Nodes of any size and number of neighbours count alike: the oracle is the truth itself, without dropout.
    DistGAT's nodes see fewer neighbours, and a unit of few nodes is not quite at its floor."""
    graph, protocol = example_graph(nodes=72, features=24, clients=3, classes=3), FedGAT(rounds=6, dropout=0.0)
    exact = DistGAT(rounds=6, dropout=0.0)
    for one in (protocol, replace(protocol, layers=3), replace(protocol, output_heads=2), exact):
        found = finding(recorded(one, graph, CraftedWeights(rounds=2)), UpdateShares(), "server")
        assert found.status is Status.OK and (found.cosine or 0) > (0.998 if one is exact else 0.9999), one
    honest = finding(recorded(protocol, graph, None), UpdateShares(), "server")
    assert honest.status is Status.NOT_APPLICABLE and "none of these models is crafted" in honest.reason
    private = DpFedAvg(epsilon=4, delta=1e-3, clip=0.5, trust="local")
    hidden = finding(recorded(protocol, graph, CraftedWeights(rounds=2), private), UpdateShares(), "server")
    assert hidden.adapted == "yes" and (hidden.value or 0) < 0.9


def test_dropout_between_the_layers_of_a_gat_is_averaged() -> None:
    graph = example_graph(nodes=72, features=24, clients=3, classes=3)
    found = finding(recorded(FedGAT(rounds=9), graph, CraftedWeights()), UpdateShares(), "server")
    assert (found.cosine or 0) > 0.99


def test_local_steps_and_dropout_leave_the_answer() -> None:
    steps = replace(TWO_HOPS, hidden=16, local_steps=3, dropout=0.5, rounds=10)
    crafted = finding(recorded(steps, alike(), CraftedWeights()), UpdateShares(), "server")
    assert (crafted.cosine or 0) > 0.98


@pytest.mark.parametrize("behaviour", [None, CraftedWeights(rounds=4)], ids=["honest", "crafted"])
def test_client_level_privacy_leaves_what_was_known_beforehand(behaviour: CraftedWeights | None) -> None:
    """Shares of noise were 0.84 (honest) and 0.63 (crafted), where even ones have 0.90."""
    private = DpFedAvg(epsilon=4, delta=1e-3, clip=0.5, trust="local")
    found = finding(recorded(TWO_HOPS, alike(), behaviour, private), UpdateShares(), "server")
    assert found.adapted == "yes" and found.value == pytest.approx(found.control, abs=0.01)


def test_crafted_weights_drown_the_noise_on_jacobians() -> None:
    """Variant V1's noise hides entries of honest Jacobians, not those that large weights multiply."""
    protocol = GFLAPPNP(variant="v1", hidden=16, rounds=12, local_steps=2)
    honest, crafted = (
        finding(recorded(protocol, node_graph(), active), JacobianReading(), "server")
        for active in (None, CraftedWeights())
    )
    assert (honest.value or 0) < 0.7 < 0.9 < (crafted.value or 0) and crafted.control_exact_rate == 0
    assert crafted.server == "crafted-weights(rounds=8)" and honest.adapted == crafted.adapted == "yes"
    run, _ = recorded(protocol, node_graph(), CraftedWeights())
    assert any("last weights are all 10000, whatever they upload" in note for note in run.notes)


def test_a_client_of_one_class_and_one_without_training_nodes() -> None:
    graph = alike()
    y = graph.y.clone()
    y[graph.clients[0]] = 1
    train = (*graph.train[:2], torch.zeros_like(graph.train[2]))
    run = recorded(TWO_HOPS, replace(graph, y=y, train=train), CraftedWeights(rounds=4))
    found = finding(run, UpdateShares(), "server")
    assert (found.targets, found.status) == (2, Status.OK) and (found.cosine or 0) > 0.999
    result = UpdateShares().run(run[0].view(Observer((SERVER,))), rng=derive(0), device=torch.device("cpu"))
    assert result.subjects.tolist() == [0, 1]
    assert torch.allclose(result.estimate[0], torch.tensor([0.0, 1.0, 0.0]).double(), atol=0.01)


def test_what_was_crafted_is_recorded_and_trained_on() -> None:
    run, _ = recorded(TWO_HOPS, example_graph(), CraftedWeights(rounds=2))
    plain, _ = recorded(TWO_HOPS, example_graph(), None)
    seen, honest = (
        [b.payload.vector for b in r.view(Observer((SERVER,))).messages.of(ModelUpdate) if int(b.senders[0]) == SERVER]  # type: ignore[attr-defined]
        for r in (run, plain)
    )
    first = 24 * 8
    assert torch.equal(seen[0][:, :first], torch.full_like(seen[0][:, :first], 1e-3))
    assert bool((seen[0][:, first:] == 0).all()) and bool((seen[1][:, first:] != 0).any())
    assert torch.equal(seen[2], honest[0])  # back to the honest start
    assert any("crafted-weights" in note for note in run.notes) and not any("crafted" in note for note in plain.notes)


def test_inserted_edges_make_single_rows() -> None:
    graph = example_graph(nodes=90, features=40, clients=3)
    active = InsertEdges(client=0, edges=15)
    claimed = active.claims(graph)
    client = claimed.client(0)
    single = (torch.bincount(client.boundary[0], minlength=len(client.nodes)) == 1).sum()
    assert int(single) >= 15
    inside = [graph.client(k).edge_index for k in range(3)], [claimed.client(k).edge_index for k in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(*inside, strict=True))
    protocol = FedGCN(hops=1, rounds=1, aggregate="counts")
    before = finding(recorded(protocol, graph, None), RowSpace(), "client:0")
    after = finding(recorded(protocol, claimed, active), RowSpace(), "client:0")
    found = [(f.identifiable_rate or 0) * (f.targets or 0) for f in (before, after)]
    assert found[1] >= 15 > found[0]


@pytest.mark.parametrize(
    ("active", "protocol", "words"),
    [
        (CraftedWeights(), FedGCN(rounds=8), "8 rounds before training"),
        (CraftedWeights(), FedGCN(layers=3, rounds=20), "two layers"),
        (CraftedWeights(), FedAvgSage(), "not for fedavg-sage"),
        (CraftedWeights(), FedGAT(rounds=20, bounds="all"), "bounds: all"),
        (CraftedWeights(), FedGAT(rounds=20, local_steps=2), "single local steps"),
        (CraftedWeights(), FedGAT(rounds=20, layers=1), "one layer"),
        (CraftedWeights(), GAT(rounds=20), "gat sends none"),
        (CraftedWeights(), GFLAPPNP(rounds=20, variant="v2"), "sends none"),
        (CraftedWeights(), FedGCN(rounds=20, hidden=2), "hidden units"),
        (InsertEdges(client=7), FedGCN(), "client 2"),
    ],
)
def test_what_is_impossible_is_refused_with_a_reason(
    active: Behaviour, protocol: FederatedProtocol, words: str
) -> None:
    assert words in str(active.unsupported(protocol, example_graph()))


def suite(**keys: Any) -> dict[str, Any]:
    return {
        "name": "active",
        "datasets": [{"name": "csbm", "csbm": {"nodes": 60, "edges": 120, "dimensions": 20}}],
        "partitions": [{"scheme": "dirichlet", "clients": 3, "beta": 10000}],
        "protocols": [{"name": "fedgcn", "rounds": 9}],
        "observers": [{"parties": ["server"]}],
        "attacks": ["update-shares"],
        **keys,
    }


def test_behaviours_are_part_of_a_cell_and_honest_cells_keep_their_hash() -> None:
    plain = resolve(suite(), "plain").cells()
    active = resolve(suite(server=["honest", "crafted-weights", {"name": "crafted-weights", "rounds": 2}]), "a").cells()
    assert [c.server for c in active] == ["honest", "crafted-weights(rounds=8)", "crafted-weights(rounds=2)"]
    assert active[0].hash() == plain[0].hash() and len({c.hash() for c in active}) == 3
    assert plain[0].description()["server"] == "honest"
    written = resolve(suite(server=["crafted-weights"]), "a").resolved()
    assert written["server"] == [{"name": "crafted-weights", "rounds": 8}]
    assert resolve(written, "again").cells()[0].hash() == active[1].hash()


def test_every_listed_behaviour_is_built_by_its_name() -> None:
    for name in SERVERS:
        built = behaviour(name)
        assert built is not None and type(built).name == name and server_label(built).startswith(name)
    assert behaviour("honest") is None


@pytest.mark.parametrize("name", SERVERS)
def test_every_behaviour_says_in_the_record_what_others_could_notice(name: str) -> None:
    short = {"rounds": 2} if name in ("crafted-weights", "repeat-models") else {}
    active = behaviour({"name": name, **short})
    graph = example_graph()
    assert active is not None and active.unsupported(TWO_HOPS, graph) is None
    notes = recorded(TWO_HOPS, active.claims(graph), active)[0].notes
    assert any(note.startswith(f"{name}: ") for note in notes)


def test_a_plan_names_the_behaviour() -> None:
    honest, active = resolve(suite(server=["honest", "crafted-weights"]), "a").cells()
    assert "rules broken by" not in cell_label(honest)
    assert "rules broken by crafted-weights(rounds=8)" in cell_label(active)
