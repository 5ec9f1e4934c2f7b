"""What changed between two runs: better, worse or within noise, per setting, observer and quantity.

A setting that both runs have is compared over the cells that both finished; where they have none in common (other
seeds), over all that each finished. Cells that failed or did not run are named: left among the others, a seed that one
run lost would read as a change. "Better" is for privacy: less is learned. A change is told from noise where the 95 %
intervals of the two advantages do not touch, which is stricter than a test of the difference; whatever is worse than a
guess counts as a guess, and a range over too few parties is no interval. Where intervals tell nothing and the answer
(leaks, held, not shown, not tested) is another one, that is said. Accuracies are told apart by Student's t, over
the seeds, at a level that is divided by the number of settings: where nothing changed, at most one comparison in twenty
says that some accuracy did.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord, Status
from fglaudit.reports.achieved import achieved
from fglaudit.reports.answers import Answer, answers
from fglaudit.reports.choosing.controls import CONFIDENCE
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import mean
from fglaudit.reports.numbers import THIN, decimal, percent, plural
from fglaudit.reports.records import Run, load_run
from fglaudit.reports.summary import Setting, by_setting, summarize
from fglaudit.reports.wording.names import quantity_name
from fglaudit.reports.wording.observers import observer_label
from fglaudit.scoring.clusters import TOO_FEW, Interval


class Change(StrEnum):
    """The second run against the first; for accuracy better is higher, for what is learned lower."""

    BETTER = "better"
    WORSE = "worse"
    ANSWER = "another answer"  # leaks, held, ... changed, and figures do not say which way
    NOISE = "within noise"
    EQUAL = "equal"
    UNTESTED = "not tested in both"
    UNKNOWN = "not comparable"


@dataclass(frozen=True)
class Difference:
    """One setting, observer and quantity in both runs; of accuracy, observer and quantity are empty and "accuracy".

    Attributes:
        paired: how many cells of the setting both runs finished; 0 where all that each finished are compared.
        first, second: advantage (or accuracy) in either run.
        words: what is said of it in either run.
        text: in words, with figures.
    """

    setting: str
    observer: str
    quantity: str
    change: Change
    paired: int
    first: float | None
    second: float | None
    words: tuple[str, str]
    text: str


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    differences: of every setting that both runs have.
    only_first, only_second: settings that one run alone has.
    unfinished_first, unfinished_second: settings of which cells failed or did not run, with how many.
    unreadable_first, unreadable_second: why files of either run cannot be read.
    """

    first: str
    second: str
    differences: tuple[Difference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    unfinished_first: tuple[str, ...] = ()
    unfinished_second: tuple[str, ...] = ()
    unreadable_first: tuple[str, ...] = ()
    unreadable_second: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_folders(first: Path, second: Path) -> Comparison:
    """Compare two runs.

    Raises:
        FglauditError: a folder is not that of a run, or the runs have no setting in common.
    """
    a, b = load_run(first), load_run(second)
    here, there = by_setting(a.cells), by_setting(b.cells)
    common = [key for key in here if key in there]
    if not common:
        raise FglauditError(
            f"two runs are compared over settings that both have; {first} has {len(here)} and {second} {len(there)},"
            " none in common; run the same suite twice, or one that shares data, partition, protocol and defense (to"
            " see what a defense changes, list none and the defense in one suite: its report has them side by side)"
        )
    labels = Labels.of([*summarize(a), *summarize(b)])
    found: list[Difference] = []
    for key in common:
        found += _setting(*_paired(a, here[key], b, there[key]), labels, len(common))

    def only(run: Run, mine: dict[str, list[CellRecord]], other: dict[str, list[CellRecord]]) -> tuple[str, ...]:
        left = tuple(record for key, records in mine.items() if key not in other for record in records)
        return tuple(labels.placed(s) for s in summarize(replace(run, cells=left)))

    return Comparison(
        str(first),
        str(second),
        tuple(found),
        only(a, here, there),
        only(b, there, here),
        _unfinished(a, here, labels),
        _unfinished(b, there, labels),
        *(tuple(f"{bad.file}: {bad.reason}" for bad in run.unreadable) for run in (a, b)),
    )


def _finished(record: CellRecord) -> bool:
    """Whether anything of the cell is a result: of one that failed or did not run every row is failed."""
    return any(finding.status is not Status.FAILED for finding in record.findings)


def _unfinished(run: Run, groups: dict[str, list[CellRecord]], labels: Labels) -> tuple[str, ...]:
    """Return the settings with cells that did not finish, in words."""
    found = []
    for records in groups.values():
        lost = sum(not _finished(record) for record in records)
        if lost:
            [setting] = summarize(replace(run, cells=tuple(records)))
            found.append(f"{labels.placed(setting)}: {lost} of {plural(len(records), 'cell')}")
    return tuple(found)


def _paired(a: Run, first: Sequence[CellRecord], b: Run, second: Sequence[CellRecord]) -> tuple[Setting, Setting, int]:
    """Return the setting in both runs, over the seeds that both finished if there are any, and how many those are.
    Cells of one seed need not have one name: who attacks, and whether guarantees are audited, may differ.

    A run that finished none of them keeps all, so that its word is that of what failed.
    """
    mine, theirs = (list(filter(_finished, records)) or list(records) for records in (first, second))
    both = {r.seed for r in mine if _finished(r)} & {r.seed for r in theirs if _finished(r)}
    if both:
        mine, theirs = ([record for record in records if record.seed in both] for records in (mine, theirs))
    [one] = summarize(replace(a, cells=tuple(mine)))
    [other] = summarize(replace(b, cells=tuple(theirs)))
    return one, other, len(both)


def _setting(first: Setting, second: Setting, paired: int, labels: Labels, settings: int) -> list[Difference]:
    name = labels.placed(first)
    found = [_accuracy(name, first, second, paired, settings)]
    there = {(answer.observer, answer.quantity): answer for answer in answers([second])}
    for answer in answers([first]):
        other = there.pop((answer.observer, answer.quantity), None)
        if answer.applies or (other is not None and other.applies):
            found.append(_learned(name, answer, other, paired))
    found += [_learned(name, None, answer, paired) for answer in there.values() if answer.applies]
    return [difference for difference in found if difference is not None]


def _learned(name: str, first: Answer | None, second: Answer | None, paired: int) -> Difference:
    some = first or second
    assert some is not None
    words = tuple("not in this run" if a is None else a.word.value for a in (first, second))
    one, other = (None if a is None else a.leak for a in (first, second))
    moved = first is not None and second is not None and words[0] != words[1]
    if one is None or other is None:
        same = one is None and other is None
        change, text = (Change.UNTESTED if same else Change.UNKNOWN), f"{words[0]}, then {words[1]}"
    else:
        change = by_intervals(one.estimate, other.estimate)
        named = one.metric != other.metric and one.attack != other.attack
        by = [f"{achieved(leak)}{f' ({leak.attack})' if named else ''}" for leak in (one, other)]
        text = f"{by[0]}, then {by[1]}; advantage {decimal(one.advantage)}, then {decimal(other.advantage)}"
        if change is Change.UNKNOWN:
            text += f"; {TOO_FEW} to tell that from chance"
        if moved:
            text = f"{words[0]}, then {words[1]}: {text}"
    if moved and change in (Change.UNKNOWN, Change.EQUAL):
        change = Change.ANSWER
    return Difference(
        setting=name,
        observer=observer_label(some.observer),
        quantity=quantity_name(some.quantity),
        change=change,
        paired=paired,
        first=None if one is None else one.advantage,
        second=None if other is None else other.advantage,
        words=(words[0], words[1]),
        text=text.replace(THIN, " "),
    )


def by_intervals(first: Interval, second: Interval) -> Change:
    """Return whether an advantage changed by more than its intervals allow for."""
    if (first.value, first.low, first.high) == (second.value, second.low, second.high):
        return Change.EQUAL
    if not (first.shown and second.shown):
        return Change.UNKNOWN
    assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
    # Below a guess nothing is learned, however far: an attack that is confused in another way is no change.
    one_low, one_high, low, high = (max(end, 0.0) for end in (first.low, first.high, second.low, second.high))
    return Change.BETTER if high < one_low else Change.WORSE if low > one_high else Change.NOISE


def _accuracy(name: str, first: Setting, second: Setting, paired: int, settings: int) -> Difference:
    """Compare accuracies seed by seed where cells are paired, else their means."""
    one, other = first.per_seed("accuracy"), second.per_seed("accuracy")
    a, b = mean(one), mean(other)
    if a is None or b is None:
        change = Change.UNTESTED if a is None and b is None else Change.UNKNOWN
    elif one == other:
        change = Change.EQUAL
    else:
        change = beyond_spread(one, other, paired=bool(paired) and len(one) == len(other), settings=settings)
    return Difference(
        name, "", "accuracy", change, paired, a, b, ("", ""),
        f"{percent(a)}, then {percent(b)}".replace(THIN, " "),
    )  # fmt: skip


def beyond_spread(one: Sequence[float], other: Sequence[float], *, paired: bool, settings: int = 1) -> Change:
    """Whether means differ, by Student's t at 5 % over all ``settings`` (Bonferroni); not to be told with one seed."""
    fewest = min(len(one), len(other))
    if fewest < 2:
        return Change.NOISE
    change = statistics.fmean(other) - statistics.fmean(one)
    parts = [[y - x for x, y in zip(one, other, strict=True)]] if paired else [one, other]
    error = math.sqrt(sum(statistics.variance(part) / len(part) for part in parts))
    # As many degrees of freedom as the smaller side has: of two sides with other spreads it is no more.
    if abs(change) <= float(student.isf((1 - CONFIDENCE) / 2 / settings, fewest - 1)) * error:
        return Change.NOISE
    return Change.BETTER if change > 0 else Change.WORSE
