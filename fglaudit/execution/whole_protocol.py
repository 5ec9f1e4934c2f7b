"""What is said of everything together that one observer sees of a training: the last rows of ``guarantees.csv``.

It is "private" where the guarantee's epsilon, composed over all releases, was verified and every field that the
observer sees is covered by it, sealed, public or not seen to move: one field that nothing protects, and it is "open".
So it is under an epsilon or a delta that holds and bounds nothing.
Reported accuracies have rows of their own and do not count here, as in the gate.
"""

from __future__ import annotations

from fglaudit.empirical.fields.states import REPORT, sees
from fglaudit.empirical.label_responses import LABELS
from fglaudit.finding import CellRecord
from fglaudit.guarantees import FieldState, Verdict, Word, empty

EVERYTHING = "everything"
PRIVATE, CLAIMED, SEALED, OPEN = "private", "claimed", "sealed", "open"
_UNPROTECTED = ("nothing", "unexamined", "attacked")
_NAMED = 4
_NOTHING = "no epsilon is stated, and nothing that it sees is sealed"


def whole_protocol(record: CellRecord) -> tuple[FieldState, ...]:
    """Return one row per observer; nothing where no field was looked at."""
    observers = dict.fromkeys(finding.observer for finding in record.findings if finding.observer)
    if not any(state.payload != REPORT for state in record.fields):
        return ()
    return tuple(_whole(record, observer) for observer in observers)


def _whole(record: CellRecord, observer: str) -> FieldState:
    mine = [state for state in record.fields if state.payload != REPORT and sees(observer, state.observer)]
    left = [f"{state.payload}.{state.field}: {state.state}" for state in mine if state.state in _UNPROTECTED]
    verdict = record.verdict
    promised = {finding.guarantee for finding in record.findings if finding.observer == observer}
    if left:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        words = OPEN, f"not seen to be protected: {', '.join(left[:_NAMED])}{more}"
    elif verdict is None or verdict.word in (Word.NONE, Word.REFUTED) or promised == {Word.NONE}:
        words = OPEN, "nothing is promised to this observer" if promised == {Word.NONE} else "no guarantee holds"
    elif verdict.epsilon is not None and (why := empty(verdict.epsilon, verdict.delta or 0.0, record.nodes)):
        words = OPEN, f"{why}: {_composed(verdict)}"
    elif verdict.epsilon is not None:
        words = PRIVATE if verdict.word is Word.VERIFIED else CLAIMED, _composed(verdict)
    else:
        sealed = dict.fromkeys(state.payload for state in mine if state.state == SEALED)
        words = (SEALED, f"{', '.join(sealed)} sealed ({verdict.word})") if sealed else (OPEN, _NOTHING)
    labels = next((state.reason for state in mine if state.field == LABELS), "")
    return FieldState(observer, EVERYTHING, "", words[0], words[1] + (f"; labels sent: {labels}" if labels else ""))


def _composed(verdict: Verdict) -> str:
    delta = f", delta {verdict.delta:g}" if verdict.delta else ""
    words = f"epsilon {verdict.epsilon:.4g}{delta} for a {verdict.unit}, composed over all releases ({verdict.word})"
    return f"{words}; {verdict.not_covered}" if verdict.not_covered else words
