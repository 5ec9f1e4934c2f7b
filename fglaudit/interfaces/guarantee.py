"""What a defense promises, as its author states it."""

from __future__ import annotations

from dataclasses import dataclass

from fglaudit.errors import FglauditError
from fglaudit.facts.plain import make_plain
from fglaudit.payloads import SERVER
from fglaudit.privacy.accounting import Relation
from fglaudit.view import Observer

SERVER_TRUSTED = "holds against clients alone, the server is trusted"
"""What the mechanism's description says in results where ``Guarantee.server_trusted``."""


@dataclass(frozen=True)
class Guarantee:
    """What a defense promises, in data: accountants judge it. Empty fields mean that nothing is promised.

    Attributes:
        mechanism: what is done, in words.
        epsilon_claimed: the author's own number, which nothing here computes.
        epsilon_accounted: the number that an accountant of this package computed.
        delta: of either.
        unit: whose data it protects, such as "node" or "client".
        adjacency: in words, how two neighbouring data sets differ.
        releases: how many messages about one unit it is composed over; None: not counted.
        key_custody: who holds the keys, where messages are encrypted.
        server_trusted: whether it holds against clients alone, because the server gets features in the clear.
        relation: what happens to the record between neighbouring data sets; ``adjacency`` says it in words.
        coalition: how many clients may pool what they see without it losing its hold; None: any number.
        labels: whether the record is its label too, or all that a client's training makes of it, not features alone.
            What covers features alone, rows that are random before use say, does not cover it.
        sum_without: where ``epsilon_claimed`` is about the sum of what clients send, to which each adds a share of the
            noise: how many of them may tell whoever sees the sum what they added, or vanish; None: it is not about a
            sum.
    """

    mechanism: str = ""
    epsilon_claimed: float | None = None
    epsilon_accounted: float | None = None
    delta: float | None = None
    unit: str = ""
    adjacency: str = ""
    releases: int | None = None
    key_custody: str = ""
    server_trusted: bool = False
    relation: Relation | None = None
    coalition: int | None = None
    sum_without: int | None = None
    labels: bool = False

    def __post_init__(self) -> None:
        """Keep numbers and words by value.

        Raises:
            FglauditError: an epsilon is no number of at least 0, or the relation is none of those known.
        """
        make_plain(self)
        for epsilon in (self.epsilon_claimed, self.epsilon_accounted):
            if epsilon is not None and not (isinstance(epsilon, int | float) and epsilon >= 0):
                raise FglauditError(
                    f"an epsilon is a number of at least 0; got {epsilon!r}; state None where none is claimed"
                )
        if self.relation is not None:
            object.__setattr__(self, "relation", _known(self.relation))

    @property
    def seals_alone(self) -> bool:
        """Whether all that is promised is that the server cannot read what travels sealed."""
        epsilons = self.epsilon_claimed, self.epsilon_accounted
        return bool(self.key_custody) and not self.unit and all(epsilon is None for epsilon in epsilons)

    def covers(self, observer: Observer) -> bool:
        """Whether the promise is about what ``observer`` sees. Sealed messages are so for who holds no key."""
        if self.seals_alone and observer.clients:
            return False
        too_many = self.coalition is not None and len(observer.clients) > self.coalition
        return not too_many and not (self.server_trusted and (observer.wire or SERVER in observer.parties))


def _known(relation: object) -> Relation:
    """Return the relation of that name; ``plain`` has turned one of this tool's into its word."""
    if type(relation) is not str or relation not in list(Relation):
        known = ", ".join(f"Relation.{each.name}" for each in Relation)
        raise FglauditError(f"a neighbouring relation is one of {known}; got {relation!r}; state one of them")
    return Relation(relation)
