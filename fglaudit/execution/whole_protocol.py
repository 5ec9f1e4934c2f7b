"""What is said of everything together that one observer sees of a training: the last rows of ``guarantees.csv``.

It is "private" where the guarantee's epsilon, composed over all releases, was verified and every field that the
observer sees is covered by it, sealed or not seen to move: one field that nothing protects, and it is "open".
So it is under an epsilon or a delta that holds and bounds nothing.
Reported accuracies have rows of their own and do not count here, as in the gate.
"""

from __future__ import annotations

from fglaudit.empirical.fields.states import REPORT, sees
from fglaudit.empirical.label_responses import LABELS
from fglaudit.finding import CellRecord
from fglaudit.guarantees import FieldState, Protection, Verdict, Word, empty

EVERYTHING = "everything"
_UNPROTECTED = (Protection.NOTHING, Protection.UNEXAMINED, Protection.ATTACKED)
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
        words = Protection.OPEN, f"not seen to be protected: {', '.join(left[:_NAMED])}{more}"
    elif verdict is None or verdict.word in (Word.NONE, Word.REFUTED) or promised == {Word.NONE}:
        why = "nothing is promised to this observer" if promised == {Word.NONE} else "no guarantee holds"
        words = Protection.OPEN, why
    elif verdict.epsilon is not None and (bounds_nothing := empty(verdict.epsilon, verdict.delta or 0.0, record.nodes)):
        words = Protection.OPEN, f"{bounds_nothing}: {_composed(verdict)}"
    elif verdict.epsilon is not None:
        words = Protection.PRIVATE if verdict.word is Word.VERIFIED else Protection.CLAIMED, _composed(verdict)
    else:
        sealed = dict.fromkeys(state.payload for state in mine if state.state is Protection.SEALED)
        said = f"{', '.join(sealed)} sealed ({verdict.word})"
        words = (Protection.SEALED, said) if sealed else (Protection.OPEN, _NOTHING)
    labels = next((state.reason for state in mine if state.field == LABELS), "")
    return FieldState(observer, EVERYTHING, "", words[0], words[1] + (f"; labels sent: {labels}" if labels else ""))


def _composed(verdict: Verdict) -> str:
    delta = f", delta {verdict.delta:g}" if verdict.delta else ""
    words = f"epsilon {verdict.epsilon:.4g}{delta} for a {verdict.unit}, composed over all releases ({verdict.word})"
    return f"{words}; {verdict.not_covered}" if verdict.not_covered else words
