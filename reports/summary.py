"""Aggregates findings over seeds: settings (cells without seed) and their leaks (observer x knowledge x attack).

Broken attacks keep their numbers but never count as the strongest attack; nothing is dropped.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.reports.datasets import names_apart
from fglaudit.reports.leaks import FEATURES, Leak, judged, mean, present, says_most, sd
from fglaudit.reports.numbers import percent_spread
from fglaudit.reports.records import Run
from fglaudit.scoring.clusters import NOTHING, Interval, PairedClusters
from fglaudit.scoring.metrics import metric_interval, pooled_clusters
from fglaudit.suite.cell import anywhere

PER_NODE = "per-node"
_SAME_CLIENTS = (PER_NODE, "given")
"""Partition schemes that no seed has a say in."""


@dataclass(frozen=True)
class Setting:
    """Data set x partition x protocol x server x defense, with the records of all its seeds and its leaks.

    Attributes:
        dataset: its name, with what tells it apart from others of that name in the run.
    """

    records: tuple[CellRecord, ...]
    leaks: tuple[Leak, ...]
    dataset: str

    @property
    def first(self) -> Finding:
        """Any finding: the columns that name the setting are equal in all."""
        return self.records[0].findings[0]

    @property
    def undefended(self) -> bool:
        """Whether it has no defense."""
        return self.first.undefended

    @property
    def key(self) -> str:
        """What tells it from other settings, also of other runs: see :func:`setting_key`."""
        return setting_key(self.records[0])

    @property
    def findings(self) -> list[Finding]:
        """The rows of all seeds."""
        return [finding for record in self.records for finding in record.findings]

    @property
    def accuracy(self) -> float:
        """Mean over seeds; 0 where nothing was trained."""
        return mean(self.per_seed("accuracy")) or 0.0

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(record.seed for record in self.records))

    def per_seed(self, column: str) -> list[float]:
        """One value per record that has it, e.g. of ``accuracy``."""
        found = (next(_there(record.findings, column), None) for record in self.records)
        return [value for value in found if value is not None]

    def spread(self, column: str = "accuracy") -> str:
        """Mean over seeds of a rate in percent, with its standard deviation."""
        values = self.per_seed(column)
        return percent_spread(values, sd(values))

    def largest(self, column: str) -> float | None:
        """Largest value of ``column`` in any finding, or None."""
        return max(present(getattr(row, column) for row in self.findings), default=None)

    @property
    def contradicted(self) -> bool:
        """Whether replays showed a larger epsilon than was accounted, wrong with probability 1e-5 per cell."""
        return any(finding.exceeded for finding in self.findings)

    def text(self, column: str) -> str:
        """The distinct texts of ``column``, joined."""
        return " | ".join(filter(None, dict.fromkeys(getattr(row, column) for row in self.findings)))

    def strongest(self, observer: tuple[str, str]) -> Leak | None:
        """Return the working attack of (observer, knowledge) on features with the largest advantage, without any the
        strongest inference of something else; None if nothing was measured."""
        best = self.strongest_by_quantity(observer)
        return best.get(FEATURES) or max(best.values(), key=lambda leak: leak.advantage or 0.0, default=None)

    def strongest_by_quantity(self, observer: tuple[str, str]) -> dict[str, Leak]:
        """Return, by what is inferred, the working attack of (observer, knowledge) that says most."""
        best: dict[str, Leak] = {}
        for leak in self.leaks:
            if leak.observer == observer and leak.measured:
                known = best.get(leak.quantity)
                if known is None or says_most(leak) > says_most(known):
                    best[leak.quantity] = leak
        return best


def _there(findings: Sequence[Finding], column: str) -> Iterator[float]:
    """Yield the values of ``column`` that are there, see :func:`fglaudit.reports.leaks.present`."""
    for finding in findings:
        value = getattr(finding, column)
        if value is not None and value == value:
            yield float(value)


def summarize(run: Run) -> list[Setting]:
    """Group the run's records into settings, in the order of the records where there is a plan, else by name."""
    groups = by_setting(run.cells)
    names = names_apart([records[0] for records in groups.values()])
    settings = [
        _setting(sorted(records, key=_seed), name) for records, name in zip(groups.values(), names, strict=True)
    ]
    return settings if run.planned else sorted(settings, key=_by_name)


def by_setting(cells: Iterable[CellRecord]) -> dict[str, list[CellRecord]]:
    """Return the records with findings by :func:`setting_key`."""
    groups: dict[str, list[CellRecord]] = {}
    for record in cells:
        if record.findings:
            groups.setdefault(setting_key(record), []).append(record)
    return groups


def tested_epsilons(run: Run) -> int:
    """Return in how many cells of the run an accounted epsilon was tested."""
    return sum(any(f.epsilon_empirical is not None for f in record.findings) for record in run.cells)


def _seed(record: CellRecord) -> tuple[int, str]:
    return record.seed, record.cell


def _by_name(setting: Setting) -> tuple[str | int | bool, ...]:
    f = setting.first
    return (
        setting.dataset, f.partition, f.clients, f.protocol, f.protocol_args, f.server, not f.undefended,
        f.defense, f.defense_args,
    )  # fmt: skip


def scheme(finding: Finding) -> str:
    """Return how a finding's nodes were split, the name alone."""
    return finding.partition.removeprefix("scheme=").partition(";")[0]


def setting_key(record: CellRecord) -> str:
    """Name the setting by its columns and by its description, which also holds what the columns leave out; where the
    files of its data set lie does not count, nor whether its guarantee was audited or its noise is secret, nor the
    number of clients that a cell of one per node never asked for."""
    f = record.findings[0]
    apart = {"seed", "observers", "attacks", "record", "empirical", "secret"}
    description = {key: value for key, value in record.description.items() if key not in apart}
    if isinstance(dataset := description.get("dataset"), dict):
        description["dataset"] = anywhere(dataset)
    clients = 0 if scheme(f) == PER_NODE else f.clients
    columns = [f.dataset, f.partition, clients, f.protocol, f.protocol_args, f.server, f.defense, f.defense_args]
    return json.dumps([columns, description], sort_keys=True, default=str)


def _setting(records: Sequence[CellRecord], dataset: str) -> Setting:
    rows: dict[tuple[str, str, str], list[tuple[CellRecord, Finding]]] = {}
    for record in records:
        for finding in record.findings:
            rows.setdefault((finding.observer, finding.observer_knowledge, finding.attack), []).append(
                (record, finding)
            )
    return Setting(tuple(records), judged([_leak(pairs) for pairs in rows.values()]), dataset)


def _leak(pairs: Sequence[tuple[CellRecord, Finding]]) -> Leak:
    findings = tuple(finding for _, finding in pairs)
    working = [(record, finding) for record, finding in pairs if finding.status is Status.OK] or [
        (record, finding) for record, finding in pairs if finding.status is Status.BROKEN_ATTACK
    ]
    breakdowns = [record.breakdowns.get(finding.key, {}) for record, finding in working]
    paired, partitions = _clusters(working), [_partition(record) for record, _ in working]
    return Leak(
        findings,
        _interval([finding for _, finding in working], paired),
        _mean_breakdown(breakdowns),
        paired,
        redrawn=len(set(partitions)) == len(partitions)
        and not any(scheme(finding) in _SAME_CLIENTS for _, finding in working),
    )


def _partition(record: CellRecord) -> str:
    """Return what tells the record's partition from others."""
    return str(record.partition_facts.get("digest") or record.cell)


def _clusters(working: Sequence[tuple[CellRecord, Finding]]) -> PairedClusters | None:
    """Return the clusters of all seeds together; None where a finding has none."""
    kept = [record.clusters.get(finding.key, []) for record, finding in working]
    metrics = {finding.metric for _, finding in working}
    if not kept or not all(kept) or len(metrics) > 1:
        return None
    return pooled_clusters(metrics.pop(), kept, [_partition(record) for record, _ in working])


def _interval(findings: Sequence[Finding], paired: PairedClusters | None) -> Interval:
    """Return the advantage over all seeds; over their clusters where every finding has them."""
    clusters = 0 if paired is None else paired.count
    if len(findings) == 1:  # one seed: what the findings file says, to the digit
        only = findings[0]
        return Interval(only.advantage, only.advantage_low, only.advantage_high, only.interval, clusters)
    if paired is not None:
        return metric_interval(findings[0].metric, paired)
    points = present([finding.advantage for finding in findings])
    ends = points + present([f.advantage_low for f in findings]) + present([f.advantage_high for f in findings])
    return Interval(mean(points), min(ends), max(ends), "range", len(findings)) if points else NOTHING


def _mean_breakdown(parts: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    collected: dict[str, dict[str, list[float]]] = {}
    for part in parts:
        for by, buckets in part.items():
            for bucket, value in buckets.items():
                collected.setdefault(by, {}).setdefault(bucket, []).extend(present([value]))
    return {by: {b: statistics.fmean(v) for b, v in buckets.items() if v} for by, buckets in collected.items()}
