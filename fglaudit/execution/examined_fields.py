"""What attacks change in the states of fields: of those that nothing protects, which ones an attack examined."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fglaudit.finding import ADAPTED, Finding, Status
from fglaudit.guarantees import FieldState

Reads = Mapping[str, Collection[str]]
"""By an attack's name the names of the payloads that it reads."""
_SEEN_BY = {"server": ("server", "wire"), "clients": ("client", "wire")}


def after_attacks(states: Sequence[FieldState], findings: Sequence[Finding], reads: Reads) -> tuple[FieldState, ...]:
    """Return ``states``, with a row for every observer of a field that nothing protects: attacked, where an adapted
    attack that reads such messages worked on its self-test, else unexamined."""
    found: list[FieldState] = []
    for state in states:
        seen_by = _SEEN_BY.get(state.observer, ())
        observers = dict.fromkeys(f.observer for f in findings if any(name in f.observer for name in seen_by))
        if state.state != "nothing" or not observers:
            found.append(state)
            continue
        for observer in observers:
            able = dict.fromkeys(
                f.attack
                for f in findings
                if f.observer == observer
                and f.status is Status.OK
                and f.adapted == ADAPTED
                and state.payload in reads.get(f.attack, ())
            )
            word = "attacked" if able else "unexamined"
            by = f"read by {', '.join(able)}" if able else "no adapted attack that passed its self-test reads it"
            found.append(replace(state, observer=observer, state=word, reason=f"{state.reason}; {by}"))
    return tuple(found)
