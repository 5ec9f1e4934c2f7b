"""How much an observer may have learned at most: the largest upper end of the attacks that can tell, corrected for
their number."""

from __future__ import annotations

from dataclasses import dataclass

from fglaudit import registry
from fglaudit.empirical.fields.states import NO_VALUES, REPORT
from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord, Status
from fglaudit.guarantees import FieldState, Protection
from fglaudit.plugins.class_source import UnreadableError, class_source
from fglaudit.reports.alarms import unchecked
from fglaudit.reports.answers import Answer
from fglaudit.reports.choosing.options import is_option
from fglaudit.reports.leaks import FEATURES, MEAN, ONE_CLIENT, UNIQUE, Leak
from fglaudit.reports.summary import Setting
from fglaudit.scoring.clusters import TAIL
from fglaudit.scoring.metrics import metric_interval


@dataclass(frozen=True)
class UpperEnd:
    """The largest upper end of one observer and quantity in one setting.

    Attributes:
        high: None where nothing can be said.
        attack: whose it is.
        why_not: why ``high`` is None or must not be trusted, in words; empty if it may be.
        note: what else stands behind ``high``.
    """

    high: float | None
    attack: str = ""
    why_not: str = ""
    note: str = ""


def upper_end(answer: Answer) -> UpperEnd:
    """Return the largest corrected upper end of ``answer``.

    Rows of attacks that allow for all that was done count, and others where they show a leak: their silence says
    nothing, their success does.
    """
    if why := unchecked(answer.setting):
        return UpperEnd(None, why_not=why)
    states = [state for record in answer.setting.records for state in record.fields]
    mine = [state for state in states if concerns(state.observer, answer.observer[0])]
    measured = [leak for leak in answer.leaks if leak.measured]
    if not measured and nothing_leaves(answer.setting):
        return UpperEnd(0.0, note="nothing is sent")
    if not measured and _closed(mine, answer.quantity):
        return UpperEnd(0.0, note="everything that reaches it is sealed or public")
    if broken := sorted({leak.attack for leak in answer.leaks if leak.count(Status.BROKEN_ATTACK)}):
        return UpperEnd(None, why_not=f"failed their self-test: {', '.join(broken)}")
    if not measured:
        return UpperEnd(None, why_not=_believed(mine) or answer.reason)
    counted = [leak for leak in measured if leak.reassures or leak.grounds]
    if not any(leak.reassures for leak in measured) and not any(leak.grounds for leak in measured):
        return UpperEnd(None, why_not=answer.reason)
    ends = [(corrected(leak, len(measured)), leak.attack) for leak in counted]
    if few := sorted(attack for high, attack in ends if high is None):
        return UpperEnd(None, why_not=f"too few parties for an upper end of {', '.join(few)}")
    high, attack = max((high, attack) for high, attack in ends if high is not None)
    open_ = _unread(answer, mine) if answer.quantity == FEATURES else []
    if open_:
        return UpperEnd(high, attack, f"no attack here that allows for what was done reads {', '.join(open_)}")
    return UpperEnd(high, attack, note=f"corrected for {len(measured)} attacks" if len(measured) > 1 else "")


def silent(record: CellRecord) -> bool:
    """Whether no message was sent: none was counted, and no field is listed but that of reported accuracies."""
    counts = {(row.bytes_up, row.bytes_down) for row in record.findings}
    return counts == {(0, 0)} and all(state.payload == REPORT for state in record.fields)


def nothing_leaves(setting: Setting) -> bool:
    """Whether all data stay where they are: nothing is sent, and they were not in one place before."""
    return is_option(setting) and all(map(silent, setting.records))


def corrected(leak: Leak, attacks: int) -> float | None:
    """Return the upper end of ``leak`` at a tail divided by the number of attacks (Bonferroni); of leaks at one client,
    by proof or by rows that one node alone has at least what is shown there. None where it has a range alone."""
    if not leak.estimate.shown or leak.clusters is None:
        return None
    high = leak.high if attacks == 1 else metric_interval(leak.metric, leak.clusters, tail=TAIL / attacks).high
    if high is None:
        return None
    shown = [high]
    if leak.grounds and leak.grounds != (MEAN,):
        shown.append(leak.proven or 0.0)
        shown.append((leak.worst_client or 0.0) if ONE_CLIENT in leak.grounds else 0.0)
        shown.append(leak.unique_exact / (leak.mean("targets") or 1.0) if UNIQUE in leak.grounds else 0.0)
    return max(shown)


def concerns(said: str, observer: str) -> bool:
    """Whether a state of a field, ``said`` of an observer, is about ``observer``: any of its parties; empty is about
    all, and what is not known is."""
    if said in ("", observer):
        return True
    kinds = {party.partition(":")[0] for party in observer.split("+")}
    named = {party.partition(":")[0] for party in said.split("+")}
    return bool(kinds & named) or not named <= {"server", "client", "wire"} or ("wire" in kinds and "server" in named)


def _closed(states: list[FieldState], quantity: str) -> bool:
    """Whether every value is sealed, as audits verified. Who sends what of which node, and reported
    accuracies, are no values: as to features it is enough that they were not seen to move."""
    sent = [state for state in states if state.payload != REPORT or quantity != FEATURES]
    values = [s for s in sent if quantity != FEATURES or s.field not in NO_VALUES or s.state is not Protection.STILL]
    return bool(values) and all(state.shut for state in values)


def _believed(states: list[FieldState]) -> str:
    """Return which payloads are sealed by their author's word alone; empty if none is."""
    open_ = {state.payload: state.reason for state in states if state.state is Protection.SEALED and not state.shut}
    return "; ".join(f"{payload} is sealed, {reason}" for payload, reason in sorted(open_.items()))


def _unread(answer: Answer, states: list[FieldState]) -> list[str]:
    """Return the payloads that an attack on features ran on, or that are said to carry data, and that no adapted and
    self-tested one read."""
    ran = [leak for leak in answer.leaks if any(f.status is not Status.NOT_APPLICABLE for f in leak.findings)]
    needed = {payload for leak in ran for payload in payloads_of(leak.attack)}
    needed |= {state.payload for state in states if state.state is Protection.ATTACKED}
    settled = {state.payload for state in states if state.state is Protection.ATTACKED or state.shut}
    read = {payload for leak in ran if leak.reassures or leak.grounds for payload in payloads_of(leak.attack)}
    return sorted(needed - read - settled)


def payloads_of(attack: str) -> tuple[str, ...]:
    """Return the payloads that a named attack needs; none for one that is not known here, such as a file's."""
    try:
        module, _, cls = registry.target("attack", attack).partition(":")
        return tuple(class_source(module, cls).constant("consumes") or ())
    except (FglauditError, UnreadableError):
        return ()
