"""The empirical epsilon of a defense as it is implemented: canaries in, the release replayed many times, noise and all.

One canary row is put into the graph or zeroed out; the protocol makes its messages from either graph, through the defense's
own preparation; the step that releases them (clip and noise) is then drawn thousands of times for both. The adversary is the
one that the guarantee is about: it knows everything but whether the canary is there. Its score is the log-likelihood
ratio under the noise that the defense states; if the defense adds another noise the score is worse and the bound still true.

Unit, adjacency and delta are the guarantee's. Of a defense that releases several times the first release is replayed: the bound
then holds for the whole training too, and is lower than it might be.

Only the entries that the canary reaches are replayed. That is the mechanism on fewer rows, for which its guarantee must hold as
well; a defense whose noise depends on how many rows a message has would be misjudged.

The confidence of a cell is 99.99 %, so that of a hundred cells together it is 99 % that no bound is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.bound import Bound
from fglaudit.empirical.canaries import Canary, canary_nodes, canary_rows
from fglaudit.empirical.capture import capture, node_ids, select_entries
from fglaudit.empirical.clopper_pearson import clopper_pearson
from fglaudit.empirical.gdp import gdp
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol, Guarantee, Release
from fglaudit.nn.neighborhood import with_neighbors
from fglaudit.payloads import MessageBatch
from fglaudit.rng import derive
from fglaudit.view import Noise

CONFIDENCE = 0.9999
MAX_RUNS = 4000
"""Replays with the canary, and as many without."""
MIN_RUNS = 250
DRAWS = 2**27
"""Numbers that may be drawn in all: about two seconds."""
CHUNK = 2**23


@dataclass(frozen=True)
class _Pair:
    """Messages with the canary and without, the entries that differ alone."""

    present: list[MessageBatch]
    absent: list[MessageBatch]

    def size(self, fields: Sequence[str]) -> int:
        """How many numbers get noise in one replay."""
        return sum(v.numel() for b in self.present for v in _values(b, fields).values())


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
    """Return a lower bound on the epsilon that ``session`` gives ``protocol`` on ``graph``, or why none can be measured.

    Args:
        session: bound to the protocol's context on this graph.
        promise: what it guarantees; says the unit and delta.
        draws: how many random numbers may be spent.
    """
    if promise.unit != "node" or promise.delta is None:
        return f"canaries are feature rows of nodes and test a guarantee per node; this one is per {promise.unit or 'nothing'}"
    if graph.x.dim() != 2:
        return "canaries are single feature rows; this data set has several samples per node"
    release = next((r for r in protocol.releases(graph) if session.changes(r.payload)), None)
    if release is None:
        return "the defense changes no release of features that could be replayed"
    noise = session.noise().get(release.payload.__name__)
    pair = _worst(protocol, graph, session, release, noise, seed, device)
    if pair is None:
        return f"no entry of {release.payload.__name__} can be told to depend on a canary"
    fields = noise.fields if noise else ()
    runs = min(MAX_RUNS, draws // (2 * pair.size(fields)))
    if runs < MIN_RUNS:
        return f"a replay of {release.payload.__name__} is too large: {pair.size(fields):,} numbers each"
    rng = derive(seed, "empirical", "noise")
    present, absent = (_scores(session, b, pair, noise, runs, rng) for b in (pair.present, pair.absent))
    gaussian = noise is not None and noise.distribution == "gaussian" and promise.delta > 0
    estimate = gdp if gaussian else clopper_pearson
    return estimate(present, absent, delta=promise.delta, confidence=confidence, rng=derive(seed, "empirical", "split"))


def _worst(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    session: DefenseSession,
    release: Release,
    noise: Noise | None,
    seed: int,
    device: torch.device,
) -> _Pair | None:
    """Return the messages of the canary that moves them most, judged without noise."""

    def pair(canary: Canary) -> _Pair:
        near = torch.zeros(graph.num_nodes, dtype=torch.bool)
        near[canary.node] = True
        ids = with_neighbors(near, graph.edge_index).nonzero().squeeze(1)
        worlds = [
            capture(
                protocol,
                canary.insert(graph, included=included),
                session,
                release,
                ids,
                rng=derive(seed, "empirical", "train"),
                device=device,
            )
            for included in (True, False)
        ]
        return _different(*worlds)

    rows = canary_rows(graph)
    nodes = canary_nodes(graph)
    pairs = [pair(Canary(node, rows[0])) for node in nodes]
    best = max(range(len(nodes)), key=lambda i: _divergence(pairs[i], noise))
    worst = max((pairs[best], pair(Canary(nodes[best], rows[1]))), key=lambda p: _divergence(p, noise))
    return worst if worst.present else None


def _different(present: list[MessageBatch], absent: list[MessageBatch]) -> _Pair:
    kept: tuple[list[MessageBatch], list[MessageBatch]] = ([], [])
    for one, other in zip(present, absent, strict=True):
        ids, others = node_ids(one.payload), node_ids(other.payload)
        if ids is None or others is None or not torch.equal(ids, others):
            raise ValueError("the messages must be about the same nodes with and without the canary")
        changed = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        for name, value in _values(one, ()).items():
            changed |= (value != _values(other, ())[name]).flatten(1).any(1)
        if bool(changed.any()):
            kept[0].append(select_entries(one, changed))
            kept[1].append(select_entries(other, changed))
    return _Pair(*kept)


def _values(batch: MessageBatch, fields: Sequence[str]) -> dict[str, Tensor]:
    """Return the fields that get noise; all floating-point ones where none are named."""
    tensors = batch.payload.tensors()
    return {n: v for n, v in tensors.items() if (n in fields if fields else v.is_floating_point())}


def _divergence(pair: _Pair, noise: Noise | None) -> float:
    """Return the Kullback-Leibler divergence between both worlds, or half the squared distance where the noise is unknown."""
    total = 0.0
    scale = noise.scale if noise else 1.0
    fields = noise.fields if noise else ()
    for one, other in zip(pair.present, pair.absent, strict=True):
        for name, value in _values(one, fields).items():
            shift = (value.double() - _values(other, fields)[name].double()).abs() / scale
            laplace = noise is not None and noise.distribution == "laplace"
            total += float((shift - 1 + (-shift).exp() if laplace else shift.square() / 2).sum().item())
    return total


def _scores(
    session: DefenseSession, batches: list[MessageBatch], pair: _Pair, noise: Noise | None, runs: int, rng: torch.Generator
) -> Tensor:
    """Return the log-likelihood ratio, canary there against not there, of ``runs`` releases of ``batches`` [runs]."""
    fields = noise.fields if noise else ()
    step = max(1, CHUNK // max(1, pair.size(fields)))
    scores = torch.zeros(runs, dtype=torch.float64)
    for first in range(0, runs, step):
        copies = min(step, runs - first)
        for batch, one, other in zip(batches, pair.present, pair.absent, strict=True):
            released = session.release(_repeated(batch, copies), rng).tensors()
            for name, value in _values(one, fields).items():
                drawn = released[name].unflatten(0, (copies, -1)).double()
                ratio = _ratio(drawn, value.double(), _values(other, fields)[name].double(), noise)
                scores[first : first + copies] += ratio.flatten(1).sum(1).cpu()
    return scores


def _ratio(drawn: Tensor, present: Tensor, absent: Tensor, noise: Noise | None) -> Tensor:
    """Return the log-likelihood ratio of every entry; without stated noise that of standard normal noise."""
    if noise is not None and noise.distribution == "laplace":
        return ((drawn - absent).abs() - (drawn - present).abs()) / noise.scale
    variance = noise.scale**2 if noise else 1.0
    return (drawn - (present + absent) / 2) * ((present - absent) / variance)


def _repeated(batch: MessageBatch, copies: int) -> MessageBatch:
    """Return the messages ``copies`` times after one another, as messages of their own."""
    entries = next(iter(batch.payload.tensors().values()))
    payload = batch.payload.select(torch.arange(len(entries), device=entries.device).repeat(copies))
    splits = None
    if batch.splits is not None:
        splits = torch.cat([batch.splits.new_zeros(1), batch.splits.diff().repeat(copies).cumsum(0)])
    return MessageBatch(batch.round, batch.senders.repeat(copies), batch.receivers.repeat(copies), payload, splits)
