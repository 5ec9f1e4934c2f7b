"""What the defenses of a stack promise together. An epsilon is stated in two cases, and in no other:

* **One covers everything.** A part's guarantee covers the whole training by itself, as its own accounting says, and no
  other part disturbs what it was calibrated to. All that the others do to its output is post-processing (Dwork and Roth
  2014, proposition 2.1). If there are several, the first that holds against the server too is the one that is stated.
* **They share the payloads.** No part covers everything, but every payload through which features leave gets the noise
  of one of them, each bounds what one record changes for any other messages (so adaptive composition applies), and
  their unit and neighbouring relation are the same. Then epsilons add up, and deltas do (theorem 3.16 there).

**Disturbed** is a part whose sensitivity was derived for something that another part changes: edges, where the bound is
not one for every subgraph or where edges are private; groups of neighbours; a payload that was changed before the noise
and is bounded by the norm of rows; senders that vanish, where the server's noise counts on their number, or where each
adds a share of the sum's and more vanish than may be missing; and anything done by a fact that nothing is known about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.context import Context, Release
from fglaudit.defenses.stacking.conflicts import Part, changes_edges, merges
from fglaudit.facts import (
    GRADIENTS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    KeptColumns,
    Merged,
    Randomised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
)
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import ModelUpdate
from fglaudit.privacy.accounting import Relation

_KNOWN: tuple[type[Fact], ...] = (
    *(Absent, Additive, Clipped, DegreeBound, DroppedEdges, KeptColumns, Merged, Randomised, Rounded, Sampled, Scaled),
    Sealed,
)


@dataclass(frozen=True)
class Promises:
    """The guarantees of a stack's parts, as far as they hold in it.

    Attributes:
        parts: bound, in order.
        releases: the payloads through which features leave a client.
        summed: whether each part's guarantee is about its own payloads alone, see :func:`alone_in`.
        senders: clients that send a model in a round; 0 where nobody does.
    """

    parts: tuple[Part, ...]
    releases: tuple[Release, ...]
    summed: bool = False
    senders: int = 0

    def together(self) -> Guarantee:
        """Return the guarantee of the stack; without an epsilon where composition is not justified."""
        promised = [part.session.guarantee() for part in self.parts]
        words = _joined(promised)
        custody = "; ".join(dict.fromkeys(g.key_custody for g in promised if g.key_custody))
        if self.summed and (summands := self._summands()):
            return self._sum([part.session.guarantee() for part in summands], words, custody)
        if chosen := self._whole():
            stated = chosen[0].session.guarantee()
            private = [part for part in self.parts if _private(part)]
            about = f"; the epsilon is that of {chosen[0].name}" if len(private) > 1 else ""
            words = _joined([g if g.mechanism == stated.mechanism else _shortened(g) for g in promised])
            return dataclasses.replace(stated, mechanism=words + about, key_custody=custody)
        private = [part for part in self.parts if _private(part)]
        disturbed = [why for part in private if (why := self._disturbed(part)) is not None]
        if len(private) == 1 and not disturbed:  # it says itself why nothing was accounted
            return dataclasses.replace(private[0].session.guarantee(), mechanism=words, key_custody=custody)
        unclear = "the parts' guarantees do not compose to one of the whole training"
        why = f"; no epsilon is stated: {'; '.join(disturbed) or unclear}" if private else ""
        return Guarantee(mechanism=words + why, key_custody=custody)

    def _whole(self) -> list[Part]:
        """Return the parts whose guarantee covers everything and is undisturbed, those that hold against the server
        first."""
        covering = [
            part
            for part in self.parts
            if part.session.guarantee().epsilon_accounted is not None and self._disturbed(part) is None
        ]
        return sorted(covering, key=lambda part: part.session.guarantee().server_trusted)

    def _summands(self) -> list[Part]:
        """Return the parts with noise if each has accounted its payloads and none is disturbed; nothing otherwise."""
        noisy = [part for part in self.parts if _private(part)]
        promised = [part.session.guarantee() for part in noisy]
        whole = all(g.epsilon_accounted is not None and g.delta is not None for g in promised)
        return noisy if whole and all(self._disturbed(part) is None for part in noisy) else []

    @staticmethod
    def _sum(promised: Sequence[Guarantee], words: str, custody: str) -> Guarantee:
        claimed = [g.epsilon_claimed for g in promised]
        coalitions = [g.coalition for g in promised if g.coalition is not None]
        return dataclasses.replace(
            promised[0],
            mechanism=f"{words}; the parts' epsilons added up",
            epsilon_claimed=None if None in claimed else sum(c for c in claimed if c is not None),
            epsilon_accounted=sum(g.epsilon_accounted or 0.0 for g in promised),
            delta=sum(g.delta or 0.0 for g in promised),
            releases=sum(g.releases or 0 for g in promised) or None,
            key_custody=custody,
            server_trusted=any(g.server_trusted for g in promised),
            coalition=min(coalitions, default=None),
        )

    def _disturbed(self, part: Part) -> str | None:
        """Return why ``part`` was calibrated to something that another part changes, or None."""
        at = self.parts.index(part)
        found = (
            _disturbance(part, other, number < at, self.releases) or _too_few(part, other, self.senders)
            for number, other in enumerate(self.parts)
        )
        return next((why for number, why in enumerate(found) if number != at and why is not None), None)


def _joined(promised: Sequence[Guarantee]) -> str:
    return " + ".join(g.mechanism for g in promised if g.mechanism)


def _shortened(promised: Guarantee) -> Guarantee:
    """Return the guarantee without remarks on what it leaves open, which another part covers."""
    return dataclasses.replace(promised, mechanism=promised.mechanism.partition("; ")[0])


def _disturbance(part: Part, other: Part, earlier: bool, releases: Sequence[Release]) -> str | None:
    strange = [f for f in other.facts if type(f) not in _KNOWN]
    if strange and (earlier or any(not isinstance(f.target, Field) for f in strange)):
        return f"what {other.name} states ({type(strange[0]).__name__}) has no known effect on the noise of {part.name}"
    private_edges = part.session.guarantee().relation is Relation.ADD_OR_REMOVE
    if changes_edges(other) and private_edges:
        return f"{other.name} drops edges by a rule that {part.name}, which protects edges, does not allow for"
    if part.by_row_norm():
        noised = [r for r in releases if r.payload.__name__ in {t.payload for t in part.targets(Additive)}]
        if changes_edges(other) and (merges(other) or not all(r.subgraphs for r in noised)):
            return f"{part.name} was calibrated to the graph before {other.name} changes neighbourhoods"
        if earlier and any(other.session.changes(r.payload) for r in noised):
            return f"{part.name} was calibrated to messages that {other.name} does not change first"
    down = any(t.direction == "down" for t in part.targets(Additive))
    if down and any(isinstance(f, Absent) for f in other.facts):
        return f"the noise of {part.name} counts on clients that {other.name} leaves out"
    return None


def _too_few(part: Part, other: Part, senders: int) -> str | None:
    """Return why the shares of a sum's noise that are left are too few, or None. A client that vanishes takes its share
    along, as one that tells it does, and its message too: a mean over fewer moves further."""
    spare = part.session.guarantee().sum_without
    gone = max((fact.most(senders) for fact in other.facts if isinstance(fact, Absent)), default=0)
    if spare is None or gone <= spare:
        return None
    return (
        f"{other.name} leaves out {gone} of {senders} clients and their shares of the noise of {part.name}, of which"
        f" {spare} may be missing; set colluding to {gone} or more"
    )


def _private(part: Part) -> bool:
    """Whether the part's guarantee is about a unit: it adds noise or randomises, and says to what end."""
    return bool(part.session.guarantee().unit)


def _covered(part: Part) -> frozenset[str]:
    """Return names of the payloads that get the part's noise; gradients' noise is in the models."""
    names = {target.payload for target in part.targets(Additive)}
    if any(isinstance(f, Additive) and f.target == GRADIENTS for f in part.facts):
        names.add(ModelUpdate.__name__)
    return frozenset(names)


def alone_in(context: Context, parts: Sequence[Part]) -> dict[int, Context] | None:
    """Return, by place in ``parts``, the context of each part's own payloads where the parts share the payloads with
    features among them, so that what each spends on its own adds up; None where they do not."""
    noisy = {number: part for number, part in enumerate(parts) if _private(part)}
    promised = [part.session.guarantee() for part in noisy.values()]
    named = {release.payload.__name__ for release in context.releases}
    covered = {number: _covered(part) for number, part in noisy.items()}
    rows = any(f.target == ROWS and isinstance(f, Additive | Randomised) for p in noisy.values() for f in p.facts)
    enough = {release.payload.__name__ for release in context.releases if release.covers_training}
    whole = any(named <= names or enough & names for names in covered.values())
    same = len({(g.unit, g.relation, g.adjacency) for g in promised}) == 1
    apart = sum(len(names & named) for names in covered.values()) == len(named & frozenset().union(*covered.values()))
    if len(noisy) < 2 or rows or whole or not same or not apart or not named <= frozenset().union(*covered.values()):
        return None
    return {
        number: dataclasses.replace(
            context,
            releases=tuple(
                dataclasses.replace(release, covers_training=True)
                for release in context.releases
                if release.payload.__name__ in names
            ),
        )
        for number, names in covered.items()
    }
