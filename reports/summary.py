"""Aggregates findings over seeds: settings (cells without seed) and their leaks (observer x knowledge x attack).

Broken attacks keep their numbers but never count as the strongest attack; nothing is dropped.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.reports.records import Run
from fglaudit.rng import derive
from fglaudit.scoring.stats import UNINFORMATIVE, advantage_interval

FEATURES = "features"
FALSE_ALARMS = 0.01
"""Probability that any honest cell of a run is said to break its accounted epsilon."""


@dataclass(frozen=True)
class Setting:
    """Data set x partition x protocol x server x defense, with the records of all its seeds and its leaks.

    Attributes:
        alarm_level: an accounted epsilon is contradicted where its p-value is below this: ``FALSE_ALARMS`` divided by
            the number of cells of the run in which one was tested (Bonferroni), so that it holds for all of them
            together.
    """

    records: tuple[CellRecord, ...]
    leaks: tuple[Leak, ...]
    alarm_level: float = FALSE_ALARMS

    @property
    def first(self) -> Finding:
        """Any finding: the columns that name the setting are equal in all."""
        return self.records[0].findings[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(record.findings[0].seed for record in self.records))

    def per_seed(self, column: str) -> list[float]:
        """One value per record that has it, e.g. of ``accuracy``."""
        found = (present([getattr(finding, column) for finding in record.findings]) for record in self.records)
        return [values[0] for values in found if values]

    def largest(self, column: str) -> float | None:
        """Largest value of ``column`` in any finding, or None."""
        return max(present(getattr(f, column) for r in self.records for f in r.findings), default=None)

    @property
    def contradicted(self) -> bool:
        """Whether an attack demonstrated a larger epsilon than was accounted, at 99 % over the whole run."""
        return any(_contradicts(finding, self.alarm_level) for record in self.records for finding in record.findings)

    def text(self, column: str) -> str:
        """The distinct texts of ``column``, joined."""
        return " | ".join(
            dict.fromkeys(getattr(f, column) for r in self.records for f in r.findings if getattr(f, column))
        )

    def strongest(self, observer: tuple[str, str]) -> Leak | None:
        """Return the working attack of (observer, knowledge) on features with the largest advantage, without any the
        strongest inference of something else; None if nothing was measured."""
        best = self.strongest_by_quantity(observer)
        return best.get(FEATURES) or max(best.values(), key=lambda leak: leak.advantage or 0.0, default=None)

    def strongest_by_quantity(self, observer: tuple[str, str]) -> dict[str, Leak]:
        """Return, by what is inferred, the working attack of (observer, knowledge) with the largest advantage."""
        best: dict[str, Leak] = {}
        for leak in self.leaks:
            if leak.observer == observer and leak.measured:
                known = best.get(leak.quantity)
                if known is None or (leak.advantage or 0.0) > (known.advantage or 0.0):
                    best[leak.quantity] = leak
        return best


@dataclass(frozen=True)
class Leak:
    """One observer x knowledge x attack of a setting, over its seeds.

    Attributes:
        findings: one per seed, in the order of seeds.
        advantage, low, high, interval: of the working findings; "bootstrap" over clients x seeds, "range" or "".
        breakdowns: mean over seeds of the score by degree, class and client.
    """

    findings: tuple[Finding, ...]
    advantage: float | None
    low: float | None
    high: float | None
    interval: str
    breakdowns: dict[str, dict[str, float]]

    @property
    def observer(self) -> tuple[str, str]:
        return self.findings[0].observer, self.findings[0].observer_knowledge

    @property
    def quantity(self) -> str:
        """What is inferred; records that do not say so are about features."""
        return next((finding.quantity for finding in self.findings if finding.quantity), FEATURES)

    @property
    def attack(self) -> str:
        return self.findings[0].attack

    def count(self, status: Status) -> int:
        return sum(finding.status is status for finding in self.findings)

    @property
    def status(self) -> Status:
        """The worst of the findings' statuses: one failed seed makes the whole leak failed."""
        worst_first = (Status.FAILED, Status.BROKEN_ATTACK, Status.NOT_APPLICABLE, Status.OK)
        return next(status for status in worst_first if self.count(status))

    @property
    def measured(self) -> bool:
        return self.advantage is not None and self.count(Status.OK) > 0

    @property
    def reassures(self) -> bool:
        """Whether a low advantage says anything: see ``fglaudit.finding.Finding.can_reassure``; over all seeds."""
        return self.measured and all(f.can_reassure for f in self.scored) and (self.high is None or self.high >= 0)

    @property
    def unadapted(self) -> tuple[str, ...]:
        """What was done to the messages that the attack does not allow for."""
        said = (f.adapted.removeprefix("no: ") for f in self.findings if f.adapted.startswith("no: "))
        return tuple(dict.fromkeys(name for text in said for name in text.split(", ")))

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.reason for finding in self.findings if finding.reason))

    @cached_property
    def scored(self) -> tuple[Finding, ...]:
        """The working findings; where there is none, those of the broken attack."""
        working = tuple(f for f in self.findings if f.status is Status.OK)
        return working or tuple(f for f in self.findings if f.status is Status.BROKEN_ATTACK)

    def values(self, column: str) -> list[float]:
        return present([getattr(finding, column) for finding in self.scored])

    def mean(self, column: str) -> float | None:
        return mean(self.values(column))

    @property
    def metric(self) -> str:
        return ", ".join(sorted({finding.metric for finding in self.scored if finding.metric}))

    @property
    def uninformative(self) -> bool:
        control = self.mean("control")
        return control is not None and control >= UNINFORMATIVE


def present(values: Iterable[float | None]) -> list[float]:
    """Return the values that are there: None and NaN mean "does not apply"."""
    return [float(v) for v in values if v is not None and not math.isnan(v)]


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def sd(values: Sequence[float]) -> float | None:
    """Sample standard deviation; None below two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def summarize(run: Run) -> list[Setting]:
    """Group the run's records into settings, in the order of the records where there is a plan, else by name."""
    groups: dict[str, list[CellRecord]] = {}
    for record in run.cells:
        if record.findings:
            groups.setdefault(_setting_key(record), []).append(record)
    level = FALSE_ALARMS / max(1, tested_epsilons(run))
    settings = [_setting(sorted(records, key=_seed), level) for records in groups.values()]
    return settings if run.planned else sorted(settings, key=_by_name)


def _contradicts(finding: Finding, level: float) -> bool:
    """Whether the epsilons of ``finding`` contradict each other; by the bound itself where a record has no p-value."""
    if finding.epsilon_p_value is not None:
        return finding.epsilon_p_value < level
    shown, accounted = finding.epsilon_empirical, finding.epsilon_accounted
    return shown is not None and accounted is not None and shown > accounted


def tested_epsilons(run: Run) -> int:
    """Return in how many cells of the run an accounted epsilon was tested."""
    return sum(any(f.epsilon_p_value is not None for f in record.findings) for record in run.cells)


def _seed(record: CellRecord) -> tuple[int, str]:
    return record.findings[0].seed, record.cell


def _by_name(setting: Setting) -> tuple[str | int | bool, ...]:
    f = setting.first
    return (
        f.dataset, f.partition, f.clients, f.protocol, f.protocol_args, f.server, f.defense != "none",
        f.defense, f.defense_args,
    )  # fmt: skip


def _setting_key(record: CellRecord) -> str:
    """Name the setting by its columns and by its description, which also holds what the columns leave out."""
    f = record.findings[0]
    apart = {"seed", "observers", "attacks", "record"}
    description = {key: value for key, value in record.description.items() if key not in apart}
    columns = [f.dataset, f.partition, f.clients, f.protocol, f.protocol_args, f.server, f.defense, f.defense_args]
    return json.dumps([columns, description], sort_keys=True, default=str)


def _setting(records: Sequence[CellRecord], alarm_level: float) -> Setting:
    rows: dict[tuple[str, str, str], list[tuple[CellRecord, Finding]]] = {}
    for record in records:
        for finding in record.findings:
            rows.setdefault((finding.observer, finding.observer_knowledge, finding.attack), []).append(
                (record, finding)
            )
    return Setting(tuple(records), tuple(_leak(pairs) for pairs in rows.values()), alarm_level)


def _leak(pairs: Sequence[tuple[CellRecord, Finding]]) -> Leak:
    findings = tuple(finding for _, finding in pairs)
    working = [(record, finding) for record, finding in pairs if finding.status is Status.OK] or [
        (record, finding) for record, finding in pairs if finding.status is Status.BROKEN_ATTACK
    ]
    breakdowns = [record.breakdowns.get(_key(finding), {}) for record, finding in working]
    return Leak(findings, *_interval(working), _mean_breakdown(breakdowns))


def _key(finding: Finding) -> str:
    """Return the key under which a record keeps clusters and breakdowns of a finding."""
    return f"{finding.observer}|{finding.observer_knowledge}|{finding.attack}"


def _interval(working: Sequence[tuple[CellRecord, Finding]]) -> tuple[float | None, float | None, float | None, str]:
    """Return advantage, low, high, kind; over the clusters of all seeds together where every finding has them."""
    findings = [finding for _, finding in working]
    if len(findings) == 1:  # one seed: what the findings file says, to the digit
        only = findings[0]
        return only.advantage, only.advantage_low, only.advantage_high, only.interval
    clusters = [record.clusters.get(_key(finding), []) for record, finding in working]
    rows = [row for found in clusters for row in found]
    if rows and all(clusters):
        first = findings[0]
        name = (first.protocol, first.protocol_args, first.defense, first.defense_args, first.observer, first.attack)
        return advantage_interval(torch.tensor(rows, dtype=torch.float64), derive(0, "summary", *name))
    points = present([finding.advantage for finding in findings])
    ends = points + present([f.advantage_low for f in findings]) + present([f.advantage_high for f in findings])
    return (mean(points), min(ends), max(ends), "range") if points else (None, None, None, "")


def _mean_breakdown(parts: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    collected: dict[str, dict[str, list[float]]] = {}
    for part in parts:
        for by, buckets in part.items():
            for bucket, value in buckets.items():
                collected.setdefault(by, {}).setdefault(bucket, []).extend(present([value]))
    return {by: {b: statistics.fmean(v) for b, v in buckets.items() if v} for by, buckets in collected.items()}
