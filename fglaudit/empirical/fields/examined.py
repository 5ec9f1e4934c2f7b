"""What replays show of a defense: randomness that is not the run's, fields that move with a record, and steps that are
longer than stated.

Replayed are the first rounds (:mod:`fglaudit.empirical.fields.forced_replay`): once more with the same draws, where
nothing may move; with other draws, where noise must; and with one record replaced, with what mechanisms released held
fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.empirical.adjacency import Statements
from fglaudit.empirical.fields.forced_replay import Held, Reach, Trace, replay
from fglaudit.empirical.fields.moves import Moves, Sent, moves
from fglaudit.empirical.fields.steps import Step, entered_more, side, steps_of
from fglaudit.empirical.replays.replaced import (
    PAIRS,
    Replaced,
    far_reaching,
    relabelled,
    replaced_records,
    taken_away,
)
from fglaudit.facts import (
    GRADIENTS,
    ROWS,
    Additive,
    DegreeBound,
    Fact,
    Field,
    Randomised,
    first,
    on,
)
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import Defense, FederatedProtocol, Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.counted import Counted
from fglaudit.rng import derive

QUICK_PAIRS = 3
FEW_PAIRS = 5
"""Records that are replaced however much is sent: one of every kind of replacement."""
MOST_NUMBERS = 2**26
"""Numbers that further replays may send in all. A limit in seconds would make the verdict depend on the machine."""


@dataclass(frozen=True)
class Examined:
    """What replays showed.

    Attributes:
        trace: of the first one.
        same: what moved although nothing was changed.
        redrawn: what moved with other draws.
        moved: by field that moves with a record although what mechanisms released was held fixed, which record it was.
        accuracy: whether reported accuracies moved so.
        steps: the longest of every release whose step has a norm.
        pairs: how many records were replaced.
        held: what was held fixed.
        rounds: how many were replayed.
        more: in words, what one record entered beyond what its protocol states.
    """

    trace: Trace
    same: Moves
    redrawn: Moves
    moved: dict[Sent, str]
    accuracy: bool
    steps: tuple[Step, ...]
    pairs: int
    held: Held = field(default_factory=Held)
    rounds: int = 0
    more: str = ""


def examined(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    stated: Statements,
    accounted: Accounted | str,
    *,
    counted: Counted | None = None,
    seed: int,
    device: torch.device,
    quick: bool = False,
) -> Examined:
    """Replay the first rounds of ``protocol`` under fresh binds of ``defense``.

    Args:
        counted: on the wire of the run, every kind of message of which the replays are to reach.
    """
    facts, promise = stated
    reach = Reach.of(counted or Counted())

    def again(world: FederatedGraph, draws: str = "A", forced: Trace | None = None, reach: Reach = reach) -> Trace:
        return replay(
            protocol,
            world,
            defense,
            context,
            seed=seed,
            device=device,
            draws=draws,
            forced=forced,
            held=held,
            reach=reach,
        )

    held = held_fixed(facts, accounted, context)
    trace = again(graph)
    same, redrawn = moves(trace, again(graph)), moves(trace, again(graph, "B"))
    most = QUICK_PAIRS if quick else max(FEW_PAIRS, min(PAIRS, MOST_NUMBERS // max(1, _numbers(trace))))
    pairs, labels = _pairs(graph, facts, promise, seed, most), _other_labels(graph, promise, seed)
    if held.gradients and promise.unit == "node":
        pairs += far_reaching(graph, derive(seed, "far-reaching records"))
    found = _Found(context, facts, accounted)
    for pair in (*pairs, *labels):
        found.compare(trace, again(pair.graph, forced=trace), same, held, pair)
    # Protocols of this package have tests of their own for rounds further on; others may do anything there.
    if not quick and not registry.shipped("protocol", protocol):
        end = reach.to_the_end()
        whole = again(graph, reach=end)
        if len(whole.batches) > len(trace.batches) or len(whole.updates) > len(trace.updates):
            still = moves(whole, again(graph, reach=end))
            for pair in (*pairs[:FEW_PAIRS], *labels):
                found.compare(whole, again(pair.graph, forced=whole, reach=end), still, held, pair)
    steps = tuple(found.longest.values())
    pairs += labels
    return Examined(
        trace, same, redrawn, found.moved, found.accuracy, steps, len(pairs), held, reach.rounds, found.more
    )


@dataclass
class _Found:
    """What replaced records moved so far; attributes as of :class:`Examined`."""

    context: Context
    facts: Sequence[Fact]
    accounted: Accounted | str
    moved: dict[Sent, str] = field(default_factory=dict)
    longest: dict[int, Step] = field(default_factory=dict)
    accuracy: bool = False
    more: str = ""

    def compare(self, trace: Trace, other: Trace, same: Moves, held: Held, pair: Replaced) -> None:
        """Take in what moved from ``trace`` to ``other``, less what moves by itself."""
        found = moves(trace, other)
        opened = {
            kind
            for kind in found.fields - same.fields
            if (kind[0], kind[1]) not in held.payloads or kind in _open_fields(self.facts, found.fields)
        }
        for kind in opened:
            self.moved.setdefault(kind, pair.what)
        self.accuracy |= found.accuracy and not same.accuracy
        if pair.edges or pair.many:
            return
        for number, step in steps_of(self.context, self.facts, self.accounted, trace, other, pair):
            if same.of(step.noised):
                continue  # with equal draws it moves by itself: what the record moves cannot be told
            if number not in self.longest or step.share > self.longest[number].share:
                self.longest[number] = step
        if not opened:  # else later messages move by what nothing covers, which is another fault
            self.more = self.more or entered_more(self.context, self.facts, self.accounted, trace, other, same, pair)


def _pairs(graph: FederatedGraph, facts: Sequence[Fact], promise: Guarantee, seed: int, most: int) -> list[Replaced]:
    """Return ``graph`` with one record replaced, at ``most`` such, and with a node fewer where the promise is about
    these."""
    pairs = replaced_records(graph, promise.unit or "node", derive(seed, "replaced records"), most)
    if promise.unit == "node" and promise.relation is Relation.ADD_OR_REMOVE:
        bound = first(facts, DegreeBound)
        gone = derive(seed, "nodes taken away")
        pairs += taken_away(graph, bound.bound if bound else graph.num_nodes, gone, QUICK_PAIRS)
    return pairs


def _other_labels(graph: FederatedGraph, promise: Guarantee, seed: int) -> list[Replaced]:
    """Return ``graph`` with other labels, where the promise is about these."""
    return relabelled(graph, promise.unit, derive(seed, "other labels"), QUICK_PAIRS) if promise.labels else []


def _numbers(trace: Trace) -> int:
    return sum(value.numel() for batch in trace.batches for value in batch.payload.tensors().values())


def held_fixed(facts: Sequence[Fact], accounted: Accounted | str, context: Context) -> Held:
    """Return what mechanisms release: those that were accounted, else all that facts state."""
    if isinstance(accounted, Accounted):
        names = {(part.payload, part.by_server) for part in accounted.mechanisms}
        payloads = frozenset(pair for pair in names if pair[0] not in ("rows", "gradients"))
        one = {(release.payload.__name__, release.by_server) for release in context.releases if release.one_message}
        return Held(("rows", False) in names, ("gradients", False) in names, payloads, payloads & one)
    random = [fact for fact in facts if isinstance(fact, Additive | Randomised)]
    targets = [fact.target for fact in random]
    sides = {"up": (False,), "down": (True,), "any": (False, True)}
    fields = {(t.payload, by) for t in targets if isinstance(t, Field) for by in sides[t.direction]}
    return Held(ROWS in targets, GRADIENTS in targets, frozenset(fields))


def _open_fields(facts: Sequence[Fact], fields: set[Sent]) -> set[Sent]:
    """Return those of ``fields`` on which no fact states noise."""
    return {
        (payload, by_server, name)
        for payload, by_server, name in fields
        if not any(isinstance(f, Additive | Randomised) for f in on(facts, payload, name, side(by_server)))
    }


def foreign_audit(seen: Examined, accounted: Accounted | str) -> Audit:
    """Return whether all randomness is the run's own: nothing moves with equal draws, and all noise with others."""
    name = AuditName.FOREIGN_RANDOMNESS
    if strange := seen.same.named():
        detail = f"{', '.join(strange[:4])} differ between two replays with equal draws: foreign randomness"
        return Audit(name, Outcome.UNTESTED, detail)
    still = []
    if isinstance(accounted, Accounted):
        for part in accounted.mechanisms:
            if part.payload == "rows":
                still += [] if seen.redrawn.rows else ["rows"]
            elif part.payload == "gradients":
                still += [] if seen.redrawn.gradients else ["gradients"]
            elif not any(k[:2] == (part.payload, part.by_server) for k in seen.redrawn.fields):
                reached = any(type(b.payload).__name__ == part.payload for b in seen.trace.batches)
                still += [part.payload] if reached else []
    if still:
        detail = f"noise on {', '.join(still)} does not come from the generator handed over: other draws change nothing"
        return Audit(name, Outcome.UNTESTED, detail)
    return Audit(name, Outcome.PASSED, "two replays with equal draws are equal, and with other draws noise moves")


def sensitivity_audit(seen: Examined) -> Audit:
    """Return whether a record moves a release further than stated: with equal draws the difference has no noise."""
    name = AuditName.SENSITIVITY
    if seen.more:
        return Audit(name, Outcome.REFUTED, seen.more)
    far = [step for step in seen.steps if step.length > step.stated * (1 + 1e-4)]
    if far:
        step = max(far, key=lambda s: s.share)
        kind = step.noised.payload + (" of the server" if step.noised.by_server else "")
        return Audit(
            name,
            Outcome.REFUTED,
            f"{step.what} moves {kind} by {step.length:.4g}, further than the sensitivity {step.stated:.4g} that its"
            f" facts and the protocol give",
        )
    if seen.same.named():
        return Audit(name, Outcome.UNTESTED, "releases move without a record: what one moves cannot be told")
    if not seen.steps:
        return Audit(name, Outcome.PASSED, "no release has a step with a norm")
    most = ", ".join(f"{step.noised.payload} {step.share:.3g} of what is stated" for step in seen.steps)
    words = f"{seen.pairs} records replaced in the first {seen.rounds} rounds with equal draws; longest steps: {most}"
    return Audit(name, Outcome.PASSED, words)
