"""Protocols and attacks under randomised rows: rows count as reported alone, with one epsilon for all of a training."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from fedgat_runs import SMALL
from randomised_rows import TRANSFORMER, bound
from user_graphs import GCN, user_graph

from fglaudit import registry
from fglaudit.attacks.neighborhoods.raw_features import PlainFeatures
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.noise.local_features import LocalFeatures
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.defenses.none import NoDefense
from fglaudit.execution.run_cell import run_cell
from fglaudit.finding import Status
from fglaudit.graph import ClientGraph, FederatedGraph, federate
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.fedper_sage import FedPerSage
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.distributed_gcn.bds_gcn import BDSGCN
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.protocols.fedsage.fedsage import FedSage
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.protocols.private.gap import GAP
from fglaudit.protocols.private.lpgnn import LPGNN
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.progap import ProGAP
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.recording import record_training
from fglaudit.rng import derive
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU, check_defense, example_graph, record
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.transcript import Transcript

pytestmark = pytest.mark.filterwarnings("ignore:.*left the series' domain:UserWarning")
GENERATOR: dict[str, Any] = {"embedding": 8, "generator_hidden": 24, "generator_epochs": 2, "generator_rounds": 1}
PROTOCOLS: list[FederatedProtocol] = [
    FedGCN(rounds=1),
    FedGCN(rounds=1, hops=0),
    FedGCN(rounds=1, hops=2, aggregate="counts"),
    FedGAT(**SMALL | {"rounds": 1}),
    FedGAT(**SMALL | {"rounds": 1, "variant": "vector"}),
    DistGAT(rounds=1),
    NFedGNN(**GCN),
    CNFGNN(**GCN),
    GFLAPPNP(hidden=8, rounds=2, local_steps=2),
    FedMLP(rounds=2),
    FedGT(rounds=1, **TRANSFORMER),
    FedAvgSage(rounds=1),
    FedPerSage(rounds=1),
    GCFLSage(rounds=1),
    FedAvgGophormer(rounds=1, hidden=8, heads=2, feed_forward=12),
    FedAvgGraphGPS(rounds=1, hidden=8, heads=2, feed_forward=12),
    StructureOnly(rounds=1),
    PrivateReports(rounds=2),
    FedSage(rounds=1, hidden=8, **GENERATOR),
    FedPub(rounds=1, hidden=8),
    GAP(encoder_rounds=1, rounds=1),
    ProGAP(encoder_rounds=1, rounds=1),
    LPGNN(rounds=1),
    DistributedGCN(rounds=1),
    BDSGCN(rounds=1),
]

CELL = Cell(
    dataset=DatasetSpec(
        name="csbm", split="random", csbm=CsbmOptions(nodes=120, edges=260, dimensions=40, ones_per_row=5)
    ),
    partition=PartitionSpec(scheme="dirichlet", clients=4, beta=10.0),
    protocol=FedGCN(hops=1, rounds=1),
    defense=NoDefense(),
    seed=0,
    observers=(ObserverSpec(("client:each",)),),
    attacks=(MaximumAPosteriori(), SubsetSum()),
    empirical=False,
)


def graph_for(protocol: FederatedProtocol) -> FederatedGraph:
    if isinstance(protocol, GFLAPPNP | FedMLP):
        task = draw_task("csbm-dnc", CsbmTask(nodes=30, dimensions=12))
        assert task.train is not None and task.val is not None and task.test is not None
        return federate(task, list(torch.arange(30).unsqueeze(1)), task.train, task.val, task.test)
    return user_graph() if isinstance(protocol, NFedGNN | CNFGNN) else example_graph()


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: type(p).__name__)
def test_every_protocol_computes_with_randomised_rows_alone(protocol: FederatedProtocol) -> None:
    """Messages and weights are the same whatever the true rows are, once the randomised ones are fixed."""
    graph = graph_for(protocol)

    class Fixed(DefenseSession):
        def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
            x = torch.rand(client.x.shape, generator=derive(0, "fixed", client.client))
            return dataclasses.replace(client, x=(x < 0.3).to(client.x))

    found = []
    for x in (graph.x, torch.rand(graph.x.shape, generator=derive(1, "other")).to(graph.x)):
        channel = RecordingChannel(Fixed(), graph.num_clients, derive(0, "defense"), Transcript())
        trained = protocol.train(dataclasses.replace(graph, x=x), channel, rng=derive(0, "train"), device=CPU)
        assert channel.transcript is not None
        sent = [
            b.payload.tensors()
            for p in type(protocol).emits
            for b in channel.transcript.seen_by(Observer(wire=True)).of(p)
        ]
        found.append((sent, trained.weights))
    (first, weights), (second, others) = found
    assert len(first) == len(second) > 0
    assert all(torch.equal(v, b[name]) for a, b in zip(first, second, strict=True) for name, v in a.items())
    assert all(torch.equal(weight, others[name]) for name, weight in weights.items())


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("defense", [MultiBit(epsilon=4.0), LocalFeatures("gaussian", 4.0, 1e-5)])
def test_conformance_and_the_epsilon_of_the_whole_training(defense: Defense, protocol: FederatedProtocol) -> None:
    graph = graph_for(protocol)
    if protocol in (PROTOCOLS[0], PROTOCOLS[6], PROTOCOLS[8]):
        check_defense(defense, protocol, graph, quick=True)
    promise = record(protocol, graph, defense).session.guarantee()
    assert (
        promise.epsilon_accounted == pytest.approx(4.0) and promise.unit == "node" and "replaced" in promise.adjacency
    )


def test_no_protocol_is_left_out() -> None:
    sending = {name for name in registry.names("protocol") if registry.load("protocol", name).emits}
    assert sending == {type(protocol).name for protocol in PROTOCOLS} | {"label-propagation"}  # which uses no feature


def test_a_protocol_that_passes_clients_over_gets_no_epsilon() -> None:
    graph = example_graph()
    session = bound(MultiBit())
    session.prepare(graph.client(0), derive(0))
    assert (
        session.guarantee().epsilon_accounted is None
        and "2 of 3 clients used their rows" in session.guarantee().mechanism
    )


@pytest.mark.parametrize(
    ("defense", "true"),
    [(MultiBit(epsilon=2.0), 2.0), (LocalFeatures(epsilon=2.0), 2.0), (LocalFeatures("gaussian", 2.0, 1e-5), 2.0)],
    ids=["multi-bit", "laplace", "gaussian"],
)
def test_replays_use_up_most_of_the_epsilon_and_no_more(defense: Defense, true: float) -> None:
    verdict = record_training(example_graph(), FedGCN(rounds=1), defense, empirical=True)[0].verdict
    assert verdict.measured is not None and 0.5 * true < verdict.measured.epsilon < true


def test_attacks_read_reports_by_their_likelihood() -> None:
    """At a large epsilon the server's rows are as good as plain, at a small one they say no more than a guess."""
    base = dataclasses.replace(
        CELL,
        protocol=FedGAT(rounds=1),
        observers=(ObserverSpec(("server",), auxiliary=0.2),),
        attacks=(PlainFeatures(),),
    )
    for weak, strong in (
        (MultiBit(epsilon=2000.0), MultiBit(epsilon=1.0)),
        (MultiBit(epsilon=2000.0, rectified=True), MultiBit(epsilon=1.0, rectified=True)),
        (LocalFeatures(epsilon=5000.0, clip=5.0), LocalFeatures(epsilon=1.0, clip=5.0)),
    ):
        (open_row,) = run_cell(dataclasses.replace(base, defense=weak), suite="test", device=CPU).findings
        (hidden_row,) = run_cell(dataclasses.replace(base, defense=strong), suite="test", device=CPU).findings
        assert open_row.status is Status.OK and open_row.value is not None and open_row.value > 0.95, open_row
        assert hidden_row.status is Status.OK and hidden_row.advantage is not None and hidden_row.advantage < 0.02
        assert open_row.epsilon_accounted is not None and hidden_row.epsilon_accounted == pytest.approx(1.0)


def test_attacks_on_sums_adapt_or_say_why_not() -> None:
    cell = dataclasses.replace(CELL, defense=MultiBit(epsilon=2000.0))
    rows = {(f.observer, f.attack): f for f in run_cell(cell, suite="test", device=CPU).findings}
    sums = rows["client:each", "maximum-a-posteriori"]
    assert (
        sums.status is Status.OK
        and sums.f1 is not None
        and sums.control_f1 is not None
        and sums.f1 > sums.control_f1 + 0.1
    )
    refused = rows["client:each", "subset-sum"]
    assert refused.status is Status.NOT_APPLICABLE and "real-valued" in refused.reason
