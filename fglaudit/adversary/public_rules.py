"""What a defense states in facts, as attacks ask for it (rule 4): who sends, rows, noise, edges.

Clips of messages are read in :mod:`fglaudit.adversary.clipping`. Facts of a plugin's own are in no answer but where
something is asked to be as its owner made it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    LARGEST_FLOODING,
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
    Sealed,
    Target,
    first,
    on,
)
from fglaudit.graph import ClientGraph
from fglaudit.payloads import Payload
from fglaudit.privacy.degree_bound import bound_degrees
from fglaudit.privacy.mechanism import clip_rows
from fglaudit.view import View


def stated(view: View, payload: type[Payload], field: str = "", direction: str | None = None) -> tuple[Fact, ...]:
    """Return the facts about a field of ``payload``, in order; an empty ``field`` is any, no ``direction`` is both."""
    return on(view.public.facts, payload, field, direction)


def noise_on(view: View, payload: type[Payload], field: str = "", direction: str | None = None) -> Additive | None:
    """Return the noise on an entry of that field, None without any.

    Several noises on one field count as one with the sum of their variances; of several fields the one with the most
    noise is taken.
    """
    noises = [f for f in stated(view, payload, field, direction) if isinstance(f, Additive)]
    sums = [_sum([f for f in noises if f.target == target]) for target in dict.fromkeys(f.target for f in noises)]
    everywhere = [f for f in sums if isinstance(f.target, Field) and not f.target.name]
    single = [_sum([f, *everywhere]) for f in sums if f not in everywhere]
    return max(single or ([_sum(everywhere)] if everywhere else []), key=lambda f: f.std, default=None)


def noise_std(view: View, payload: type[Payload], field: str = "", direction: str | None = None) -> float:
    """Return the standard deviation of :func:`noise_on`; 0 without any."""
    noise = noise_on(view, payload, field, direction)
    return 0.0 if noise is None else noise.std


def _sum(noises: list[Additive]) -> Additive:
    """Return the noise that is the sum of ``noises``."""
    if len(noises) == 1:
        return noises[0]
    kinds = {noise.distribution for noise in noises}
    std = math.hypot(*(noise.std for noise in noises))
    return Additive(noises[0].target, "gaussian" if kinds == {"gaussian"} else "+".join(sorted(kinds)), std)


def rounding_on(view: View, payload: type[Payload], field: str = "", direction: str | None = None) -> Rounded | None:
    """Return the grid to which a field of ``payload`` was rounded, None if it was not."""
    return next((f for f in stated(view, payload, field, direction) if isinstance(f, Rounded)), None)


def sealing_on(view: View, payload: type[Payload]) -> Sealed | None:
    """Return how messages of ``payload`` are sealed, None if they are not."""
    return first(view.public.facts, Sealed, payload)


def flooding_on(view: View, payload: type[Payload]) -> float:
    """Return the standard deviation of flooding noise in opened messages of ``payload``; 0 without encryption."""
    sealing = sealing_on(view, payload)
    return 0.0 if sealing is None else sealing.flooding


def rounding_of_sums(view: View, payload: type[Payload]) -> float:
    """Return the largest error of a sum over clients that sealing causes, beyond rounding to float32."""
    sealing = sealing_on(view, payload)
    return 0.0 if sealing is None else max(sealing.rounding, LARGEST_FLOODING * sealing.flooding)


def absent_clients(view: View, payload: type[Payload]) -> Tensor:
    """Return the clients whose messages with ``payload`` were left out of all sums, because they dropped out."""
    gone = {client for fact in stated(view, payload) if isinstance(fact, Absent) for client in fact.clients}
    return torch.tensor(sorted(gone), dtype=torch.long)


def lossless(view: View, *payloads: type[Payload]) -> bool:
    """Whether messages of ``payloads`` are as their owners made them, up to what sealing adds, from rows and gradients
    that are as they hold them."""
    sent = [fact for payload in payloads for fact in stated(view, payload)]
    return not any(_is_about(view, target) for target in (ROWS, GRADIENTS)) and all(
        isinstance(fact, Sealed | Absent) for fact in sent
    )


def rows_unaltered(view: View) -> bool:
    """Whether the rows that enter messages are those that their owners hold, in every entry."""
    return not _is_about(view, ROWS) and merged_size(view) == 1


def norm_bound(view: View) -> float:
    """Return the norm to which rows were clipped before anything was computed from them; infinity if they were not."""
    clip = clip_of_rows(view)
    return math.inf if clip is None else clip.bound


def clip_of_rows(view: View) -> Clipped | None:
    """Return how rows were clipped before anything was computed from them, None if they were not."""
    return first(view.public.facts, Clipped, ROWS)


def noise_of_rows(view: View) -> Additive | Randomised | None:
    """Return what made rows random before anything was computed from them, None if nothing did."""
    noises = [f for f in view.public.facts if isinstance(f, Additive) and f.target == ROWS]
    return _sum(noises) if noises else first(view.public.facts, Randomised, ROWS)


def unused_columns(view: View) -> Tensor:
    """Return which features [F] are zero in all rows by the defense's choice of columns."""
    unused = torch.zeros(view.public.num_features, dtype=torch.bool)
    for fact in view.public.facts:
        if isinstance(fact, KeptColumns) and fact.target == ROWS:
            unused |= ~torch.isin(torch.arange(len(unused)), torch.tensor(fact.ids, dtype=torch.long))
    return unused


def known_as_used(view: View, x: Tensor) -> Tensor:
    """Return rows [..., F] as computations use them: clipped, without unused columns. What is random about rows is left
    out: noise has mean 0."""
    for fact in view.public.facts:
        if fact.target != ROWS:
            continue
        if isinstance(fact, Clipped) and fact.norm != "elementwise":
            x = clip_rows(x, fact.bound, fact.norm.lower())
        elif isinstance(fact, KeptColumns):
            x = x.masked_fill(unused_columns(view), 0.0)
    return x


def fewest_neighbors(view: View) -> int:
    """Return how many cross-client neighbours a node needs to receive anything from them; 1 if nothing is dropped."""
    return max((f.fewest for f in view.public.facts if isinstance(f, DroppedEdges)), default=1)


def merged_size(view: View) -> int:
    """Return the least size of a group whose mean replaces neighbours' rows; 1 if each is used itself."""
    merged = first(view.public.facts, Merged, EDGES)
    return 1 if merged is None else merged.size


def same_neighborhoods(view: View) -> bool:
    """Whether a neighbourhood that messages are made of is the one in the graph."""
    return not _is_about(view, EDGES)


def bounded_degrees(view: View) -> bool:
    """Whether clients drop edges until no node has more neighbours than a bound."""
    return first(view.public.facts, DegreeBound, EDGES) is not None


def kept_edges(view: View, edges: Tensor, degrees: Tensor) -> Tensor:
    """Return those of ``edges`` [2, E] that no degree bound drops, as both ends have few neighbours [2, E'].

    Args:
        degrees: of all nodes [N], in the whole graph; -1 where unknown.
    """
    limit = first(view.public.facts, DegreeBound, EDGES)
    if limit is None:
        return edges
    few = (degrees >= 0) & (degrees <= limit.bound)
    return edges[:, (edges[0] == edges[1]) | few[edges].all(0)]


def own_graphs(view: View) -> tuple[ClientGraph, ...]:
    """Return the observing clients' graphs with the edges that the defense leaves."""
    limit = first(view.public.facts, DegreeBound, EDGES)
    if limit is None:
        return view.own
    return tuple(bound_degrees(client, limit.bound, limit.seed) for client in view.own)


def _is_about(view: View, target: Target) -> bool:
    return any(fact.target == target for fact in view.public.facts)
