"""The empirical epsilon of a defense as it is implemented: canaries in, the release replayed many times, noise and all.

One canary row is put into the graph, or what the neighbouring relation has instead; the protocol makes its messages
from either graph, through the defense's own preparation; the step that releases them (clip and noise) is then drawn
thousands of times for both. The adversary is the one that the guarantee is about: it knows everything but whether the
canary is there. Its score is the log-likelihood ratio under the noise that the defense states; if the defense adds
another noise the score is worse and the bound still true. Where a defense randomises feature rows before they are used,
the rows are what is released.

Unit, adjacency and delta are the guarantee's. Of a defense that releases several times the first release is replayed:
the bound then holds for the whole training too, and is lower than it might be.

Only entries that the canary reaches are replayed, those that it moves most; of features that it does not touch none, if
the defense states noise for every coordinate alone. That is the mechanism on fewer rows, for which its guarantee must
hold as well; a defense whose noise depends on how many rows a message has would be misjudged.

A defense of local gradients is tested by ``fglaudit.empirical.local_update``.

The bound of a cell holds at 99.99 %. Whether it contradicts the accounted epsilon is decided over all cells of a suite
together, by p-values (:meth:`fglaudit.empirical.bound.Bound.p_value`): see ``fglaudit.reports.summary``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.context import Release
from fglaudit.empirical.bound import Bound
from fglaudit.empirical.canaries import LENGTH, Canary, canary_nodes, canary_rows
from fglaudit.empirical.capture import capture, entry_ids, select_entries
from fglaudit.empirical.clopper_pearson import clopper_pearson
from fglaudit.empirical.gdp import gdp
from fglaudit.empirical.local_update import audit_updates
from fglaudit.empirical.stated_noise import StatedNoise
from fglaudit.facts import ROWS, Additive, Randomised, first
from fglaudit.federated.neighborhood import with_neighbors
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol, Guarantee
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.accounting import Relation
from fglaudit.rng import derive

CONFIDENCE = 0.9999
MAX_RUNS = 4000
"""Replays with the canary, and as many without."""
MIN_RUNS = 500
DRAWS = 2**28
"""Numbers that may be drawn in all: a few seconds."""
CHUNK = 2**23


@dataclass(frozen=True)
class CapturedPair:
    """Messages with the canary and without.

    Attributes:
        present, absent: the same entries of the same batches.
        numbers: how many numbers get noise in one replay.
        divergence: between both worlds, see :func:`divergence_of`.
    """

    present: list[MessageBatch]
    absent: list[MessageBatch]
    numbers: int
    divergence: float


def audit_defense(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    session: DefenseSession,
    promise: Guarantee,
    *,
    seed: int,
    device: torch.device,
    confidence: float = CONFIDENCE,
    draws: int = DRAWS,
) -> Bound | str:
    """Return a lower bound on the epsilon of ``session`` for ``protocol`` on ``graph``, or why none can be measured.

    Args:
        session: bound to the protocol's context on this graph.
        promise: what it guarantees; says the unit and delta.
        draws: how many random numbers may be spent.
    """
    examples = protocol.examples(graph)
    if session.updates() and promise.unit == "node" and not isinstance(examples, str):
        return audit_updates(examples, graph, session, promise, seed=seed, confidence=confidence)
    if promise.unit != "node" or promise.delta is None:
        return (
            "canaries are feature rows of nodes and test a guarantee per node; this one is per"
            f" {promise.unit or 'nothing'}"
        )
    if graph.x.dim() != 2:
        return "canaries are single feature rows; this data set has several samples per node"
    if random_rows(session) is not None:
        return _bound_of_rows(graph, session, promise, seed, confidence, draws)
    release = next((r for r in protocol.releases(graph) if session.changes(r.payload)), None)
    if release is None:
        return "the defense changes no release of features that could be replayed"
    noise = StatedNoise.of(session, release)
    opposite = promise.relation is Relation.REPLACE
    pair = _worst(protocol, graph, session, release, noise, draws // (2 * MIN_RUNS), seed, device, opposite)
    if not pair.numbers:
        return (
            f"no entry of {release.payload.__name__} that a canary reaches is small enough to be replayed {MIN_RUNS}"
            " times"
        )
    runs = min(MAX_RUNS, draws // (2 * pair.numbers))
    rng = derive(seed, "empirical", "noise")
    present, absent = (_scores(session, b, pair, noise, runs, rng) for b in (pair.present, pair.absent))
    gaussian = noise is not None and noise.distribution == "gaussian" and promise.delta > 0
    estimate = gdp if gaussian else clopper_pearson
    return estimate(present, absent, delta=promise.delta, confidence=confidence, rng=derive(seed, "empirical", "split"))


def random_rows(session: DefenseSession) -> Additive | Randomised | None:
    """Return how ``session`` states that it makes rows random before they are used, None if it does not."""
    facts = session.facts()
    return first(facts, Randomised, ROWS) or first(facts, Additive, ROWS)


def _bound_of_rows(
    graph: FederatedGraph, session: DefenseSession, promise: Guarantee, seed: int, confidence: float, draws: int
) -> Bound:
    """Return the bound for a defense that randomises rows before they are used: one row of a node, or its opposite.

    The score grows with the likelihood ratio: the sum of a report's entries where every entry of the row was changed,
    as randomised response on some of them has it, else the one entry that was.
    """
    randomised, delta = random_rows(session), promise.delta or 0.0
    changed = graph.num_features if isinstance(randomised, Randomised) else 1
    runs = max(MIN_RUNS, min(MAX_RUNS, draws // (2 * graph.num_features)))
    rng = derive(seed, "empirical", "rows")
    scores = []
    for sign in (1, -1):
        rows = torch.zeros(runs, graph.num_features)
        rows[:, :changed] = sign * LENGTH
        scores.append(session.prepare(dataclasses.replace(graph.client(0), x=rows), rng).x[:, :changed].double().sum(1))
    gaussian = isinstance(randomised, Additive) and randomised.distribution == "gaussian"
    estimate = gdp if gaussian else clopper_pearson
    return estimate(scores[0], scores[1], delta=delta, confidence=confidence, rng=derive(seed, "empirical", "split"))


def _worst(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    session: DefenseSession,
    release: Release,
    noise: StatedNoise | None,
    limit: int,
    seed: int,
    device: torch.device,
    opposite: bool,
) -> CapturedPair:
    """Return the messages of the canary that moves them most, judged without noise; at most ``limit`` numbers."""

    nodes = canary_nodes(graph)
    near = torch.zeros(graph.num_nodes, dtype=torch.bool)
    near[nodes] = True
    ids = with_neighbors(near, graph.edge_index).nonzero().squeeze(1)
    one, even = canary_rows(graph)
    empty = graph
    for node in nodes:
        empty = Canary(node, one).insert(empty, 0)

    def messages(world: FederatedGraph) -> list[MessageBatch]:
        rng = derive(seed, "empirical", "train")  # the same masks in every world
        return capture(protocol, world, session, release, ids, limit, rng=rng, device=device)

    zeroed = messages(empty) if not opposite else []

    def pair(node: int, row: Tensor) -> CapturedPair:
        canary = Canary(node, row)
        absent = messages(canary.insert(empty, -1)) if opposite else zeroed
        return strongest(messages(canary.insert(empty, 1)), absent, noise, limit)

    pairs = [pair(node, one) for node in nodes]
    best = max(range(len(nodes)), key=lambda i: pairs[i].divergence)
    return max((pairs[best], pair(nodes[best], even)), key=lambda p: p.divergence)


def strongest(
    present: list[MessageBatch], absent: list[MessageBatch], noise: StatedNoise | None, limit: int
) -> CapturedPair:
    """Return the entries that differ most, as many as have ``limit`` numbers together: looking at fewer is no error."""
    shown = [divergence_of(one, other, noise) for one, other in zip(present, absent, strict=True)]
    fields = noise.fields if noise else ()
    sizes = [
        torch.full(d.shape, sum(v[0].numel() for v in _values(b, fields).values()))
        for b, d in zip(present, shown, strict=True)
    ]
    if not shown:
        return CapturedPair([], [], 0, 0.0)
    divergence, numbers = torch.cat(shown), torch.cat(sizes)
    order = torch.argsort(divergence, descending=True, stable=True)
    order = order[(numbers[order].cumsum(0) <= limit) & (divergence[order] > 0)]
    keep = torch.zeros(len(divergence), dtype=torch.bool)
    keep[order] = True
    masks = torch.split(keep, [len(d) for d in shown])
    kept = [
        [select_entries(b, m) for b, m in zip(world, masks, strict=True) if bool(m.any())]
        for world in (present, absent)
    ]
    return CapturedPair(kept[0], kept[1], int(numbers[order].sum().item()), float(divergence[order].sum().item()))


def divergence_of(one: MessageBatch, other: MessageBatch, noise: StatedNoise | None) -> Tensor:
    """Return the Kullback-Leibler divergence of every entry [rows]; for unknown noise half the squared distance."""
    ids = entry_ids(one)
    if not torch.equal(ids, entry_ids(other)):
        raise ValueError("the messages must be about the same nodes with and without the canary")
    fields, scale = (noise.fields, noise.scale) if noise else ((), 1.0)
    total = torch.zeros(len(ids), dtype=torch.float64)
    for name, value in _values(one, fields).items():
        shift = ((value.double() - _values(other, fields)[name].double()).abs() / scale).flatten(1)
        laplace = noise is not None and noise.distribution == "laplace"
        total += (shift - 1 + (-shift).exp() if laplace else shift.square() / 2).sum(1).cpu()
    return total


def _values(batch: MessageBatch, fields: Sequence[str]) -> dict[str, Tensor]:
    """Return the fields that get noise; all floating-point ones where none are named."""
    tensors = batch.payload.tensors()
    return {n: v for n, v in tensors.items() if (n in fields if fields else v.is_floating_point())}


def _scores(
    session: DefenseSession,
    batches: list[MessageBatch],
    pair: CapturedPair,
    noise: StatedNoise | None,
    runs: int,
    rng: torch.Generator,
) -> Tensor:
    """Return the log-likelihood ratio, canary there against not there, of ``runs`` releases of ``batches`` [runs]."""
    fields = noise.fields if noise else ()
    step = max(1, CHUNK // pair.numbers)
    scores = torch.zeros(runs, dtype=torch.float64)
    for start in range(0, runs, step):
        copies = min(step, runs - start)
        for batch, one, other in zip(batches, pair.present, pair.absent, strict=True):
            released = session.release(repeated(batch, copies), rng).tensors()
            for name, value in _values(one, fields).items():
                drawn = released[name].double().reshape(copies, *value.shape)
                ratio = _ratio(drawn, value.double(), _values(other, fields)[name].double(), noise)
                scores[start : start + copies] += ratio.flatten(1).sum(1).cpu()
    return scores


def _ratio(drawn: Tensor, present: Tensor, absent: Tensor, noise: StatedNoise | None) -> Tensor:
    """Return the log-likelihood ratio of every entry; without stated noise that of standard normal noise."""
    if noise is not None and noise.distribution == "laplace":
        return ((drawn - absent).abs() - (drawn - present).abs()) / noise.scale
    variance = noise.scale**2 if noise else 1.0
    return (drawn - (present + absent) / 2) * ((present - absent) / variance)


def repeated(batch: MessageBatch, copies: int) -> MessageBatch:
    """Return the messages ``copies`` times after one another, as messages of their own."""
    entries = next(iter(batch.payload.tensors().values()))
    payload = batch.payload.select(torch.arange(len(entries), device=entries.device).repeat(copies))
    splits = None
    if batch.splits is not None:
        splits = torch.cat([batch.splits.new_zeros(1), batch.splits.diff().repeat(copies).cumsum(0)])
    return MessageBatch(batch.round, batch.senders.repeat(copies), batch.receivers.repeat(copies), payload, splits)
