"""Every defense on every payload: it reaches a hook there, or refuses with a reason; and keeps every promise."""

from __future__ import annotations

import itertools

import pytest
from recordings import SETUPS

from bench.defense_settings import defenses
from fglaudit.defenses import DEFENSES
from fglaudit.he.openfhe_process import missing
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import Payload
from fglaudit.testing import check_defense

QUICK = ("fedgcn-1", "fedgat-matrix", "nfedgnn-gcn", "gfl-appnp", "fedgt")
"""One recording per family stands for the others in quick runs."""
CASES = [
    pytest.param(where, defense, id=f"{where}-{type(defense).name}-{number}", marks=marks)
    for where, setup in SETUPS.items()
    if setup.defense is None and setup.behaviour is None
    for marks in [() if where in QUICK else (pytest.mark.slow,)]
    for number, defense in enumerate(defenses(setup.protocol))
]


@pytest.mark.parametrize(("where", "defense"), CASES)
def test_defenses_keep_their_promises(where: str, defense: Defense) -> None:
    setup = SETUPS[where]
    check_defense(defense, setup.build(), setup.graph(), quick=True)


def reached(session: DefenseSession, payload: type[Payload]) -> bool:
    """Whether the session has a hook that touches messages of this type, or what they are made from."""
    merges = type(session).merge is not DefenseSession.merge
    return session.changes(payload) or session.seals(payload) or session.prepares() or session.updates() or merges


def test_every_defense_reaches_a_hook_or_says_why_not() -> None:
    """For every defense x payload that some protocol sends: a hook is reached, or every such protocol's refusal, or the
    stated facts, say why not."""
    silent: dict[tuple[str, str], str] = {}
    found: set[tuple[str, str]] = set()
    for where, setup in SETUPS.items():
        protocol, graph = setup.build(), setup.graph()
        for defense, payload in itertools.product(defenses(setup.protocol), type(protocol).emits):
            pair = (type(defense).name, payload.__name__)
            context = protocol.context(graph)
            why = defense.unsupported(context)
            if why is not None:
                assert why.strip(), f"{pair} on {where} is refused without a reason"
                continue
            session = defense.bind(context)
            if reached(session, payload):
                found.add(pair)
            else:
                silent[pair] = where
                assert not any(getattr(fact.target, "payload", "") == pair[1] for fact in session.facts()), pair
    names = {name for name, _ in found}
    absent = {"none"} if missing() is None else {"none", "threshold-encryption"}
    assert names == set(DEFENSES) - absent, sorted(set(DEFENSES) - names)
    assert len(found) > 60, len(found)
