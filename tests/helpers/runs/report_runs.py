"""Records of a made-up run for the tests of reports, and how its pages are read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fglaudit.execution.folder.plan import Planned
from fglaudit.execution.folder.stored_record import Made, record_text
from fglaudit.execution.folder.stored_run import Manifest
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.quantities.rows.examples import RowExample
from fglaudit.reports import write_report
from fglaudit.scoring.metrics import metric_interval, read_clusters

PROTOCOLS = [
    ("fedgcn", {"hops": 1, "rounds": 100}, 0.812),
    ("fedgcn", {"hops": 2, "rounds": 100}, 0.816),
    ("local-gcn", {"rounds": 100}, 0.42),
]
DEFENSES: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("drop-singletons", {}),
    ("gaussian", {"epsilon": 8.0, "delta": 1e-5}),
]
OBSERVERS = [("server", ""), ("client:each", ""), ("client:each", "no-degrees;auxiliary=0.1")]
ATTACKS = ["subset-sum", "row-space", "map-prior", "box-propagation"]
SEEDS = (0, 1)
MADE = Made("0.1.0", 1)
EXAMPLES = [
    RowExample(
        which, 17 + i, (1.0, 0.5, 0.0)[i], i == 0, i == 2, True,
        tuple((11 * c, 1.0, float(c > i), c > i) for c in range(6)),
    ).to_json()
    for i, which in enumerate(("best", "median", "worst"))
]  # fmt: skip


def blank(
    cell: str, protocol: tuple[str, dict[str, Any], float], defense: tuple[str, dict[str, Any]], seed: int
) -> Finding:
    return Finding(
        suite="demo",
        cell=cell,
        dataset="csbm-cora",
        partition="scheme=dirichlet;clients=10;beta=10000",
        clients=10,
        protocol=protocol[0],
        protocol_args=";".join(f"{k}={v}" for k, v in protocol[1].items()),
        server="honest",
        defense=defense[0],
        defense_args=";".join(f"{k}={v:g}" for k, v in defense[1].items()),
        seed=seed,
        observer="",
        observer_knowledge="",
        attack="",
        status=Status.OK,
    )


def strength(observer: int, attack: int, defense: str) -> float:
    """Share of rows rebuilt: plausible, and different for every combination."""
    base = (0.93, 0.63, 0.21)[observer] * (1.0, 0.35, 0.6, 0.12)[attack]
    return base * {"none": 1.0, "drop-singletons": 0.8, "gaussian": 0.0}[defense]


def make_finding(
    base: Finding, observer: int, attack: int, rng: random.Random, parties: int = 10
) -> tuple[Finding, list[list[float]]]:
    """A row with ``parties`` clusters and the interval that these give."""
    name, knowledge = OBSERVERS[observer]
    row = replace(base, observer=name, observer_knowledge=knowledge, attack=ATTACKS[attack])
    if base.protocol == "local-gcn":
        return replace(row, status=Status.NOT_APPLICABLE, reason="no node's features reach this observer"), []
    share = strength(observer, attack, base.defense)
    clusters = []
    for _ in range(parties):
        targets = rng.randint(120, 170)
        clusters.append([float(targets), 0.0, float(sum(rng.random() < share for _ in range(targets))), 0.0])
    targets = int(sum(c[0] for c in clusters))
    value = sum(c[2] for c in clusters) / targets
    paired = read_clusters("exact_rate", clusters)
    interval = metric_interval("exact_rate", paired)
    row = replace(
        row,
        targets=targets,
        metric="exact_rate",
        value=value,
        control=0.0,
        advantage=value,
        advantage_low=interval.low,
        advantage_high=interval.high,
        interval=interval.kind,
        worst_client=paired.worst,
        adapted="yes",
        exact_rate=value,
        matched_rate=min(1.0, value + 0.03),
        cosine=0.2 + 0.7 * value,
        f1=0.15 + 0.8 * value,
        auc=0.6 + 0.4 * value,
        relative_error=1 - value,
        control_exact_rate=0.0,
        control_f1=0.15,
        control_auc=0.6,
        control_cosine=0.2,
        identifiable_rate=(0.087 if value else 0.0) if attack == 1 else None,
        worst_decile=min(1.0, 2 * value),
        seconds_attack=rng.random(),
    )
    if attack == 3 and observer == 2:
        return replace(row, status=Status.BROKEN_ATTACK, reason="self-test: did not find a planted row"), clusters
    return row, clusters


def make_cell(
    protocol: tuple[str, dict[str, Any], float],
    defense: tuple[str, dict[str, Any]],
    seed: int,
    *,
    observers: Sequence[int] = (0, 1, 2),
    parties: int = 10,
) -> CellRecord:
    rng = random.Random(repr((protocol, defense, seed)))
    cell = f"{rng.getrandbits(64):016x}"
    drop = 0.09 if defense[0] == "gaussian" and protocol[0] == "fedgcn" else 0.0
    accuracy = protocol[2] - drop + rng.gauss(0, 0.005)
    base = replace(
        blank(cell, protocol, defense, seed),
        accuracy=accuracy,
        accuracy_global=accuracy - 0.004,
        bytes_up=8_123_456,
        bytes_down=23_456_789,
        seconds_train=rng.random(),
        device="cpu",
    )
    if defense[0] == "gaussian":
        base = replace(
            base,
            epsilon_claimed=8.0,
            epsilon_accounted=7.98,
            delta=1e-5,
            privacy_unit="node",
            releases=1,
            mechanism="gaussian sigma=0.91 on NeighborSums; one node's feature row zeroed out; edges and labels public",
        )
    rows = [make_finding(base, o, a, rng, parties) for o in observers for a in range(len(ATTACKS))]
    keys = [f"{f.observer}|{f.observer_knowledge}|{f.attack}" for f, _ in rows]
    scores = {
        "degree": {"0-1": 0.9, "2": 0.8, "3-4": 0.6, "5-8": 0.3, "9+": 0.1},
        "class": {str(c): 0.4 + 0.05 * c for c in range(7)},
        "client": {str(k): 0.5 + 0.02 * k for k in range(10)},
    }
    return CellRecord(
        cell=cell,
        description={
            "dataset": {"name": "csbm-cora"},
            "protocol": {"name": protocol[0], **protocol[1]},
            "defense": {"name": defense[0], **defense[1]},
            "seed": seed,
        },
        findings=tuple(f for f, _ in rows),
        clusters={key: clusters for key, (_, clusters) in zip(keys, rows, strict=True) if clusters},
        examples={key: EXAMPLES for key, (_, clusters) in zip(keys, rows, strict=True) if clusters},
        breakdowns={key: scores for key, (_, clusters) in zip(keys, rows, strict=True) if clusters},
        partition_facts={
            "missing_links": 4741 + seed,
            "digest": f"drawn with {seed}",
            "label_heterogeneity": 0.061,
            "client_sizes": [270, 271, 269, 272] * 2 + [273, 271],
        },
        history={"accuracy": [accuracy * (1 - 0.8**i) for i in range(1, 101)]},
    )


def make_run(seeds: Sequence[int] = SEEDS) -> list[CellRecord]:
    """A run with working, broken, inapplicable and failed rows."""
    records = [make_cell(p, d, seed) for p in PROTOCOLS for d in DEFENSES for seed in seeds]
    first, last = records[0], records[-1]
    failed = replace(
        first.findings[2], status=Status.FAILED, reason="RuntimeError: out of memory", value=None, advantage=None
    )
    records[0] = replace(first, findings=(*first.findings[:2], failed, *first.findings[3:]))
    lost = tuple(
        replace(f, status=Status.FAILED, reason="ValueError: training diverged", accuracy=None) for f in last.findings
    )
    records[-1] = replace(last, findings=lost, history={}, clusters={}, breakdowns={}, examples={})
    return records


def store(
    folder: Path, records: Sequence[CellRecord], *, plan: Sequence[CellRecord] = (), suite: str = "name: demo\n"
) -> Path:
    (folder / "cells").mkdir(parents=True)
    for record in records:
        (folder / "cells" / f"{record.cell}.json").write_text(record_text(record, MADE), "utf-8")
    (folder / "suite.yaml").write_text(suite, "utf-8")
    if plan:
        manifest = Manifest("demo", MADE, tuple(Planned.like(record) for record in plan))
        (folder / "run.json").write_text(manifest.text(), "utf-8")
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in write_report(folder) if path.suffix != ".png"}


class _Page(HTMLParser):
    """Collects tags with their attributes, text by tag, and checks that tags close."""

    void = frozenset({"meta", "link", "br", "rect", "path", "polyline", "img", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page_of(folder: Path) -> _Page:
    """Return the page of a run whose report is written."""
    return _Page((folder / "report.html").read_text("utf-8"))


def page_words(folder: Path) -> str:
    """Write the report of a run and return the words of its page."""
    write_report(folder)
    return page_of(folder).words


def hits_in_clusters(hits: Sequence[float], targets: int = 60, control: float = 0.0) -> list[list[float]]:
    """Clusters of ``targets`` each with so many hits, all of them gained on a control that loses nothing."""
    return [[float(targets), control, float(hit), 0.0] for hit in hits]


def clustered_cell(
    attacks: dict[str, list[list[float]]],
    seed: int = 0,
    metric: str = "exact_rate",
    defense: tuple[str, dict[str, Any]] = DEFENSES[0],
    **columns: Any,
) -> CellRecord:
    """A record in which the server's attacks reached what the clusters say."""
    made = make_cell(PROTOCOLS[0], defense, seed, observers=[0])
    findings = []
    for name, clusters in attacks.items():
        paired = read_clusters(metric, clusters)
        found = metric_interval(metric, paired)
        row = replace(
            made.findings[0], attack=name, metric=metric, value=float(paired.values.sum() / paired.targets.sum()),
            control=paired.control_rate, advantage=found.value, advantage_low=found.low, advantage_high=found.high,
            interval=found.kind, worst_client=paired.worst, identifiable_rate=None,
            exact_rate=float(paired.values.sum() / paired.targets.sum()),
        )  # fmt: skip
        findings.append(replace(row, **columns))
    kept = {f"server||{name}": clusters for name, clusters in attacks.items()}
    return replace(made, findings=tuple(findings), clusters=kept, breakdowns={})
