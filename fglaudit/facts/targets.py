"""What a fact is about: rows, edges, gradients, or a field of a payload."""

from __future__ import annotations

from dataclasses import dataclass

from fglaudit.errors import FglauditError
from fglaudit.facts.plain import make_plain

DIRECTIONS = ("up", "down", "any")


@dataclass(frozen=True)
class Rows:
    """The feature rows that a client starts from: whatever is computed later is computed from what became of them."""


@dataclass(frozen=True)
class Edges:
    """The edges that a client starts from, and the groups in which neighbours are used."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of a client's examples, of which a local step uses the sum."""


@dataclass(frozen=True)
class Field:
    """A field of a payload.

    Attributes:
        payload: class name of the payload.
        name: of the field; empty: every floating-point one.
        direction: "up" (sent by clients), "down" (sent by the server) or "any".
        since: first round that the fact is about; 0 is before training.
    """

    payload: str
    name: str = ""
    direction: str = "any"
    since: int = 0

    def __post_init__(self) -> None:
        make_plain(self)
        if self.direction not in DIRECTIONS:
            raise FglauditError(f"a direction is one of {', '.join(DIRECTIONS)}; got {self.direction!r}; change it")

    def __str__(self) -> str:
        """Return it as reports and messages name it: ``NeighborSums.sums (up)``."""
        where = [] if self.direction == "any" else [self.direction]
        where += [f"from round {self.since}"] if self.since else []
        beside = f" ({', '.join(where)})" if where else ""
        return ".".join(filter(None, (self.payload, self.name))) + beside

    def meets(self, payload: str, name: str = "", direction: str | None = None) -> bool:
        """Whether it is about that field in that direction; an empty ``name`` or ``direction`` leaves it open."""
        fields = not name or not self.name or name == self.name
        directions = direction in (None, "any") or self.direction in ("any", direction)
        return payload == self.payload and fields and directions


Target = Rows | Edges | Gradients | Field
ROWS, EDGES, GRADIENTS = Rows(), Edges(), Gradients()
