"""What an audit says of a plugin, a line at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fglaudit.auditing import Report
from fglaudit.errors import counted
from fglaudit.execution.exit_code import ExitCode
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.guarantees import AuditName, Outcome, Word
from fglaudit.reports.answers import Answer, AnswerWord, answers
from fglaudit.reports.leaks import FEATURES
from fglaudit.reports.numbers import THIN, decimal, interval, percent
from fglaudit.reports.records import Run
from fglaudit.reports.summary import summarize
from fglaudit.reports.wording.names import METRIC_NAMES, reading
from fglaudit.reports.wording.observers import observer_label
from fglaudit.testing.defenses import REFUTED


class Aside(NamedTuple):
    """What a line is about that only says what else an observer learns, beside features."""

    quantity: str
    observer: str
    leaks: bool


@dataclass(frozen=True)
class Line:
    """One line of the outcome.

    Attributes:
        code: not 0 where it names a fault.
        fault: that in a few words; empty: ``text`` says it.
        reader: where the fault is that an observer reads features, which one.
        refutes: whether it says that the guarantee is refuted.
        aside: set where nobody needs the line who wants the verdict alone.
    """

    text: str
    code: ExitCode = ExitCode.DONE
    fault: str = ""
    reader: str = ""
    refutes: bool = False
    aside: Aside | None = None


def brief(lines: Sequence[Line]) -> list[str]:
    """Return the outcome of a check for a reader: the verdict, what it rests on, features first, what leaks beside them
    in a line, and the verdict again, which is the last of ``lines``."""
    *found, verdict = (line for line in lines if line.aside is None)
    asides = [line.aside for line in lines if line.aside is not None]
    leaking: dict[str, list[str]] = {}
    for aside in asides:
        if aside.leaks:
            leaking.setdefault(aside.observer, []).append(aside.quantity)
    said = [f"beside features, this leaks to {observer}: {', '.join(names)}" for observer, names in leaking.items()]
    if asides:
        said.append(f"--verbose has the figures of {counted(len(asides), 'answer')} about other things than features")
    return [verdict.text, *(line.text for line in found), *said, verdict.text]


def of_attack(row: Finding) -> Line:
    """Return what an attack that is checked got."""
    who = _observer((row.observer, row.observer_knowledge))
    if row.status is Status.OK:
        figures = _score(row.metric, row.value, row.control)
        return Line(
            f"{who}, {row.quantity}: {figures}, {_advantage(row.advantage, row.advantage_low, row.advantage_high)}"
        )
    fault = ExitCode.DONE if row.status is Status.NOT_APPLICABLE else ExitCode.FAILED
    return Line(f"{who}: {row.status}: {row.reason}", fault)


def stronger(rows: Sequence[Finding], beside: Report) -> Iterator[Line]:
    """Say where an attack of this package gets more from the same messages than the checked one, whose ``rows`` these
    are: what that one finds nothing in is then no sign of protection."""
    for answer in answered(beside):
        if answer.word is not AnswerWord.LEAKS or answer.leak is None:
            continue
        mine = [
            row.advantage or 0.0
            for row in rows
            if row.status is Status.OK
            and (row.observer, row.observer_knowledge, row.quantity) == (*answer.observer, answer.quantity)
        ]
        if mine and (answer.leak.advantage or 0.0) > max(mine):
            yield Line(f"more is got from the same messages by an attack of this package: {answer_line(answer)}")


def answered(report: Report) -> list[Answer]:
    """Return the answers of an audit, by observer and quantity."""
    return answers(summarize(Run(report.name, report.records, planned=True)))


def compared(under: Report, without: Report) -> Iterator[Line]:
    """Say who still learns what, beside what is learned without the defense, and what that costs."""
    plain = {(answer.observer, answer.quantity): answer for answer in answered(without)}
    for answer in answered(under):
        before = plain.get((answer.observer, answer.quantity))
        if answer.quantity != FEATURES and answer.leak is None and (before is None or before.leak is None):
            continue  # nothing here asks that of this protocol, with or without the defense
        was = f"; without the defense: {_figure(before)}" if before is not None else ""
        read = answer.word is AnswerWord.LEAKS and answer.quantity == FEATURES
        text = f"{answer_line(answer)}{was}"
        yield Line(text, ExitCode.FAILED, reader=_observer(answer.observer)) if read else about(answer, text)
    accuracy, old = _accuracy(under.records), _accuracy(without.records)
    yield Line(_plain(f"accuracy {percent(accuracy)}; without the defense {percent(old)}"))


def about(answer: Answer, text: str) -> Line:
    """Return the line ``text`` about an answer, which is no fault: an aside unless it is about features."""
    who, leaks = _observer(answer.observer), answer.word is AnswerWord.LEAKS
    return Line(text, aside=None if answer.quantity == FEATURES else Aside(answer.quantity, who, leaks))


def answer_line(answer: Answer) -> str:
    """Return what became of one question, for one observer."""
    who = _observer(answer.observer)
    figure = f": {_figure(answer)}" if answer.leak is not None else ""
    reason = f" ({answer.reason})" if answer.word in (AnswerWord.NOT_SHOWN, AnswerWord.NOT_TESTED) else ""
    return f"{who}, {answer.quantity}: {answer.word}{figure}{reason}"


def _observer(observer: tuple[str, str]) -> str:
    label = observer_label(observer)
    return label[:1].lower() + label[1:]


def _figure(answer: Answer | None) -> str:
    leak = None if answer is None else answer.leak
    if leak is None:
        return "nothing was measured"
    score = _score(leak.metric, leak.mean("value"), leak.mean("control"))
    return f"{score} by {leak.attack}, {_advantage(leak.advantage, leak.low, leak.high)}"


def _score(metric: str, value: float | None, control: float | None) -> str:
    name = METRIC_NAMES.get(metric, metric)
    return _plain(f"{name} {reading(metric, value)} (a guess: {reading(metric, control)})")


def _advantage(value: float | None, low: float | None, high: float | None) -> str:
    reach = interval(low, high)
    return f"advantage {decimal(value)}{f' ({reach})' if reach else ''}"


def _plain(text: str) -> str:
    return text.replace(THIN, " ")


_HOW_TO_PROMISE = "; `guarantee()` of its session returns what is, see docs/tutorial-own-defense.md"


def guarantee_lines(records: Sequence[CellRecord]) -> Iterator[Line]:
    """Say what became of the guarantee: by the verdict of the records, else by the epsilon that replays showed."""
    first = records[0].findings[0]
    verdicts = [record.verdict for record in records if record.verdict is not None]
    if against := [why for record in records if (why := record.refuted) is not None]:
        yield Line(f"{REFUTED}{f': {against[0]}' if against[0] else ''}", ExitCode.REFUTED)
        return
    if verdicts:
        said = verdicts[0]
        by_author = said.claimed is not None and said.word is not Word.VERIFIED  # what was verified, its reason says
        promised = f", epsilon {said.claimed:.3g} by its author" if by_author else ""
        reason = f"{said.reason}{_HOW_TO_PROMISE}" if said.word is Word.NONE else said.reason
        yield Line(f"guarantee: {said.word}{promised}{f': {reason}' if reason else ''}")
    elif first.epsilon_claimed is not None or first.epsilon_accounted is not None:
        stated = first.epsilon_accounted if first.epsilon_accounted is not None else first.epsilon_claimed
        yield Line(f"guarantee: claimed: epsilon {stated:.3g} per {first.privacy_unit or 'no unit'}; not contradicted")
    else:
        yield Line(f"guarantee: none is promised{_HOW_TO_PROMISE}")


def unchecked(records: Sequence[CellRecord]) -> tuple[str, ...]:
    """Return why nothing that ``records`` say of their protocol can be believed, each reason once."""
    audits = [audit for record in records if record.verdict is not None for audit in record.verdict.audits]
    return tuple(
        dict.fromkeys(a.detail for a in audits if a.name is AuditName.PROTOCOL and a.outcome is not Outcome.PASSED)
    )


def failures(records: Sequence[CellRecord]) -> Iterator[Line]:
    """Name the attacks that failed, each with its reason."""
    lost = {f"{row.attack}: {row.reason}" for r in records for row in r.findings if row.status is Status.FAILED}
    for reason in sorted(lost):
        yield Line(f"failed: {reason}", ExitCode.FAILED, f"{reason.partition(':')[0]} failed")


def _accuracy(records: Sequence[CellRecord]) -> float | None:
    found = [next((f.accuracy for f in r.findings if f.accuracy is not None), None) for r in records]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None
