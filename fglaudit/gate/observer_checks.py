"""Is what a policy asks of one observer and quantity shown in every setting? Those that leak are named first, then all
others in which it is not shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fglaudit.gate.check import Check
from fglaudit.gate.naming import name_all, name_one
from fglaudit.gate.policy import Want
from fglaudit.gate.upper_ends import UpperEnd, upper_end
from fglaudit.reports.achieved import why_so
from fglaudit.reports.answers import Answer, AnswerWord
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import THIN, against
from fglaudit.reports.summary import Setting

_ORDER = list(AnswerWord)
Trouble = tuple[AnswerWord, str, Setting]
"""What is wrong in a setting: the word, why, and the setting."""


def observer_checks(
    name: str, quantity: str, want: Want, asked: Sequence[Answer], trained: Sequence[Setting], labels: Labels
) -> Iterable[Check]:
    """Yield the checks of ``want`` on the answers ``asked`` about the ``trained`` settings."""
    untested: list[Trouble] = [
        (AnswerWord.NOT_TESTED, "no attack of this suite asks that", setting)
        for setting in trained
        if not any(answer.setting is setting for answer in asked)
    ]
    ends = [(answer, upper_end(answer)) for answer in asked]
    if want.advantage_high is not None:
        yield _advantage(f"{name} {quantity} advantage_high", want.advantage_high, ends, untested, labels)
    if want.verdict is not None:
        yield _held(f"{name} {quantity} verdict", ends, untested, labels)


def _advantage(
    name: str, most: float, ends: Sequence[tuple[Answer, UpperEnd]], untested: Sequence[Trouble], labels: Labels
) -> Check:
    wanted = f"at most {most:g}"
    above = sorted(
        ((answer, end) for answer, end in ends if end.high is not None and end.high > most),
        key=lambda pair: -(pair[1].high or 0.0),
    )
    open_ = [
        (*(_trouble(answer, end) if answer.word is AnswerWord.LEAKS else (_word(answer), end.why_not)), answer.setting)
        for answer, end in ends
        if end.why_not and (end.high or 0.0) <= most
    ]
    if said := [*(_figure(answer, end, most, labels) for answer, end in above), *_listed([*open_, *untested], labels)]:
        return Check(name, wanted, "; ".join(said), False)
    if not ends:
        return Check(name, wanted, _NOTHING, False)
    answer, end = max(ends, key=lambda pair: pair[1].high or 0.0)
    return Check(name, wanted, _figure(answer, end, most, labels), True)


def _held(name: str, ends: Sequence[tuple[Answer, UpperEnd]], untested: Sequence[Trouble], labels: Labels) -> Check:
    bad = [(*_trouble(answer, end), answer.setting) for answer, end in ends if not _holds(answer, end)]
    if said := _listed([*bad, *untested], labels):
        return Check(name, AnswerWord.HELD, "; ".join(said), False)
    return Check(name, AnswerWord.HELD, AnswerWord.HELD if ends else _NOTHING, bool(ends))


_NOTHING = "not tested: no setting of this run could be trained"


def _holds(answer: Answer, end: UpperEnd) -> bool:
    """Whether nothing leaks: attacks show it, or nothing that is not sealed or public reaches the observer."""
    needless = not any(leak.measured for leak in answer.leaks)
    return not end.why_not and (needless or answer.word is AnswerWord.HELD)


def _trouble(answer: Answer, end: UpperEnd) -> tuple[AnswerWord, str]:
    """Return the word of an answer that does not hold, and why, in a few words."""
    if answer.word is AnswerWord.LEAKS and answer.leak is not None:
        return AnswerWord.LEAKS, why_so(answer).replace(THIN, " ")
    return _word(answer), end.why_not if answer.word in (AnswerWord.HELD, AnswerWord.NOT_TESTED) else answer.reason


def _word(answer: Answer) -> AnswerWord:
    return AnswerWord.NOT_SHOWN if answer.word is AnswerWord.HELD else answer.word


def _figure(answer: Answer, end: UpperEnd, most: float, labels: Labels) -> str:
    notes = ", ".join(filter(None, (end.attack, end.note or end.why_not, name_one(answer.setting, labels))))
    return f"{against(end.high or 0.0, most)} ({notes})"


def _listed(troubles: Sequence[Trouble], labels: Labels) -> list[str]:
    """Say each reason once, with all settings it is said of; what leaks first."""
    groups: dict[tuple[AnswerWord, str], list[Setting]] = {}
    for word, why, setting in sorted(troubles, key=lambda trouble: _ORDER.index(trouble[0])):
        groups.setdefault((word, why), []).append(setting)
    return [f"{word}: {why} ({name_all(settings, labels)})" for (word, why), settings in groups.items()]
