"""The tables of the console: what observers learn of feature rows in every setting, and what else they learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fglaudit.errors import printable
from fglaudit.reports.achieved import briefly
from fglaudit.reports.answers import Answer, AnswerWord
from fglaudit.reports.choosing.accuracy_gains import accuracy_words, chance, costs_nothing, gains
from fglaudit.reports.choosing.controls import Bought
from fglaudit.reports.choosing.options import is_option
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES, Leak, says_most
from fglaudit.reports.numbers import MISSING, THIN, few, percent, plural
from fglaudit.reports.summary import Setting
from fglaudit.reports.wording.names import quantity_name
from fglaudit.reports.wording.observers import observer_label

MOST = 16
"""Settings of one table; the rest is counted, and stands in the report."""
NARROW = 60
"""Columns of a terminal below which tables are printed as lines."""
MOST_REASONS = 4
"""Why other quantities are not shown to leak; the rest is counted."""
MOST_OBSERVERS = 4
"""Beside each other; the next ones get a table of their own."""
STYLES = {
    AnswerWord.LEAKS: "bold red",
    AnswerWord.HELD: "green",
    AnswerWord.NOT_SHOWN: "yellow",
    AnswerWord.NOT_TESTED: "dim",
}
_WORST_FIRST = (AnswerWord.LEAKS, AnswerWord.NOT_SHOWN, AnswerWord.HELD)


@dataclass(frozen=True)
class Place:
    """What is shown of one data set and partition.

    Attributes:
        settings: those that could be run.
        answers: about them.
        bought: over what costs nothing, see :func:`fglaudit.reports.choosing.accuracy_gains.gains`.
    """

    settings: Sequence[Setting]
    answers: Sequence[Answer]
    labels: Labels
    bought: dict[str, Bought]

    @staticmethod
    def of(settings: Sequence[Setting], found: Sequence[Answer], labels: Labels) -> Place:
        """Return what is shown of ``settings``, of which ``found`` answers; others' answers are left out."""
        return Place(settings, [answer for answer in found if answer.applies], labels, gains(settings, labels))

    @property
    def observers(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(answer.observer for answer in self.answers))

    def feature_tables(self) -> Iterator[Table]:
        """Yield tables of settings by observers: the word about feature rows, and the figure that it rests on."""
        by_key = {(id(a.setting), a.observer): a for a in self.answers if a.quantity == FEATURES}
        for start in range(0, max(len(self.observers), 1), MOST_OBSERVERS):
            observers = self.observers[start : start + MOST_OBSERVERS]
            worth_columns = ["accuracy", "bought"] if start == 0 else []
            table = _table("feature rows", *worth_columns, *map(observer_label, observers))
            for setting in self.settings[:MOST]:
                cells = [_cell(by_key.get((id(setting), observer))) for observer in observers]
                worth = [self._accuracy(setting), self._worth(setting)] if start == 0 else []
                table.add_row(safe(self._name(setting)), *worth, *cells)
            if rest := self.settings[MOST:]:
                about = [[by_key.get((id(s), observer)) for s in rest] for observer in observers]
                counted = [_counted([answer for answer in column if answer is not None]) for column in about]
                more = f"and {plural(len(rest), 'more setting')}: see the report"
                table.add_row(more, *("" for _ in worth_columns), *counted)
            yield table

    def feature_notes(self) -> Iterator[str]:
        """Yield what figures are compared with, and why words about feature rows are neither "leaks" nor "held"."""
        levels = [level for setting in self.settings if (level := chance(setting)) is not None]
        controls = list(dict.fromkeys(gain.control for gain in self.bought.values()))
        if any(answer.leak is not None for answer in self.answers):
            yield "exact: every entry of a row is right and given to its node; in brackets: a guess without messages"
        if any(len(setting.per_seed("accuracy")) > 1 for setting in self.settings):
            yield "\N{PLUS-MINUS SIGN}: standard deviation over seeds"
        if levels:
            yield f"chance: {percent(levels[0])}, by always naming the largest class"
        if controls:
            seeds = ", one seed" if max(gain.seeds for gain in self.bought.values()) < 2 else ""
            yield (
                f"bought: points above {' or '.join(controls)}, the best here that sends no feature but in models, with"
                f" 95 % intervals{seeds}"
            )
        reasons: dict[tuple[AnswerWord, str], list[Answer]] = {}
        for answer in self.answers:
            if answer.quantity == FEATURES and answer.word in (AnswerWord.NOT_SHOWN, AnswerWord.NOT_TESTED):
                reasons.setdefault((answer.word, answer.reason), []).append(answer)
        for (word, reason), same in reasons.items():
            yield f"{word.value}: {reason} ({self._of(same)})"

    def other_table(self) -> Table | None:
        """Return quantities by observers: the worst word of any setting, in how many, and the most that one leaks."""
        others = [answer for answer in self.answers if answer.quantity != FEATURES]
        measured = sorted({answer.quantity for answer in others if answer.leak is not None}, key=quantity_name)
        if not measured:
            return None
        table = _table("besides, in any setting", *map(observer_label, self.observers))
        for quantity in measured:
            mine = [
                [answer for answer in others if answer.quantity == quantity and answer.observer == observer]
                for observer in self.observers
            ]
            table.add_row(safe(quantity_name(quantity)), *map(_worst, mine))
        return table

    def other_notes(self) -> Iterator[str]:
        """Yield why the words of :meth:`other_table` are "not shown", each for the row whose figure stands there."""
        reasons: dict[str, list[str]] = {}
        for quantity, observer in dict.fromkeys((a.quantity, a.observer) for a in self.answers):
            mine = [a for a in self.answers if (a.quantity, a.observer) == (quantity, observer)]
            worst, most = _worst_of(mine)
            if quantity != FEATURES and worst is AnswerWord.NOT_SHOWN:
                (reason, *_) = (a.reason for a in mine if a.leak is most)
                reasons.setdefault(reason, []).append(f"{observer_label(observer)}: {quantity_name(quantity)}")
        for reason, names in list(reasons.items())[:MOST_REASONS]:
            yield f"{AnswerWord.NOT_SHOWN.value}: {reason} ({'; '.join(names)})"
        if (more := len(reasons) - MOST_REASONS) > 0:
            yield f"{AnswerWord.NOT_SHOWN.value}: {plural(more, 'more reason')}: see the report"

    def untried(self) -> list[str]:
        """Return the names of other quantities of which nobody measured anything."""
        tried = {answer.quantity for answer in self.answers if answer.leak is not None} | {FEATURES}
        return sorted({quantity_name(answer.quantity) for answer in self.answers if answer.quantity not in tried})

    def _name(self, setting: Setting) -> str:
        return self.labels.protocol(setting) if setting.undefended else self.labels.setting(setting)

    def _accuracy(self, setting: Setting) -> str:
        return safe(accuracy_words(setting))

    def _worth(self, setting: Setting) -> str:
        if costs_nothing(setting):
            return "control"
        if not is_option(setting):
            return "upper bound"
        gain = self.bought.get(setting.key)
        if gain is None:
            return MISSING
        return f"{gain.points}{gain.verdict}"

    def _of(self, same: Sequence[Answer]) -> str:
        """Name the settings of answers, and the observers where these are not all."""
        names = few(dict.fromkeys(self._name(answer.setting) for answer in same), 4, "; ")
        observers = dict.fromkeys(answer.observer for answer in same)
        if len(observers) == len(self.observers):
            return names
        return f"{few([observer_label(observer) for observer in observers], 4, '; ')}: {names}"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for name in columns:
        table.add_column(safe(name), overflow="fold", justify="right" if name == "accuracy" else "left")
    return table


def lines_of(table: Table) -> Iterator[str]:
    """Yield the cells of ``table`` below each other, for terminals in which its columns would be a few letters wide."""
    heads = [column.header for column in table.columns[1:]]
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        yield str(name)
        yield from (f"  {head}: {cell}" for head, cell in zip(heads, cells, strict=True) if cell)


def _cell(answer: Answer | None) -> str:
    if answer is None:
        return MISSING
    figure = "" if answer.leak is None else f" {safe(briefly(answer.leak))}"
    return f"{_styled(answer.word)}{figure}"


def _counted(found: Sequence[Answer]) -> str:
    words = Counter(answer.word for answer in found)
    return ", ".join(f"{count} {word.value}" for word, count in words.items())


def _worst(found: Sequence[Answer]) -> str:
    """Return the worst word about one observer and quantity over settings, with the most that an attack got there."""
    word, most = _worst_of(found)
    if word is None or most is None:
        return MISSING
    same = [answer for answer in found if answer.word is word and answer.leak is not None]
    return f"{_styled(word)} in {len(same)} of {len(found)}: {safe(briefly(most))}"


def _worst_of(found: Sequence[Answer]) -> tuple[AnswerWord | None, Leak | None]:
    """Return the worst word about one observer and quantity over settings, and the row that says most there."""
    for word in _WORST_FIRST:
        if leaks := [answer.leak for answer in found if answer.word is word and answer.leak is not None]:
            return word, max(leaks, key=says_most)
    return None, None


def _styled(word: AnswerWord) -> str:
    return f"[{STYLES[word]}]{word.upper()}[/{STYLES[word]}]"


def safe(text: str) -> str:
    """Return ``text`` as a console prints it: no markup, no control characters, plain spaces."""
    return escape(printable(text.replace(THIN, " ")))
