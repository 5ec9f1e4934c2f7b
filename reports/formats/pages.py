"""What the report's tables show, made ready for the templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.finding import Status
from fglaudit.reports.answers_table import AnswerRow, answer_rows
from fglaudit.reports.figures.accuracy_leakage import AccuracyLeakage, accuracy_leakage_figure
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.leaks import Leak, mean, sd
from fglaudit.reports.numbers import plural
from fglaudit.reports.summary import Setting
from fglaudit.reports.wording.observers import observer_label

_EXTRA = (
    "relative_error", "direction_rate", "claimed_rate", "false_claim_rate", "tpr_at_fpr_1", "tpr_at_fpr_1_low",
    "tpr_at_fpr_1_high", "tpr_at_fpr_01", "tv_error", "control_exact_rate", "control_f1", "control_auc",
    "control_cosine", "control_class",
)  # fmt: skip


@dataclass(frozen=True)
class ObserverCell:
    """One observer's column in the main table: its strongest attack, or why there is none."""

    observer: tuple[str, str]
    leak: Leak | None
    problems: tuple[str, ...]
    nothing: str
    reasons: tuple[str, ...]
    others: tuple[Leak, ...] = ()
    """The strongest attack on anything beside ``leak``'s quantity."""


@dataclass(frozen=True)
class Row:
    """One setting in the main table."""

    setting: Setting
    protocol: str
    defense: str
    observers: tuple[ObserverCell, ...]
    history: tuple[float, ...]
    outcome: str
    """``Finding.outcome`` where all findings of the setting share it and its reason, and it is not ok; else empty."""

    def stat(self, column: str) -> tuple[list[float], float | None]:
        """Values over seeds and their standard deviation."""
        values = self.setting.per_seed(column)
        return values, sd(values)

    def average(self, column: str) -> float | None:
        return mean(self.setting.per_seed(column))


@dataclass(frozen=True)
class Section:
    """One data set and partition."""

    title: str
    rows: tuple[Row, ...]
    observers: tuple[tuple[str, str], ...]
    heat: tuple[AnswerRow, ...]
    figure: AccuracyLeakage | None


def sections(
    settings: Sequence[Setting], labels: Labels, observers: Sequence[tuple[str, str]], sizes: Sequence[tuple[int, int]]
) -> list[Section]:
    """Group settings by data set and partition, each with its plot in every one of ``sizes``, the first labelled."""
    result = []
    for title in dict.fromkeys(place(s) for s in settings):
        here = [s for s in settings if place(s) == title]
        seen = tuple(o for o in observers if any(leak.observer == o for s in here for leak in s.leaks))
        rows = tuple(_row(s, labels, seen) for s in here)
        heat = tuple(answer_rows(here, labels, seen))
        name = (
            f"Accuracy against the strongest attack on features on {title}; the table of answers has the same numbers."
        )
        # Indices into the observers of the whole run: a colour means the same in every section.
        figure = accuracy_leakage_figure(heat, observers, name, sizes) if sizes else None
        result.append(Section(title, rows, seen, heat, figure))
    return result


def _row(setting: Setting, labels: Labels, observers: Sequence[tuple[str, str]]) -> Row:
    cells = tuple(_observer_cell(setting, observer) for observer in observers)
    histories = [h for record in setting.records if (h := record.history.get("accuracy"))]
    shortest = min((len(h) for h in histories), default=0)
    history = tuple(sum(h[i] for h in histories) / len(histories) for i in range(shortest))
    return Row(setting, labels.protocol(setting), labels.defense(setting), cells, history, _outcome(setting))


def _outcome(setting: Setting) -> str:
    """Return :attr:`Row.outcome`."""
    shared = {(f.outcome, f.reason) for leak in setting.leaks for f in leak.findings}
    outcome = shared.pop()[0] if len(shared) == 1 else Status.OK.value
    return "" if outcome == Status.OK else outcome


def _observer_cell(setting: Setting, observer: tuple[str, str]) -> ObserverCell:
    leaks = [leak for leak in setting.leaks if leak.observer == observer]
    best = setting.strongest(observer)
    problems = []
    for word in ("not run", "failed", "broken"):
        if number := sum(leak.failures[word] for leak in leaks):
            problems.append(f"{number} {word}")
    if best is None:
        return ObserverCell(observer, None, tuple(problems), "" if problems else _nothing(leaks), _reasons(leaks))
    if idle := sum(leak.status is Status.NOT_APPLICABLE for leak in leaks):
        problems.append(f"{idle} of {plural(len(leaks), 'attack')} not applicable")
    others = tuple(leak for leak in setting.strongest_by_quantity(observer).values() if leak is not best)
    return ObserverCell(observer, best, tuple(problems), "", (), others)


def _reasons(leaks: Sequence[Leak]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason for leak in leaks for reason in leak.reasons))


def _nothing(leaks: Sequence[Leak]) -> str:
    if not leaks:
        return "not in this cell"
    return "uninformative" if any(leak.uninformative for leak in leaks) else "no attack applies"


@dataclass(frozen=True)
class Failure:
    """Findings that share a status and a reason; ``outcome`` is the status in words."""

    status: Status
    outcome: str
    reason: str
    findings: int
    where: tuple[str, ...]


def failures(settings: Sequence[Setting], labels: Labels) -> list[Failure]:
    """Group what failed or is broken by status and reason; failures first. What did not apply:
    ``answers_table.idle_lines``."""
    groups: dict[tuple[Status, str, str], list[str]] = {}
    for setting in settings:
        for leak in setting.leaks:
            for f in leak.findings:
                if f.status in (Status.FAILED, Status.BROKEN_ATTACK):
                    who = f"{observer_label(leak.observer)} / {leak.attack or 'no attack'}"
                    where = f"{labels.placed(setting)}: {who}"
                    groups.setdefault((f.status, f.outcome, f.reason or "no reason recorded"), []).append(where)
    order = [Status.FAILED, Status.BROKEN_ATTACK]
    listed = [Failure(*kind, len(where), tuple(dict.fromkeys(where))) for kind, where in groups.items()]
    return sorted(listed, key=lambda failure: (order.index(failure.status), -failure.findings, failure.reason))


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Sort key under which "10" comes after "9" and "2-4" after "1"."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part)


def extras(leak: Leak) -> list[tuple[str, float]]:
    """Scores that the findings table has no column for."""
    return [(name, value) for name in _EXTRA if (value := leak.mean(name)) is not None]


def breakdown(leak: Leak) -> list[tuple[str, list[tuple[str, float]]]]:
    """Scores by degree, class and client, in natural order."""
    return [
        (by, sorted(buckets.items(), key=lambda item: natural(item[0])))
        for by, buckets in sorted(leak.breakdowns.items(), reverse=True)
    ]
