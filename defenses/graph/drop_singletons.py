"""Drop a node's only cross-client neighbour (FedGCN, section 4, footnote 2; FedGAT, privacy analysis).

A sum over one remote neighbour is that neighbour's feature row; dropping the edge removes it. Sums over two and more
still go out, and the subset-sum and row-space attacks show what they reveal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.context import Context
from fglaudit.defenses.graph.minimum_neighborhood import FewestSession, nothing_to_drop
from fglaudit.interfaces import Defense, DefenseSession


@dataclass(frozen=True)
class DropSingletons(Defense):
    """A node with exactly one cross-client neighbour receives nothing from it. No epsilon is promised."""

    name: ClassVar[str] = "drop-singletons"

    def unsupported(self, context: Context) -> str | None:
        return nothing_to_drop(context)

    def bind(self, context: Context) -> DefenseSession:
        return FewestSession(2)
