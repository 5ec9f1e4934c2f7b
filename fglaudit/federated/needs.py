"""Training that cannot end well is refused before it begins, with what it would need; one that sends much says so."""

from __future__ import annotations

from fglaudit.datasets.size import in_words, machine_memory
from fglaudit.errors import FglauditError

MOST_MADE = 2**40
"""Bytes of messages that one training may make. Two cores make about half a gigabyte of FedGAT's matrices per second:
these take more than half an hour, before the first round."""
MOST_SENT = 2**38
"""Bytes that a training may send before its first round without a word: half an hour of a gigabit line."""


def refuse_memory(protocol: str, graph: str, needed: int, what: str, fix: str) -> None:
    """Raise :class:`FglauditError` if about ``needed`` bytes for ``what`` are more than this machine has."""
    if needed > (there := machine_memory()):
        raise FglauditError(
            f"training must fit into memory; {protocol} on {graph!r} needs about {in_words(needed)} for {what}, and"
            f" this machine has {in_words(there)}; {fix}"
        )


def refuse_made(protocol: str, graph: str, made: int, what: str, fix: str) -> None:
    """Raise :class:`FglauditError` if ``made`` bytes of ``what`` are more than one training may make."""
    if made > MOST_MADE:
        raise FglauditError(
            f"one training makes at most {in_words(MOST_MADE)} of messages; {protocol} on {graph!r} needs"
            f" {in_words(made)} of {what}; {fix}"
        )


def told_sent(protocol: str, graph: str, sent: int, what: str, fix: str) -> str:
    """Return that ``sent`` bytes of ``what`` go out before the first round if they are many; "" otherwise."""
    if sent <= MOST_SENT:
        return ""
    return (
        f"{protocol} on {graph!r} sends {in_words(sent)} of {what} before its first round, more than"
        f" {in_words(MOST_SENT)}; {fix}"
    )
