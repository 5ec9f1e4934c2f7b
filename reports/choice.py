"""Which settings a run would choose, and what fresh seeds say of them.

The best of many settings is partly the luckiest. So it is called good only after it was run again, unchanged, on seeds
that took no part in the choice: ``fglaudit run SUITE --confirm N`` does that, in the folder ``confirmed`` of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fglaudit.reports.answers import Answer, Word, answers, applies
from fglaudit.reports.labels import place
from fglaudit.reports.leaks import FEATURES, NEGLIGIBLE, mean, sd
from fglaudit.reports.numbers import percent_spread
from fglaudit.reports.options import is_option
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting, setting_key, summarize

CHOSEN = "chosen on these seeds; confirm on fresh ones"
"""Said of whatever is the best of several, as long as no fresh seeds were asked."""
_GRAVEST_FIRST = (Word.LEAKS, Word.NOT_SHOWN, Word.NOT_TESTED, Word.HELD)


@dataclass(frozen=True)
class Confirmations:
    """Settings that were run again on fresh seeds, by :func:`fglaudit.reports.summary.setting_key`."""

    settings: Mapping[str, Setting]

    @staticmethod
    def of(run: Run) -> Confirmations:
        """Return those that the folder of ``run`` holds; of a setting confirmed twice, that of more seeds."""
        again = [setting for other in run.confirmed for setting in summarize(other)]
        again.sort(key=lambda setting: len(setting.seeds))
        return Confirmations({setting_key(setting.records[0]): setting for setting in again})

    def words(self, setting: Setting) -> str:
        """Return what fresh seeds say of a setting that was chosen; without any, that it was merely chosen."""
        again = self.settings.get(setting_key(setting.records[0]))
        if again is None:
            return CHOSEN
        seeds = f"fresh {'seed' if len(again.seeds) == 1 else 'seeds'} {_listed(again.seeds)}"
        found = [answer for answer in answers([again]) if answer.quantity == FEATURES]
        worst = min(found, key=lambda answer: _GRAVEST_FIRST.index(answer.word), default=None)
        if worst is None:
            return f"{CHOSEN}: {seeds} have no result on features"
        accuracy = again.per_seed("accuracy")
        shown = f", {percent_spread(accuracy, sd(accuracy))} accuracy" if accuracy else ""
        if worst.word is Word.HELD:
            return f"confirmed on {seeds}: no attack on features succeeded there either{shown}"
        return f"not confirmed on {seeds}: {worst.word}, {worst.reason}{shown}"


def chosen(settings: Sequence[Setting]) -> list[Setting]:
    """Return, per place and protocol, the setting of highest accuracy under which no attack on features succeeded; and,
    where it is another one, that of highest accuracy under which none was ahead of its guess, on however few parties.
    """
    result: list[Setting] = []
    groups: dict[tuple[str, str, str], list[Setting]] = {}
    for setting in settings:
        if is_option(setting) and applies(setting) and setting.per_seed("accuracy"):
            key = (place(setting), setting.first.protocol, setting.first.protocol_args)
            groups.setdefault(key, []).append(setting)
    for mine in groups.values():
        held = max(filter(_held, mine), key=_accuracy, default=None)
        open_ = max(filter(_open, mine), key=_accuracy, default=None)
        if held is not None:
            result.append(held)
        if open_ is not None and (held is None or _accuracy(open_) > _accuracy(held)):
            result.append(open_)
    return result


def seeds_for(setting: Setting, least: int) -> int:
    """Return how many fresh seeds a verdict on ``setting`` takes without a single hit, and ``least`` at the least."""
    needs = [leak.needs for answer in _on_features(setting) for leak in answer.leaks]
    return max([least, *(need.seeds for need in needs if need is not None and need.seeds is not None)])


def _on_features(setting: Setting) -> list[Answer]:
    return [answer for answer in answers([setting]) if answer.quantity == FEATURES]


def _held(setting: Setting) -> bool:
    found = _on_features(setting)
    return bool(found) and all(answer.word is Word.HELD for answer in found)


def _open(setting: Setting) -> bool:
    """Whether more parties alone may show that nothing leaks: all attacks that can tell are not ahead."""
    found = _on_features(setting)
    return bool(found) and all(
        answer.word is Word.HELD
        or (
            answer.word is Word.NOT_SHOWN
            and any(leak.reassures for leak in answer.leaks)
            and all((leak.advantage or 0.0) <= NEGLIGIBLE for leak in answer.leaks if leak.measured)
        )
        for answer in found
    )


def _accuracy(setting: Setting) -> float:
    return mean(setting.per_seed("accuracy")) or 0.0


def _listed(seeds: Sequence[int]) -> str:
    """``3`` or ``3 to 7``, or the seeds one by one where they do not follow one another."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))
