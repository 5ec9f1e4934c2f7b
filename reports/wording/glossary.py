"""What the words of the first screen mean, for readers who have never seen the tool: only those that stand there."""

from __future__ import annotations

import re
from collections.abc import Iterable

TERMS = (
    (
        "exact(ly)?",
        "A feature row is all that is recorded of one node (a person, a paper); exact: every entry is right.",
    ),
    ("guess", "A guess: what prior knowledge alone gets, without any message."),
    ("F1", "F1, a guess's in brackets: how well the entries that are not zero are found; 1 is all of them, no other."),
    ("cosine", "Cosine, a guess's in brackets: whether the row points the right way; 1 is up to its length."),
    ("AUC", "AUC: 0.5 is a coin flip, 1 is always right."),
    ("proven", "Proven to be determined: algebra alone fixes the row, whoever attacks."),
    ("advantage", "Advantage: how much of the way from a guess (0) to everything (1)."),
)
"""A word, as a pattern of it alone, and what it means."""


def terms_used(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the sentences on words that ``texts`` use, in the order of :data:`TERMS`."""
    said = " ".join(texts)
    return tuple(meaning for word, meaning in TERMS if re.search(rf"\b{word}\b", said))
