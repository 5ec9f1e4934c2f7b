"""The table of answers: one row per setting that could be run, one column per observer, the word of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.finding import Status
from fglaudit.reports.achieved import in_words
from fglaudit.reports.answers import Answer, AnswerWord, answers, applies
from fglaudit.reports.choosing.accuracy_gains import accuracy_words, beside, chance, gains
from fglaudit.reports.choosing.options import is_option
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES, mean
from fglaudit.reports.numbers import decimal, interval, plural
from fglaudit.reports.summary import Setting
from fglaudit.reports.wording.names import metric_name, quantity_name
from fglaudit.scoring.clusters import TOO_FEW

MOST_REASONS = 3


@dataclass(frozen=True)
class AnswerCell:
    """What one observer learns in one setting.

    Attributes:
        main: of feature rows; where nothing is asked about them, of the first other quantity.
        text: its figures or reason.
        others: names of further quantities by word, e.g. {"leaks": ("labels",)}.
    """

    observer: tuple[str, str]
    main: Answer
    text: str
    others: dict[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerRow:
    """One setting; ``chance`` and ``bought`` are of :mod:`fglaudit.reports.choosing.accuracy_gains`."""

    setting: Setting
    protocol: str
    defense: str
    accuracy: float | None
    accuracy_text: str
    cells: tuple[AnswerCell | None, ...]
    option: bool
    chance: float | None
    bought: str


def answer_rows(settings: Sequence[Setting], labels: Labels, observers: Sequence[tuple[str, str]]) -> list[AnswerRow]:
    """Return the rows of the settings that could be run, in their order."""
    rows, found = [], gains(settings, labels)
    for setting in settings:
        if not applies(setting):
            continue
        by_observer: dict[tuple[str, str], list[Answer]] = {}
        for answer in answers([setting]):
            by_observer.setdefault(answer.observer, []).append(answer)
        values = setting.per_seed("accuracy")
        cells = tuple(_cell(observer, by_observer[observer]) if observer in by_observer else None
                      for observer in observers)  # fmt: skip
        rows.append(
            AnswerRow(
                setting,
                labels.protocol(setting),
                labels.defense(setting),
                mean(values),
                accuracy_words(setting),
                cells,
                is_option(setting),
                chance(setting),
                beside(setting, found),
            )
        )
    return rows


def _cell(observer: tuple[str, str], mine: Sequence[Answer]) -> AnswerCell:
    """Features if anything is said of them, else what was measured."""
    main = next((a for a in mine if a.quantity == FEATURES), mine[0])
    others: dict[str, tuple[str, ...]] = {}
    for answer in mine:
        if answer is not main:
            name = quantity_name(answer.quantity)
            others[answer.word.value] = (*others.get(answer.word.value, ()), name)
    ordered: dict[str, tuple[str, ...]] = {str(word): others[word] for word in AnswerWord if word in others}
    return AnswerCell(observer, main, in_words(main), ordered, tuple(_notes(main, mine)))


def _notes(main: Answer, mine: Sequence[Answer]) -> list[str]:
    """How sure the figures are, and what did not count."""
    notes = []
    leak = main.leak
    if leak is not None:
        words = f"{leak.attack}; advantage in {metric_name(leak.metric)} {decimal(leak.advantage)}"
        if leak.low is not None:
            words += f", {'95 %' if leak.estimate.shown else f'{TOO_FEW}: range'} {interval(leak.low, leak.high)}"
        notes.append(words)
        if leak.worst_client is not None:
            notes.append(f"worst client: advantage {decimal(leak.worst_client)}")
    tried = [each for answer in mine for each in answer.leaks]
    for word in ("not run", "failed", "broken"):
        if number := sum(each.failures[word] for each in tried):
            notes.append(f"{number} {word}")
    if leak is not None and (idle := sum(each.status is Status.NOT_APPLICABLE for each in tried)):
        notes.append(f"{idle} of {plural(len(tried), 'attack')} not applicable")
    return notes


@dataclass(frozen=True)
class Idle:
    """Rows of one protocol and defense to which attacks, or the defense itself, did not apply."""

    setting: str
    rows: int
    reasons: tuple[str, ...]
    more: int
    trained: bool


def idle_lines(settings: Sequence[Setting], labels: Labels) -> list[Idle]:
    """Return one line per protocol x defense; ``coverage.csv`` has every row."""
    found: dict[tuple[str, bool], dict[str, int]] = {}
    for setting in settings:
        trained = applies(setting)
        for leak in setting.leaks:
            for finding in leak.findings:
                if finding.status is Status.NOT_APPLICABLE:
                    reasons = found.setdefault((labels.placed(setting), trained), {})
                    said = finding.reason or "no reason recorded"
                    reasons[said] = reasons.get(said, 0) + 1
    lines = []
    for (name, trained), reasons in found.items():
        ordered = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
        shown, more = tuple(ordered[:MOST_REASONS]), max(0, len(ordered) - MOST_REASONS)
        lines.append(Idle(name, sum(reasons.values()), shown, more, trained))
    return lines
