"""Canaries through defenses: honest ones are not contradicted, planted false ones are."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from report_runs import store, texts
from user_graphs import GCN, user_graph

from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.context import Context
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm import CsbmOptions
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.empirical.bound import Bound
from fglaudit.empirical.canaries import Canary, canary_nodes, canary_rows
from fglaudit.empirical.defense import audit_defense
from fglaudit.execution.run_cell import run_cell
from fglaudit.facts import Additive, Fact, Field
from fglaudit.finding import CellRecord
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MessageBatch, NeighborSums, Payload
from fglaudit.privacy.accounting import Relation
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU, example_graph

GRAPH = example_graph()
ALARM = "is below what an attack demonstrated"
REFUTED = "REFUTED: the guarantee of"
COUNTS = FedGCN(hops=1, aggregate="counts", rounds=1)


class _Wrapped(DefenseSession):
    """Gaussian noise with one thing wrong."""

    def __init__(self, honest: DefenseSession, fault: str) -> None:
        self.honest = honest
        self.fault = fault

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return client if self.fault == "no clip" else self.honest.prepare(client, rng)

    def changes(self, payload: type[Payload]) -> bool:
        return self.honest.changes(payload)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        return self.honest.release(batch, rng)

    def facts(self) -> tuple[Fact, ...]:
        return () if self.fault == "unstated noise" else self.honest.facts()

    def guarantee(self) -> Guarantee:
        promise = self.honest.guarantee()
        if self.fault != "a tenth" or promise.epsilon_accounted is None:
            return promise
        return dataclasses.replace(promise, epsilon_accounted=promise.epsilon_accounted / 10)


@dataclass(frozen=True)
class Faulty(Gaussian):
    """Noise for ``epsilon``, with a ``fault``."""

    name: ClassVar[str] = "faulty"
    fault: str = "a tenth"

    def bind(self, context: Context) -> DefenseSession:
        return _Wrapped(super().bind(context), self.fault)


class _Laplace(DefenseSession):
    """L1-clipped rows with Laplace noise on counts: (epsilon, 0) for the node with most neighbours."""

    def __init__(self, epsilon: float, degree: int) -> None:
        self.scale = (degree + 1) / epsilon
        self.epsilon = epsilon

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return dataclasses.replace(client, x=client.x / client.x.abs().sum(1, keepdim=True).clamp(min=1))

    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        assert isinstance(batch.payload, NeighborSums)
        u = torch.rand(batch.payload.sums.shape, generator=rng, dtype=torch.double) - 0.5
        noise = -u.sign() * torch.log1p(-2 * u.abs()) * self.scale
        return NeighborSums(batch.payload.nodes, batch.payload.sums + noise.float())

    def facts(self) -> tuple[Fact, ...]:
        return (Additive(Field("NeighborSums", "sums", "up"), "laplace", self.scale),)

    def guarantee(self) -> Guarantee:
        return Guarantee("laplace", self.epsilon, self.epsilon, 0.0, "node", "feature row zeroed out", 1)


def bound_session(defense: Defense, protocol: FederatedProtocol, graph: FederatedGraph = GRAPH) -> DefenseSession:
    releases = protocol.releases(graph)
    return defense.bind(
        Context(type(protocol).name, protocol.num_rounds, graph.num_clients, graph.num_features, releases)
    )


def audit(session: DefenseSession, protocol: FederatedProtocol = COUNTS, seed: int = 0, **settings: float) -> Bound:
    bound = audit_defense(protocol, GRAPH, session, session.guarantee(), seed=seed, device=CPU, **settings)  # type: ignore[arg-type]
    assert isinstance(bound, Bound), bound
    return bound


def test_calibrated_noise_is_not_contradicted_and_nearly_used_up() -> None:
    session = bound_session(Gaussian(epsilon=4.0), COUNTS)
    bounds = [audit(session, seed=seed, confidence=0.95, draws=2**22).epsilon for seed in range(12)]
    assert sum(b > 4.0 for b in bounds) <= 3  # 0.6 are expected at most
    assert audit(session).epsilon > 2.8


@pytest.mark.parametrize(
    ("protocol", "on"),
    [
        (FedGCN(hops=2, rounds=1), "NeighborSums"),
        (FedGAT(rounds=1), "RawFeatures"),
        (FedGAT(rounds=1), "MaskedMatrices"),
        (FedGAT(rounds=1, variant="vector"), "MaskedVectors"),
    ],
)
def test_every_payload_that_gets_noise_can_be_replayed(protocol: FederatedProtocol, on: str) -> None:
    shown = audit(bound_session(Gaussian(epsilon=8.0, on=on), protocol), protocol, draws=2**24)
    assert shown.method == "gdp" and 2.0 < shown.epsilon < 8.0 < shown.ceiling


def test_wide_rows_are_replayed_where_a_canary_has_entries() -> None:
    wide = example_graph(features=300)
    session = bound_session(Gaussian(epsilon=8.0), COUNTS, wide)
    bound = audit_defense(COUNTS, wide, session, session.guarantee(), seed=0, device=CPU, draws=2**22)
    assert isinstance(bound, Bound) and 4.0 < bound.epsilon < 8.0
    blind = bound_session(Faulty(epsilon=8.0, fault="unstated noise"), COUNTS, wide)
    whole = audit_defense(COUNTS, wide, blind, blind.guarantee(), seed=0, device=CPU, draws=2**22)
    assert isinstance(whole, Bound) and 3 * whole.trials < bound.trials  # rows are cut only where that cannot matter


def test_laplace_noise_is_scored_by_its_own_likelihood() -> None:
    degree = int(GRAPH.degrees().max().item())
    session = _Laplace(2.0, degree)
    bound = audit(session, confidence=0.95)
    assert bound.method == "clopper-pearson" and bound.delta == 0
    assert 1.0 < bound.epsilon < 2.0
    session.scale /= 10
    assert audit(session, confidence=0.95).epsilon > 2.0


@pytest.mark.parametrize(("fault", "true"), [("a tenth", 8.0), ("no clip", 0.5)])
def test_a_false_epsilon_is_contradicted(fault: str, true: float) -> None:
    session = bound_session(Faulty(epsilon=true, fault=fault), COUNTS)
    stated = session.guarantee().epsilon_accounted
    assert stated is not None and audit(session).epsilon > 2 * stated


def test_noise_that_is_not_stated_is_bounded_without_assuming_its_kind() -> None:
    bound = audit(bound_session(Faulty(epsilon=8.0, fault="unstated noise"), COUNTS))
    assert bound.method == "clopper-pearson" and 1.0 < bound.epsilon < 8.0


def test_what_cannot_be_replayed_says_why() -> None:
    session = bound_session(Gaussian(), COUNTS)
    promise = session.guarantee()
    for changed, graph, words in (
        (dataclasses.replace(promise, unit="client"), GRAPH, "per client"),
        (promise, dataclasses.replace(GRAPH, x=GRAPH.x.unsqueeze(1)), "several samples"),
    ):
        reason = audit_defense(COUNTS, graph, session, changed, seed=0, device=CPU)
        assert isinstance(reason, str) and words in reason
    nothing = audit_defense(COUNTS, GRAPH, DefenseSession(), promise, seed=0, device=CPU)
    assert isinstance(nothing, str) and "changes no release" in nothing
    costly = audit_defense(COUNTS, GRAPH, session, promise, seed=0, device=CPU, draws=1000)
    assert isinstance(costly, str) and "small enough" in costly


def test_canaries_are_rows_of_equal_norm_that_are_there_or_not() -> None:
    before = GRAPH.x.clone()
    one, even = canary_rows(GRAPH)
    assert one.norm() == pytest.approx(even.norm()) and one.norm() > 100 * GRAPH.x.norm(dim=1).max()
    for sign in (1, 0, -1):
        x = Canary(5, one).insert(GRAPH, sign).x
        others = torch.arange(len(x)) != 5
        assert torch.equal(x[5], sign * one) and torch.equal(x[others], before[others])
    assert torch.equal(GRAPH.x, before)
    assert int(GRAPH.degrees().argmax()) in canary_nodes(GRAPH)


OPTIONS = CsbmOptions(nodes=120, edges=260, dimensions=40, ones_per_row=5)
CELL = Cell(
    dataset=DatasetSpec(name="csbm", split="random", csbm=OPTIONS),
    partition=PartitionSpec(scheme="dirichlet", clients=4, beta=10.0),
    protocol=FedGCN(hops=1, rounds=1),
    server="honest",
    defense=Gaussian(epsilon=8.0),
    seed=0,
    observers=(ObserverSpec(("client:each",)), ObserverSpec(("server",))),
    attacks=(RowSpace(),),
)


def run(**changes: object) -> CellRecord:
    return run_cell(dataclasses.replace(CELL, **changes), suite="test", device=CPU)  # type: ignore[arg-type]


def test_a_cell_states_the_empirical_epsilon_beside_the_accounted_one() -> None:
    record = run()
    for f in record.findings:
        assert f.epsilon_empirical is not None and f.epsilon_accounted is not None
        assert 2.0 < f.epsilon_empirical < f.epsilon_accounted
        assert f.epsilon_p_value is not None and f.epsilon_p_value > 1e-4
    assert [f.epsilon_empirical for f in run().findings] == [f.epsilon_empirical for f in record.findings]
    assert all(f.epsilon_empirical is None for f in run(empirical=False).findings)


def test_a_planted_tenth_is_flagged_in_the_report(tmp_path: Path) -> None:
    record = run(defense=Faulty(epsilon=8.0, fault="a tenth"))
    assert record.verdict is not None and "its author states epsilon 0.8" in record.verdict.reason
    assert all(f.epsilon_accounted == pytest.approx(8.0, rel=1e-3) for f in record.findings)
    assert REFUTED in texts(store(tmp_path / "planted", [record]))["report.html"]
    honest = texts(store(tmp_path / "honest", [run()]))["report.html"]
    assert REFUTED not in honest and ALARM not in honest


def test_in_a_large_suite_the_planted_tenth_alone_is_flagged(tmp_path: Path) -> None:
    """A thousand honest cells would break a bound that holds at 99 % in each of them; the smallest p-value counts their
    number."""
    honest = run()
    p_values = torch.rand(1000, generator=derive(0, "p"), dtype=torch.double).sort().values.tolist()
    assert p_values[0] < 0.01
    suite = [renamed(honest, index, p) for index, p in enumerate(p_values)]
    assert ALARM not in texts(store(tmp_path / "honest", suite))["report.md"]
    planted = texts(store(tmp_path / "planted", [*suite, run(defense=Faulty(epsilon=8.0, fault="a tenth"))]))[
        "report.md"
    ]
    assert planted.count(REFUTED) == 1 and "faulty" in planted[planted.index(REFUTED) :][:200]
    assert re.search(r"put to the test in 1\D?001 cells, by canaries: contradicted in 0 settings,", planted)


def renamed(record: CellRecord, seed: int, p_value: float) -> CellRecord:
    cell = f"{seed:016x}"
    findings = tuple(dataclasses.replace(f, cell=cell, seed=seed, epsilon_p_value=p_value) for f in record.findings)
    return dataclasses.replace(record, cell=cell, findings=findings, description={**record.description, "seed": seed})


def test_an_epsilon_that_holds_against_clients_alone_is_tested_for_them_alone() -> None:
    record = run(protocol=FedGAT(rounds=1), defense=Gaussian(epsilon=8.0, on="MaskedMatrices"))
    by_observer = {f.observer: f.epsilon_empirical for f in record.findings}
    assert by_observer["client:each"] is not None and by_observer["server"] is None


def test_a_note_says_what_replays_cannot_show() -> None:
    notes = run(defense=Gaussian(epsilon=5000.0)).notes
    assert sum("cannot reach the accounted 500" in note for note in notes) == 1


@pytest.mark.parametrize(
    ("defense", "method"),
    [(ClippedNoise(epsilon=4.0), "gdp"), (ClippedNoise("laplace", epsilon=4.0), "clopper-pearson")],
)
def test_replaced_records_are_put_to_the_test_by_opposite_canaries(defense: Defense, method: str) -> None:
    protocol, graph = NFedGNN(**GCN | {"rounds": 1}), user_graph()
    session = bound_session(defense, protocol, graph)
    promise = session.guarantee()
    bound = audit_defense(protocol, graph, session, promise, seed=0, device=CPU)
    zeroed = dataclasses.replace(promise, relation=Relation.ZERO_OUT)
    half = audit_defense(protocol, graph, session, zeroed, seed=0, device=CPU)
    assert isinstance(bound, Bound) and isinstance(half, Bound) and bound.method == method
    assert half.epsilon < 0.7 * bound.epsilon and 0.4 * 4.0 < bound.epsilon < 4.0


def test_noise_calibrated_for_zeroed_out_records_is_contradicted_where_records_are_replaced() -> None:
    """The classic slip: a clip is the sensitivity of one relation and half of that of the other."""
    session = bound_session(Gaussian(epsilon=4.0), COUNTS)
    promise = dataclasses.replace(session.guarantee(), relation=Relation.REPLACE)
    bound = audit_defense(COUNTS, GRAPH, session, promise, seed=0, device=CPU)
    assert isinstance(bound, Bound) and bound.epsilon > 4.0 and bound.p_value(4.0) < 1e-4
