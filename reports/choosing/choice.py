"""Which settings a run would choose, and what fresh seeds say of them.

The best of many settings is partly the luckiest. So it is called good only after it was run again, unchanged, on seeds
that took no part in the choice: ``fglaudit run SUITE --confirm N`` does that, in the folder ``confirmed`` of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from fglaudit.reports.achieved import why_so
from fglaudit.reports.answers import Answer, AnswerWord, answers, applies
from fglaudit.reports.choosing.options import is_option
from fglaudit.reports.labels import place
from fglaudit.reports.leaks import FEATURES, NEGLIGIBLE
from fglaudit.reports.numbers import seeds_words
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting, summarize

CHOSEN = "chosen on these seeds; confirm on fresh ones"
"""Said of whatever is the best of several, as long as no fresh seeds were asked."""
Observer = tuple[str, str]
"""Parties and knowledge."""
_GRAVEST_FIRST = (AnswerWord.LEAKS, AnswerWord.NOT_SHOWN, AnswerWord.NOT_TESTED, AnswerWord.HELD)


@dataclass(frozen=True)
class Confirmations:
    """Settings that were run again on fresh seeds, by :func:`fglaudit.reports.summary.setting_key`."""

    settings: Mapping[str, Setting]

    @staticmethod
    def of(run: Run) -> Confirmations:
        """Return those that the folder of ``run`` holds; of a setting confirmed twice, that of more seeds."""
        again = [setting for other in run.confirmed for setting in summarize(other)]
        again.sort(key=lambda setting: len(setting.seeds))
        return Confirmations({setting.key: setting for setting in again})

    def words(self, setting: Setting, observer: Observer | None = None) -> str:
        """Return what fresh seeds say of a setting that was chosen, of all observers or of one; without any, that it
        was merely chosen."""
        again = self.settings.get(setting.key)
        if again is None:
            return CHOSEN
        seeds = f"fresh {seeds_words(again.seeds)}"
        worst = min(_on_features(again, observer), key=lambda a: _GRAVEST_FIRST.index(a.word), default=None)
        if worst is None:
            return f"{CHOSEN}: {seeds} have no result on features"
        shown = f", {again.spread()} accuracy" if again.per_seed("accuracy") else ""
        if worst.word is AnswerWord.HELD:
            return f"confirmed on {seeds}: no attack on features succeeded there either{shown}"
        return f"not confirmed on {seeds}: {worst.word}, {why_so(worst)}{shown}"


def chosen(settings: Sequence[Setting], against: Observer | None = None) -> list[Setting]:
    """Return, per place and protocol, the setting of highest accuracy under which no attack on features succeeded; and,
    where it is another one, that of highest accuracy under which none was ahead of its guess, on however few parties.

    Args:
        against: one observer. By default all of them together, and each alone: what holds against a server need not
            hold against a client.
    """
    result: dict[str, Setting] = {}
    groups: dict[tuple[str, str, str], list[Setting]] = {}
    for setting in settings:
        if is_option(setting) and applies(setting) and setting.per_seed("accuracy"):
            key = (place(setting), setting.first.protocol, setting.first.protocol_args)
            groups.setdefault(key, []).append(setting)
    for mine in groups.values():
        observers = (None, *dict.fromkeys(answer.observer for answer in answers(mine)))
        for observer in observers if against is None else (against,):
            held = max((s for s in mine if _held(s, observer)), key=attrgetter("accuracy"), default=None)
            open_ = max((s for s in mine if _open(s, observer)), key=attrgetter("accuracy"), default=None)
            if open_ is not None and held is not None and open_.accuracy <= held.accuracy:
                open_ = None
            result |= {s.key: s for s in (held, open_) if s is not None}
    return list(result.values())


def seeds_for(setting: Setting, least: int) -> int:
    """Return how many fresh seeds a verdict on ``setting`` takes without a single hit, and ``least`` at the least."""
    needs = [leak.needs for answer in _on_features(setting) for leak in answer.leaks]
    return max([least, *(need.seeds for need in needs if need is not None and need.seeds is not None)])


def _on_features(setting: Setting, observer: Observer | None = None) -> list[Answer]:
    found = [answer for answer in answers([setting]) if answer.quantity == FEATURES]
    return [answer for answer in found if observer is None or answer.observer == observer]


def _held(setting: Setting, observer: Observer | None) -> bool:
    found = _on_features(setting, observer)
    return bool(found) and all(answer.word is AnswerWord.HELD for answer in found)


def _open(setting: Setting, observer: Observer | None) -> bool:
    """Whether more parties alone may show that nothing leaks: all attacks that can tell are not ahead."""
    found = _on_features(setting, observer)
    return bool(found) and all(
        answer.word is AnswerWord.HELD
        or (
            answer.word is AnswerWord.NOT_SHOWN
            and any(leak.reassures for leak in answer.leaks)
            and all((leak.advantage or 0.0) <= NEGLIGIBLE for leak in answer.leaks if leak.measured)
        )
        for answer in found
    )
