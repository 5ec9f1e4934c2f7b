"""Canaries through defenses: honest ones are not contradicted, planted false ones are."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from report_runs import store, texts
from user_graphs import GCN, user_graph
from wrapped_defense import Wrapped

from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.context import Context
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.empirical import judge
from fglaudit.empirical.audits import attempts as audits
from fglaudit.empirical.estimates.bound import Bound
from fglaudit.empirical.estimates.measured_curve import measured_curve
from fglaudit.empirical.replays.canaries import Canary, canary_nodes
from fglaudit.execution.run_cell import run_cell
from fglaudit.facts import Fact
from fglaudit.finding import CellRecord
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.guarantees import Audit, AuditName, MeasuredCurve, Outcome, Verdict, Word
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.privacy.accounting import Relation, epsilon_of_mu
from fglaudit.privacy.tradeoff import TradeOff
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.recording import record_training
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


def verdict_on(
    defense: Defense, protocol: FederatedProtocol = COUNTS, graph: FederatedGraph = GRAPH, seed: int = 0
) -> Verdict:
    return record_training(graph, protocol, defense, seed=seed, empirical=True)[0].verdict


def measured(
    defense: Defense, protocol: FederatedProtocol = COUNTS, graph: FederatedGraph = GRAPH, seed: int = 0
) -> MeasuredCurve:
    curve = verdict_on(defense, protocol, graph, seed).measured
    assert curve is not None
    return curve


@pytest.fixture
def trade_off_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out audits that measure no epsilon: the learned distinguisher and whole trainings take half the time."""
    left_out = Audit(AuditName.DISTINGUISHER, Outcome.UNTESTED, "left out")
    monkeypatch.setattr(audits, "distinguisher_audit", lambda *_, **__: left_out)
    monkeypatch.setattr(judge, "whole_training_audit", lambda *_, **__: left_out)


def test_calibrated_noise_is_not_contradicted_and_nearly_used_up() -> None:
    for seed in range(3):
        verdict = verdict_on(Gaussian(epsilon=4.0), seed=seed)
        assert verdict.word is Word.VERIFIED and verdict.measured is not None
        assert 2.5 < verdict.measured.epsilon < 4.0
        assert verdict.mu is not None and epsilon_of_mu(verdict.mu, 1e-5) == pytest.approx(4.0, rel=1e-3)
        assert verdict.contradicted_at is not None and verdict.contradicted_at > 1e-3


@pytest.mark.usefixtures("trade_off_alone")
@pytest.mark.parametrize(
    ("protocol", "on"),
    [
        (FedGCN(hops=2, rounds=1), "NeighborSums"),
        (FedGAT(rounds=1), "RawFeatures"),
        (FedGAT(rounds=1), "MaskedMatrices"),
        (FedGAT(rounds=1, variant="vector"), "MaskedVectors"),
    ],
)
def test_every_payload_that_gets_noise_is_measured(protocol: FederatedProtocol, on: str) -> None:
    curve = measured(Gaussian(epsilon=8.0, on=on), protocol)
    assert 4.0 < curve.epsilon < 8.0 < curve.ceiling


@pytest.mark.usefixtures("trade_off_alone")
def test_many_releases_do_not_hide_what_they_show_together() -> None:
    """The bound is on the whole training: one release of twenty alone would show a fifth of it."""
    defense, protocol, graph = ClippedNoise(epsilon=4.0), NFedGNN(**GCN | {"rounds": 20}), user_graph()
    assert 2.5 < measured(defense, protocol, graph).epsilon < 4.0


@pytest.mark.usefixtures("trade_off_alone")
def test_laplace_noise_is_scored_by_its_own_likelihood() -> None:
    verdict = verdict_on(ClippedNoise("laplace", epsilon=2.0), NFedGNN(**GCN | {"rounds": 1}), user_graph())
    assert verdict.mu is None and verdict.measured is not None
    assert 1.0 < verdict.measured.epsilon < 2.0


@pytest.mark.usefixtures("trade_off_alone")
def test_a_clip_that_is_missing_is_measured() -> None:
    verdict = verdict_on(Faulty(epsilon=0.5, fault="no clip"))
    assert verdict.word is Word.REFUTED
    assert verdict.measured is not None and verdict.measured.epsilon > 2 * 0.5


def test_noise_that_is_not_stated_is_not_measured() -> None:
    verdict = verdict_on(Faulty(epsilon=8.0, fault="unstated noise"))
    assert verdict.word is not Word.VERIFIED and verdict.epsilon is None and verdict.measured is None


def test_a_canary_is_a_row_that_is_there_or_not() -> None:
    before = GRAPH.x.clone()
    row = torch.zeros(GRAPH.num_features)
    row[3] = 7.0
    for sign in (1, 0, -1):
        x = Canary(5, row).insert(GRAPH, sign).x
        others = torch.arange(len(x)) != 5
        assert torch.equal(x[5], sign * row) and torch.equal(x[others], before[others])
    assert torch.equal(GRAPH.x, before)
    assert int(GRAPH.degrees().argmax()) in canary_nodes(GRAPH)


@pytest.mark.parametrize("mu", [0.3, 2.0])
def test_the_band_holds_the_whole_true_curve(mu: float) -> None:
    stated, missed, runs = TradeOff.gaussian(mu), 0, 200
    nothing = Bound(0.0, 1e-5, 0.99, "gdp", 1000, 9.0, lambda error: 0.0)
    for run in range(runs):
        rng = derive(run, "band")
        there = torch.randn(1000, generator=rng) + mu
        curve = measured_curve(there, torch.randn(1000, generator=rng), stated, nothing, "a canary: words", 1)
        for alarms, hits in zip(curve.alarms, curve.hits, strict=True):
            low, high = (max(0.0, min(1.0, alarms + way * curve.margin)) for way in (-1, 1))
            if not stated.hits(low) - curve.margin <= hits <= stated.hits(high) + curve.margin:
                missed += 1
                break
    assert curve.canary == "a canary" and missed <= 6  # 2 are expected at most
    assert len(curve.alarms) <= 20 and len(curve.stated_alarms) <= 20  # a report holds many


def test_scores_that_fall_where_the_record_is_there_are_turned() -> None:
    rng = derive(0, "turned")
    scores = torch.randn(500, generator=rng) - 3, torch.randn(500, generator=rng)
    nothing = Bound(0.0, 1e-5, 0.99, "gdp", 500, 9.0, lambda error: 0.0)
    curve = measured_curve(*scores, TradeOff.gaussian(3.0), nothing, "x", 1)
    assert all(hit >= alarm for alarm, hit in zip(curve.alarms, curve.hits, strict=True))


OPTIONS = CsbmOptions(nodes=120, edges=260, dimensions=40, ones_per_row=5)
CELL = Cell(
    dataset=DatasetSpec(name="csbm", split="random", csbm=OPTIONS),
    partition=PartitionSpec(scheme="dirichlet", clients=4, beta=10.0),
    protocol=FedGCN(hops=1, rounds=1),
    defense=Gaussian(epsilon=8.0),
    seed=0,
    observers=(ObserverSpec(("client:each",)), ObserverSpec(("server",))),
    attacks=(RowSpace(),),
)


def run(**changes: object) -> CellRecord:
    return run_cell(dataclasses.replace(CELL, **changes), suite="test", device=CPU)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def honest() -> CellRecord:
    return run()


@pytest.fixture(scope="module")
def planted() -> CellRecord:
    return run(defense=Faulty(epsilon=8.0, fault="a tenth"))


def test_a_cell_states_the_empirical_epsilon_beside_the_accounted_one(honest: CellRecord) -> None:
    for f in honest.findings:
        assert f.epsilon_empirical is not None and f.epsilon_accounted is not None
        assert 2.0 < f.epsilon_empirical < f.epsilon_accounted
        assert f.epsilon_p_value is not None and f.epsilon_p_value > 1e-4
    assert [f.epsilon_empirical for f in run().findings] == [f.epsilon_empirical for f in honest.findings]
    assert all(f.epsilon_empirical is None for f in run(empirical=False).findings)


def test_a_planted_tenth_is_flagged_in_the_report(tmp_path: Path, honest: CellRecord, planted: CellRecord) -> None:
    assert planted.verdict is not None and "its author states epsilon 0.8" in planted.verdict.reason
    assert all(f.epsilon_accounted == pytest.approx(8.0, rel=1e-3) for f in planted.findings)
    assert REFUTED in texts(store(tmp_path / "planted", [planted]))["report.html"]
    page = texts(store(tmp_path / "honest", [honest]))["report.html"]
    assert REFUTED not in page and ALARM not in page


def test_a_planted_tenth_stands_out_among_honest_settings(
    tmp_path: Path, honest: CellRecord, planted: CellRecord
) -> None:
    report = texts(store(tmp_path / "planted", [honest, run(seed=1), planted]))["report.md"]
    assert report.count(REFUTED) == 1 and "faulty" in report[report.index(REFUTED) :][:200]
    assert "put to the test in 3 cells, by canaries: contradicted in 1 setting." in report


def test_a_curve_survives_storing(honest: CellRecord) -> None:
    again = CellRecord.from_json(json.loads(json.dumps(honest.to_json())))
    assert again.verdict == honest.verdict and honest.verdict is not None and honest.verdict.measured is not None


@pytest.mark.usefixtures("trade_off_alone")
def test_an_epsilon_that_holds_against_clients_alone_is_tested_for_them_alone() -> None:
    record = run(protocol=FedGAT(rounds=1), defense=Gaussian(epsilon=8.0, on="MaskedMatrices"))
    by_observer = {f.observer: f.epsilon_empirical for f in record.findings}
    assert by_observer["client:each"] is not None and by_observer["server"] is None


def test_a_note_says_what_replays_cannot_show() -> None:
    notes = run(defense=Gaussian(epsilon=5000.0)).notes
    assert sum("cannot reach the accounted 500" in note for note in notes) == 1


@pytest.mark.usefixtures("trade_off_alone")
def test_noise_calibrated_for_zeroed_out_records_is_contradicted_where_records_are_replaced() -> None:
    """The classic slip: a clip is the sensitivity of one relation and half of that of the other."""

    def slipped(session: DefenseSession) -> DefenseSession:
        return _Slipped(session, "none")

    verdict = verdict_on(Wrapped(Gaussian(epsilon=4.0), slipped))
    assert verdict.word is Word.REFUTED, verdict.reason


class _Slipped(_Wrapped):
    def guarantee(self) -> Guarantee:
        return dataclasses.replace(super().guarantee(), relation=Relation.REPLACE)
