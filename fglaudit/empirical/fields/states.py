"""What protects every field that is sent, before any attack has read it: rows of ``guarantees.csv``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from fglaudit.empirical.fields.examined import Examined
from fglaudit.empirical.fields.forced_replay import kinds
from fglaudit.empirical.fields.moves import PRESENCE
from fglaudit.facts import Field, Unstated
from fglaudit.guarantees import UNSTATED_CHANGE, Audit, AuditName, FieldState, Outcome, Protection, Word
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import Payload
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.counted import Counted, Sent

SERVER_SIDE, CLIENT_SIDE = "server", "clients"
"""Who receives a field: what clients send the server receives, and the other way round."""
EVERYBODY = ""
_SEES = {SERVER_SIDE: ("server", "wire"), CLIENT_SIDE: ("client", "wire")}
"""By the side that receives a field, what is in the names of observers that see it."""
_WAYS = {SERVER_SIDE: ("up",), CLIENT_SIDE: ("down",)}
"""By the side that receives a field, the directions in which facts about it are stated."""
NO_VALUES = (PRESENCE, "nodes", "node")
"""Fields that say who sends what of which node."""
REPORT = "report"
"""The payload that stands for what a run reports beside its messages."""
PROTOCOL = "protocol"
"""The payload that stands for whatever gets from party to party without a message: see :func:`unchecked_state`."""
NOT_SENT = (REPORT, PROTOCOL)


def sees(observer: str, listed: str) -> bool:
    """Whether ``observer`` sees a field whose state is ``listed`` for a side, one observer, or everybody."""
    return listed in (EVERYBODY, observer) or any(name in observer for name in _SEES.get(listed, ()))


def unreplayed_states(
    counted: Counted, sealed: Collection[str], why: str, sealing: Sequence[Audit] = ()
) -> tuple[FieldState, ...]:
    """Return the states where nothing was replayed: sealed, or nothing.

    Args:
        sealing: audits of what travels sealed; without any it is claimed.
    """
    seal = _sealing(sealing) if sealing else Seal(Word.CLAIMED, why)
    found = []
    for sent in counted.sent:
        for name in sent.fields:
            in_clear = Protection.NOTHING, f"sent in the clear; {why}"
            words = seal.state() if sent.payload in sealed else in_clear
            found += [FieldState(side, sent.payload, name, *words) for side in _sides(sent)]
    return tuple(found)


def field_states(
    seen: Examined,
    counted: Counted,
    accounted: Accounted | str,
    promise: Guarantee,
    sealed: Collection[str],
    sealing: Sequence[Audit] = (),
) -> tuple[FieldState, ...]:
    """Return the state of every field, of the presence of messages, and of what is reported.

    Args:
        sealing: audits of what travels sealed, which is verified where all of them passed and claimed otherwise.
    """
    seal = _sealing(sealing)
    listed = dict.fromkeys(kinds(seen.trace.batches))
    for sent in counted.sent:  # those that were not reached in the first rounds
        listed.update(dict.fromkeys((sent.payload, sent.by_server, name) for name in sent.fields))
    for payload, by_server in dict.fromkeys((payload, by_server) for payload, by_server, _ in listed):
        listed[payload, by_server, PRESENCE] = None
    reached = set(kinds(seen.trace.batches)) | {(p, b, PRESENCE) for p, b, _ in kinds(seen.trace.batches)}
    found = []
    for kind in listed:
        trusted = _trusted(promise, counted, *kind[:2])
        hidden = kind[0] in sealed and _is_value(kind[0], kind[2], seen)
        words = seal.state() if hidden else _state(kind, kind in reached, seen, accounted, trusted)
        sides = _sides(counted.of(kind[0], by_server=kind[1]))
        found += [FieldState(side, kind[0], kind[2], *words) for side in sides]
    if seen.accuracy:
        reported = Protection.NOTHING, "reported accuracies move when a record is replaced"
    elif seen.trace.accuracy is not None:
        reported = Protection.STILL, "training was replayed to its end"
    else:  # every training reports accuracies: an alarm that each run has would not be read
        why = f"nothing is stated about reported accuracies; the first {seen.rounds} rounds were replayed"
        reported = Protection.NOTHING, why
    return (*found, FieldState("", REPORT, "accuracy", *reported))


def after_unstated(
    states: Sequence[FieldState], unstated: Sequence[Unstated], counted: Counted | None = None
) -> tuple[FieldState, ...]:
    """Return ``states`` with those fields open to which the defense does what no fact explains: whatever was found out
    about them, what they carry then is not known.

    Args:
        counted: on the wire of the run; what clients send one another leaves them on the way up.
    """
    fields = [change.target for change in unstated if isinstance(change.target, Field)]
    found = []
    for state in states:
        ways: tuple[str | None, ...] = _WAYS.get(state.observer, (None,))
        if state.observer == CLIENT_SIDE and counted is not None and counted.among_clients(state.payload):
            ways += ("up",)
        value = state.field not in NO_VALUES
        if value and any(target.meets(state.payload, state.field, way) for target in fields for way in ways):
            state = replace(state, state=Protection.UNEXAMINED, reason=UNSTATED_CHANGE, unstated=True)
        found.append(state)
    return tuple(found)


def _sides(sent: Sent) -> tuple[str, ...]:
    """Return who received a payload: what clients send one another never reaches the server."""
    received = {SERVER_SIDE: sent.to_server, CLIENT_SIDE: sent.to_clients}
    usual = CLIENT_SIDE if sent.by_server else SERVER_SIDE
    return tuple(side for side, got in received.items() if got) or (usual,)


def _trusted(promise: Guarantee, counted: Counted, payload: str, by_server: bool) -> bool:
    """Return whether a payload goes to a trusted server alone."""
    return promise.server_trusted and not by_server and not counted.among_clients(payload)


def unchecked_state(why: str) -> FieldState:
    """Return the state that everything is in where the protocol was seen to break a rule, or could not be checked."""
    return FieldState(EVERYBODY, PROTOCOL, "rules", Protection.UNEXAMINED, why)


class Seal(NamedTuple):
    """What is said of what travels sealed, and why."""

    word: Word
    why: str

    def state(self) -> tuple[Protection, str, Word]:
        """Return state, reason and seal of a field that travels so."""
        return Protection.SEALED, f"{self.word}: {self.why}", self.word


def _sealing(audits: Sequence[Audit]) -> Seal:
    """Return what ``audits`` of what travels sealed come to."""
    against = next((audit for audit in audits if audit.outcome is Outcome.REFUTED), None)
    if against is not None:
        return Seal(Word.REFUTED, against.detail)
    open_ = next((audit for audit in audits if audit.outcome is Outcome.UNTESTED), None)
    if open_ is not None or not audits:
        return Seal(Word.CLAIMED, open_.detail if open_ else "what travels sealed was not tested")
    return Seal(Word.VERIFIED, audits[0].detail)


def _state(
    kind: tuple[str, bool, str],
    reached: bool,
    seen: Examined,
    accounted: Accounted | str,
    trusted: bool,
) -> tuple[Protection, str]:
    """Return state and reason of one field that does not travel sealed."""
    payload, by_server, name = kind
    if kind in seen.same.fields:
        return Protection.UNEXAMINED, "differs between two replays with equal draws, so what moves it cannot be told"
    if (why := seen.moved.get(kind)) is not None:
        return Protection.NOTHING, f"moves with {why}" + ("; the server is trusted with it" if trusted else "")
    parts = accounted.mechanisms if isinstance(accounted, Accounted) else ()
    for part in parts:
        if (part.payload, part.by_server) == (payload, by_server) and _is_value(payload, name, seen):
            return Protection.COVERED, f"{part.distribution} noise of scale {part.scale:.4g} on it"
    if not reached:
        return Protection.UNEXAMINED, f"not made in the first {seen.rounds} rounds, which were replayed"
    if any(part.payload == "rows" for part in parts):
        return Protection.COVERED, "made of rows that are random before use"
    if any(part.payload == "gradients" for part in parts) and payload == "ModelUpdate" and name != PRESENCE:
        return Protection.COVERED, "made of gradients with noise"
    return Protection.STILL, f"{seen.pairs} records replaced, what was released with noise held fixed"


def _is_value(payload: str, name: str, seen: Examined) -> bool:
    """Whether the field holds values rather than ids."""
    if name == PRESENCE:
        return False
    for batch in seen.trace.batches:
        if type(batch.payload).__name__ == payload and name in batch.payload.tensors():
            return batch.payload.tensors()[name].is_floating_point()
    kind = Payload.registry.get(payload)
    return kind is not None and name not in NO_VALUES


def fields_audit(seen: Examined, promise: Guarantee, sealed: Collection[str], counted: Counted) -> Audit:
    """Return whether a field that the guarantee is about moves with a record and nothing covers it."""
    name = AuditName.FIELDS
    open_ = [
        (payload, by_server, field)
        for payload, by_server, field in seen.moved
        if not _trusted(promise, counted, payload, by_server)
        and not (payload in sealed and _is_value(payload, field, seen))
    ]
    if open_:
        payload, by_server, field = open_[0]
        side = "the server" if by_server else "clients"
        also = f", and {len(open_) - 1} more fields" if len(open_) > 1 else ""
        return Audit(
            name,
            Outcome.UNTESTED,
            f"{field} of {payload} from {side} moves with {seen.moved[open_[0]]}{also}, and no stated mechanism covers"
            " it",
        )
    return Audit(name, Outcome.PASSED, f"{seen.pairs} records replaced: no field moved that no mechanism covers")
