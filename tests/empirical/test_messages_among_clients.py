"""What clients send one another is listed for clients, who get it, and not for the server, who does not."""

from __future__ import annotations

import torch

from fglaudit.empirical.fields.examined import Examined
from fglaudit.empirical.fields.forced_replay import Trace
from fglaudit.empirical.fields.moves import Moves
from fglaudit.empirical.fields.states import CLIENT_SIDE, SERVER_SIDE, after_unstated, fields_audit, unreplayed_states
from fglaudit.facts import Field, Unstated
from fglaudit.guarantees import Outcome
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import SERVER, Embeddings, MessageBatch
from fglaudit.privacy.counted import Counted
from fglaudit.wire.counting import Counter


def counted(*receivers: int) -> Counted:
    """Return the count of one message of client 0 to each of ``receivers``."""
    number = len(receivers)
    payload = Embeddings(torch.arange(number), torch.ones(number, 2))
    counter = Counter(2, exact=False)
    counter.sent(
        MessageBatch(0, torch.zeros(number).long(), torch.tensor(receivers), payload, torch.arange(number + 1))
    )
    return counter.counted


def test_a_field_is_listed_for_who_received_it() -> None:
    for receivers, sides in (
        ((1,), {CLIENT_SIDE}),
        ((SERVER,), {SERVER_SIDE}),
        ((SERVER, 1), {SERVER_SIDE, CLIENT_SIDE}),
    ):
        assert {state.observer for state in unreplayed_states(counted(*receivers), (), "why")} == sides


def test_a_trusted_server_is_not_trusted_with_what_clients_get() -> None:
    moved = {("Embeddings", False, "values"): "zeros in place of node 0"}
    seen = Examined(Trace(), Moves(), Moves(), moved, accuracy=False, steps=(), pairs=1)
    promise = Guarantee(unit="node", server_trusted=True)
    assert fields_audit(seen, promise, (), counted(SERVER)).outcome is Outcome.PASSED
    assert fields_audit(seen, promise, (), counted(1)).outcome is Outcome.UNTESTED


def test_what_is_unstated_on_the_way_to_another_client_opens_it_there() -> None:
    states = unreplayed_states(counted(1), ("Embeddings",), "why")
    found = after_unstated(states, (Unstated(Field("Embeddings", "values", "up"), "a clip"),), counted(1))
    assert [state.state for state in found] == ["unexamined"]
