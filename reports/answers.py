"""One word per setting, observer and quantity: leaks, held, not shown or not tested; with its reason and its row.

Everything that judges a run reads these: the console, the report, ``fglaudit compare`` and the gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fglaudit.finding import OTHERS, UNSTATED, Cause, Status
from fglaudit.parties import HONEST
from fglaudit.reports.alarms import unchecked, unknown_payloads, unstated_fields
from fglaudit.reports.leaks import FEATURES, NEGLIGIBLE, Leak, Parties, reach, says_most
from fglaudit.reports.numbers import against, count, decimal, plural
from fglaudit.reports.summary import Setting
from fglaudit.scoring.clusters import TOO_FEW


class AnswerWord(StrEnum):
    """What is said of one observer and quantity in one setting."""

    LEAKS = "leaks"  # an attack got something: one of the grounds of reports.leaks
    HELD = "held"  # every attack that can show the contrary ends at a negligible advantage
    NOT_SHOWN = "not shown"  # measured, but neither of both
    NOT_TESTED = "not tested"  # nothing was measured


@dataclass(frozen=True)
class Answer:
    """What one observer learns of one quantity in one setting.

    Attributes:
        observer: parties and knowledge.
        quantity: "features" or a name of ``fglaudit.quantities.QUANTITIES``.
        leak: the row that the word rests on, of which figures are shown; None if nothing was measured.
        reason: why the word is not "leaks" or "held"; for "leaks" the grounds.
        leaks: every attack of this observer on this quantity, whatever came of it.
        applies: False where the defense cannot serve the protocol: nothing was trained, so there is nothing to protect.
    """

    setting: Setting
    observer: tuple[str, str]
    quantity: str
    word: AnswerWord
    leak: Leak | None
    reason: str
    leaks: tuple[Leak, ...]
    applies: bool = True

    @property
    def asks_nobody(self) -> bool:
        """Whether there is no row of anybody that the observer could be asked of, though the setting was run."""
        causes = {finding.cause for leak in self.leaks for finding in leak.findings}
        return self.applies and causes == {Cause.NO_ROW}


def applies(setting: Setting) -> bool:
    """Whether the setting could be run: of one that could not, every row is not applicable and no accuracy is known."""
    rows = [finding for leak in setting.leaks for finding in leak.findings]
    return any(f.status is not Status.NOT_APPLICABLE or f.accuracy is not None for f in rows)


def idle_words(settings: Iterable[Setting], of: str = "") -> str:
    """Return how many of ``settings`` could not be run, and why, in words; nothing where all could: they stand in no
    table of answers, so they are counted apart from those that do."""
    idle = [setting for setting in settings if not applies(setting)]
    if not idle:
        return ""
    active = any(setting.first.server not in ("", HONEST) for setting in idle)
    who = "the defense or the server's behaviour" if active else "the defense"
    return f"{plural(len(idle), f'{of}setting')} not run: {who} does not serve the protocol"


def answers(settings: Iterable[Setting]) -> list[Answer]:
    """Return the answers of every setting, in order: by observer, features before other quantities."""
    return [answer for setting in settings for answer in _of(setting)]


def _of(setting: Setting) -> list[Answer]:
    families: dict[tuple[tuple[str, str], str], list[Leak]] = {}
    for leak in setting.leaks:
        if leak.observer[0]:
            families.setdefault((leak.observer, leak.quantity), []).append(leak)
    seen = list(dict.fromkeys(observer for observer, _ in families))
    ordered = sorted(families, key=lambda key: (seen.index(key[0]), key[1] != FEATURES))
    could = applies(setting)
    result = []
    for observer, quantity in ordered:
        tried = tuple(families[observer, quantity])
        word, shown, reason = judge(tried, not_all(setting, observer))
        if word is AnswerWord.NOT_TESTED:  # that nothing reaches an observer is the protocol's own word
            reason = unchecked(setting) or reason
        result.append(Answer(setting, observer, quantity, word, shown, reason, tried, could))
    return result


def judge(tried: Sequence[Leak], doubt: str = "") -> tuple[AnswerWord, Leak | None, str]:
    """Return the word for attacks of one observer on one quantity, the row that it rests on, and why.

    Args:
        doubt: why no attack of this observer can tell that nothing leaks, if so.
    """
    measured = [leak for leak in tried if leak.measured]
    if found := [leak for leak in measured if leak.grounds]:
        worst = max(found, key=says_most)
        return AnswerWord.LEAKS, worst, " and ".join(worst.grounds)
    if not measured:
        return AnswerWord.NOT_TESTED, None, _why_untested(tried)
    able = [leak for leak in measured if leak.reassures]
    if not able:
        return AnswerWord.NOT_SHOWN, max(measured, key=says_most), _why_unable(measured)
    ahead = [leak for leak in measured if leak.ahead]
    open_ = ahead or [leak for leak in able if not leak.held]
    if open_:
        widest = max(open_, key=reach)
        return AnswerWord.NOT_SHOWN, widest, _why_open(widest)
    widest = max(able, key=reach)
    if reason := _lost(tried) or doubt:
        return AnswerWord.NOT_SHOWN, widest, reason
    once = "" if len(widest.scored) > 1 else ", in the one training"
    return (
        AnswerWord.HELD,
        widest,
        f"every attack that can show a leak has an upper end of {NEGLIGIBLE:g} at most{once}",
    )


def not_all(setting: Setting, observer: tuple[str, str]) -> str:
    """Say why what attacks could read is not all that ``observer`` was sent as they know it; empty if it is.

    Rows on any quantity count: what is done to a message unstated may hide features from the attacks on features.
    """
    if why := unchecked(setting):
        return why
    rows = any(UNSTATED in leak.unadapted for leak in setting.leaks if leak.observer == observer)
    if rows or unstated_fields(setting, observer[0]):  # no attack of the suite may read the field in question
        return "something is done to messages or training that is not stated"
    unread = unknown_payloads(setting, observer[0])
    return f"nobody read {', '.join(unread)}: no attack here knows it" if unread else ""


def _lost(tried: Sequence[Leak]) -> str:
    """Say which of the attacks gave nothing because something went wrong, or has not run yet; empty if none."""
    unrun, failed, broken = (sum(numbers) for numbers in zip(*(leak.failures.values() for leak in tried), strict=True))
    return " and ".join(
        filter(
            None,
            (
                f"{plural(unrun, 'row')} not run yet" if unrun else "",
                f"{plural(failed, 'row')} failed" if failed else "",
                f"{plural(broken, 'row')} from attacks that failed their self-test" if broken else "",
            ),
        )
    )


def _why_untested(tried: Sequence[Leak]) -> str:
    if lost := _lost(tried):
        return lost
    if any(leak.uninformative for leak in tried):
        return "a guess alone is right already"
    said = Counter(reason for leak in tried for reason in leak.reasons)
    return said.most_common(1)[0][0] if said else "no attack here applies"


def _why_unable(measured: Sequence[Leak]) -> str:
    if facts := not_allowed_for(measured):
        return f"the attacks here are not adapted to {', '.join(facts)}"
    return f"the attacks here {below_or_unseen(measured)}"


def not_allowed_for(measured: Sequence[Leak]) -> tuple[str, ...]:
    """Return what was done to the messages that attacks do not allow for."""
    return tuple(dict.fromkeys(name for leak in measured for name in leak.unadapted if name != OTHERS))


def below_or_unseen(measured: Sequence[Leak]) -> str:
    """Say what attacks that are adapted do, and that still cannot show that nothing leaks."""
    here = [leak for leak in measured if OTHERS not in leak.unadapted]
    if measured and not here:
        return "are no part of fglaudit: they may show a leak, never its absence"
    measured = here
    if all((leak.high or 0.0) < 0 for leak in measured):
        return "do worse than guesses, so they are confused"
    return f"were not seen to work through this defense{_raised(measured)}"


def _raised(measured: Sequence[Leak]) -> str:
    """Say what was raised where attacks were asked whether they work through the defense; empty if nothing was."""
    said = [f"{leak.attack}: {reason}" for leak in measured for reason in leak.raised]
    return f" ({'; '.join(said)})" if said else ""


def _why_open(leak: Leak) -> str:
    """Say why a row neither shows a leak nor that there is none."""
    if leak.unadapted:
        return f"{leak.attack} gets ahead of a guess by {decimal(leak.advantage)}, which is not told from chance"
    if leak.ahead and (few := leak.for_an_interval) is not None:  # what "held" takes is no question any more
        return f"{leak.attack} is ahead of a guess by {decimal(leak.advantage)}, {_shortage(few, leak, 'an interval')}"
    needs = leak.needs
    if needs is not None and needs.too_few and not leak.ahead:
        return _shortage(needs, leak)
    if not leak.estimate.shown:
        return f"{TOO_FEW} for an interval"
    if leak.high is not None and leak.high <= NEGLIGIBLE:
        return f"the attacks here were not seen to work through this defense{_raised([leak])}"
    if leak.ahead:
        ahead, ends = decimal(leak.advantage), f"{decimal(leak.low)} to {decimal(leak.high)}"
        alone = (leak.low or 0.0) > 0
        chance = f"chance{' among so many attacks' if alone else ''}: the interval{' of it alone' if alone else ''} is"
        return f"{leak.attack} gets ahead of a guess by {ahead}, which is not told from {chance} {ends}"
    return f"the interval reaches {against(leak.high, NEGLIGIBLE)}, above {NEGLIGIBLE:g}"


def _shortage(needs: Parties, leak: Leak, purpose: str = "") -> str:
    """Say how many parties there are, how many it takes and how many more seeds give them."""
    what = f"{TOO_FEW} for {purpose}" if purpose else TOO_FEW
    has = f"{what}: {plural(needs.has, 'client x seed', 'clients x seeds')}, {count(needs.need)} needed"
    if needs.seeds is None:
        return f"{has}; further seeds bring no further clients"
    return f"{has}; {plural(needs.more(len(leak.scored)), 'more seed')} would do"
