"""Words of rows from the hidden units that every word's weights moved to: a Boolean factorisation.

A row that a layer with ReLU reads moves the weights from its words to the units that it activates, and no others. So a
word's pattern, the units to which its weights moved, is the union of the patterns of the rows that have it:
``moved_fh = OR_r (S_rf and P_rh)``. Words of one row alone have that row's pattern. Patterns that are no union of
other words' patterns are taken for those of rows, and a row has the words whose patterns contain its own.

A row whose words all occur in another row as well shows as the union of the two patterns: the words that contain it are
still the words of that row. What cannot be told are words of so many rows that their patterns hold all units: every row
seems to have them.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_PATTERNS = 4096
"""Of more different patterns no row is looked for."""


def words_of_rows(moved: Tensor) -> Tensor:
    """Return which words every row has [R, F], those with the most words of their own first, from where the weights of
    words moved [F, m]: to which units, in which round."""
    words = moved.any(1).nonzero().squeeze(1)
    patterns = row_patterns(moved[words])
    has = torch.zeros(len(patterns), len(moved), dtype=torch.bool)
    has[:, words] = contained(patterns, moved[words])
    return has


def row_patterns(moved: Tensor) -> Tensor:
    """Return the patterns [R, m] of words ``moved`` [w, m] that are no union of others, the most frequent first."""
    unique: tuple[Tensor, Tensor] = torch.unique(moved, dim=0, return_counts=True)
    patterns, count = unique
    if not len(patterns) or len(patterns) > MOST_PATTERNS:
        return moved[:0]
    within = contained(patterns, patterns) & ~torch.eye(len(patterns), dtype=torch.bool)
    union = (within.T.float() @ patterns.float()) > 0
    rows = (union != patterns).any(1)
    return patterns[rows][count[rows].argsort(descending=True, stable=True)]


def contained(parts: Tensor, patterns: Tensor) -> Tensor:
    """Return which of ``parts`` [R, m] lie within which of ``patterns`` [w, m]: [R, w]."""
    return parts.float() @ patterns.float().T >= parts.sum(1, keepdim=True)
