"""What attacks change in the states of fields: of those that nothing protects, which ones an attack examined."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fglaudit.empirical.fields.moves import PRESENCE
from fglaudit.empirical.fields.states import NOT_SENT, REPORT, sees
from fglaudit.finding import ADAPTED, OTHERS, Finding, Status
from fglaudit.guarantees import FieldState, Protection

Declared = Mapping[str, Collection[str]]
"""By an attack's name the names of the payloads that it may read."""
Read = Mapping[tuple[str, str, str], Collection[tuple[str, str]]]
"""By observer, knowledge and attack the fields that it did read, as (payload, field)."""
_CARRIES = (Protection.NOTHING, Protection.COVERED, Protection.UNEXAMINED)
"""States of fields that may say something of private data to who reads them."""


def after_attacks(states: Sequence[FieldState], findings: Sequence[Finding], read: Read) -> tuple[FieldState, ...]:
    """Return ``states``, with a row for every observer of a field that nothing protects: attacked, where an adapted
    attack that worked on its self-test read this very field, else unexamined."""
    found: list[FieldState] = []
    for state in states:
        observers = dict.fromkeys(f.observer for f in findings if sees(f.observer, state.observer))
        if state.state is not Protection.NOTHING or state.payload == REPORT or not observers:
            found.append(state)
            continue
        for observer in observers:
            readers = [
                f
                for f in findings
                if f.observer == observer and f.status is Status.OK and (state.payload, state.field) in _read(read, f)
            ]
            able = dict.fromkeys(f.attack for f in readers if f.adapted == ADAPTED)
            others = dict.fromkeys(f.attack for f in readers if OTHERS in f.unadapted)
            word = Protection.ATTACKED if able else Protection.UNEXAMINED
            by = f"read by {', '.join(able)}" if able else "no adapted attack that passed its self-test reads it"
            because = f"{state.reason}; {by}"
            found.append(replace(state, observer=observer, state=word, reason=because, others=tuple(others)))
    return tuple(found)


def unread(
    states: Sequence[FieldState], findings: Sequence[Finding], declared: Declared, read: Read
) -> tuple[str, ...]:
    """Return notes on what was sent and may carry private data, and no attack read: payloads that no attack knows,
    those that none of the attacks that know them could run on, and single fields that were left alone."""
    sent: dict[str, dict[str, None]] = {}
    for state in states:
        if state.state in _CARRIES and state.payload not in NOT_SENT and state.field != PRESENCE:
            sent.setdefault(state.payload, {})[state.field] = None
    ran = {name for f in findings if f.status is Status.OK for name in declared.get(f.attack, ())}
    known = {name for payloads in declared.values() for name in payloads}
    seen = {one for f in findings if f.status is Status.OK for one in _read(read, f)}
    notes = []
    for payload, names in sent.items():
        left = ", ".join(f"{payload}.{name}" for name in names if (payload, name) not in seen)
        if not left:
            continue
        if payload not in known:
            notes.append(f"nobody read {left}: no attack here knows {payload}")
        elif payload not in ran:
            notes.append(f"nobody read {left}: no attack that knows {payload} could run for these observers")
        else:
            notes.append(f"nobody read {left}: the attacks that ran on {payload} read other fields of it")
    return tuple(notes)


def _read(read: Read, finding: Finding) -> Collection[tuple[str, str]]:
    return read.get((finding.observer, finding.observer_knowledge, finding.attack), ())
