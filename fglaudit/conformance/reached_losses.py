"""Do losses of local training see as far as ``examples`` state? From ``hops`` and ``by_degree`` follows how many losses
one node changes, and so the noise on gradients: it is too small where a loss sees farther than stated, though no
release is seen to move too far on a graph whose nodes reach few losses.

A row reaches the losses of training nodes within ``hops`` steps. An edge that goes changes what its two ends see, which
reaches losses one step less far; as far as a row, if weights depend on degrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglaudit.conformance.runs import CPU
from fglaudit.context import Examples
from fglaudit.empirical.fields.forced_replay import Held, Reach, Trace, replay
from fglaudit.empirical.fields.one_record import changed_in_steps, changed_losses
from fglaudit.empirical.fields.unnamed import PlainSums
from fglaudit.empirical.replays.canaries import LENGTH
from fglaudit.empirical.replays.replaced import without_edge
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.rng import derive

_TRIED = 4
"""Rows, and edges, that are changed one at a time."""
_CANDIDATES = 256
"""Among which those are sought from which most training nodes are one step too far."""
MOST_GRADIENTS = 2**22
"""Numbers of all training nodes' rows, up to which gradients of single losses are asked of a large graph too."""
_FIRST = Reach(rounds=1)


@dataclass(frozen=True)
class _Trial:
    """A graph with one thing changed, and how many losses that may change as stated; what changes with it even one step
    farther changes with the rows of the nodes ``near``."""

    graph: FederatedGraph
    what: str
    within: int
    near: Tensor


def farther_losses(protocol: FederatedProtocol, graph: FederatedGraph, most: int | None = None) -> str:
    """Return in words what reaches more losses than ``examples`` state; empty if nothing was seen to.

    Args:
        most: numbers of all training nodes' rows beyond which nothing is asked; None: any.
    """
    examples = protocol.examples(graph)
    rows = graph.num_features * sum(int(train.sum()) for train in graph.train)
    if most is not None and rows > most:
        return ""
    if isinstance(examples, str) or graph.x.dim() != 2 or any(train.dim() != 1 for train in graph.train):
        return ""
    context, held = protocol.context(graph), Held(gradients=True)

    def run(world: FederatedGraph, forced: Trace | None = None, seed: int = 0) -> Trace:
        sums = PlainSums()
        return replay(protocol, world, sums, context, seed=seed, device=CPU, forced=forced, held=held, reach=_FIRST)

    first = run(graph)
    if changed_losses(first, run(graph)):
        return ""  # they differ by themselves
    found = [(trial, changed_losses(first, run(trial.graph, first))) for trial in _rows(graph, examples)]
    edges = [(trial, run(trial.graph, first)) for trial in _edges(protocol, graph, examples)]
    if not any(_other_draws(run, graph, first, trial, again) for trial, again in edges):
        found += [(trial, changed_losses(first, again)) for trial, again in edges]
    for trial, changed in found:
        if changed > trial.within and _seen_again(run, graph, trial):
            weights = f"weights that {'' if examples.by_degree else 'do not '}depend on degrees"
            return (
                f"`examples` state that losses see {examples.hops} hops far, with {weights}, so that {trial.what}"
                f" changes {trial.within} losses of a step at most; it changes {changed}"
            )
    return ""


class _Run(Protocol):
    """Replays the first round on a graph, with the sums of gradients of a ``forced`` trace."""

    def __call__(self, world: FederatedGraph, forced: Trace | None = None, seed: int = 0) -> Trace: ...


def _other_draws(run: _Run, graph: FederatedGraph, first: Trace, trial: _Trial, again: Trace) -> bool:
    """Whether losses change that no row near the edge reaches: what is drawn then depends on how many edges there are,
    and other losses get other draws."""
    reached = run(replace(graph, x=_other_rows(graph, trial.near)), first)
    both = zip(changed_in_steps(first, again), changed_in_steps(first, reached), strict=False)
    return any(bool((changed & ~near).any()) for changed, near in both)


def _seen_again(run: _Run, graph: FederatedGraph, trial: _Trial) -> bool:
    """Whether other draws show it too."""
    first = run(graph, seed=1)
    return changed_losses(first, run(trial.graph, first, seed=1)) > trial.within


def _rows(graph: FederatedGraph, examples: Examples) -> Iterator[_Trial]:
    """Yield other rows for single nodes, on which losses one step too far may depend. What is 0 stays so: who draws a
    number for every other entry goes on to draw the same."""
    nodes = _some(torch.arange(graph.num_nodes)[(graph.x != 0).any(1)])
    for at, within in _telling(graph, examples, nodes[:, None], examples.hops):
        world = replace(graph, x=_other_rows(graph, nodes[at, None]))
        yield _Trial(world, f"the row of node {int(nodes[at])}", within, nodes[at, None])


def _other_rows(graph: FederatedGraph, nodes: Tensor) -> Tensor:
    """Return the features with other ones for ``nodes``, 0 where they were 0."""
    rows, x = graph.x[nodes], graph.x.clone()
    other = LENGTH * torch.randn(rows.shape, generator=derive(0, "reached losses", int(nodes[0])))
    x[nodes] = torch.where(rows != 0, other.to(rows), 0)
    return x


def _edges(protocol: FederatedProtocol, graph: FederatedGraph, examples: Examples) -> Iterator[_Trial]:
    """Yield the graph without single edges within clients. Draws among neighbours depend on all of them, and where
    losses see other clients' nodes, or edges enter what is sent besides, nothing is promised about edges."""
    if examples.across or examples.widest is not None or protocol.cross_edges(graph):
        return
    row, column = graph.edge_index if examples.pooled else _inside(graph)
    pairs = _some(torch.stack([row, column], 1)[row < column])
    steps = examples.hops - (0 if examples.by_degree and examples.hops else 1)
    for at, within in _telling(graph, examples, pairs, steps):
        one, other = pairs[at].tolist()
        near = torch.cat([column[torch.isin(row, pairs[at])], pairs[at]]) if examples.by_degree else pairs[at]
        world = replace(graph, edge_index=without_edge(graph.edge_index, one, other))
        yield _Trial(world, f"the edge between nodes {one} and {other}", within, near)


def _some(candidates: Tensor) -> Tensor:
    order = torch.randperm(len(candidates), generator=derive(0, "reached losses", len(candidates)))
    return candidates[order[:_CANDIDATES]]


def _telling(graph: FederatedGraph, examples: Examples, starts: Tensor, steps: int) -> Sequence[tuple[int, int]]:
    """Return which ``starts`` [C, S], nodes each, have most losses ``steps + 1`` away and none closer than that, with
    how many losses there are within ``steps``."""
    if not len(starts):
        return ()
    counted = torch.zeros(graph.num_nodes)
    counted.index_add_(0, torch.cat(graph.clients), torch.cat(graph.train).float())
    losses = torch.where(counted > 0, counted.clamp(min=examples.per_node), 0).double().numpy()
    row, column = graph.edge_index if examples.across or examples.pooled else _inside(graph)
    size = graph.num_nodes
    step = sp.csr_array((np.ones(len(row)), (row.numpy(), column.numpy())), shape=(size, size)) + sp.eye_array(size)
    at = np.repeat(np.arange(len(starts)), starts.shape[1])
    reached = sp.csr_array((np.ones(len(at)), (at, starts.flatten().numpy())), shape=(len(starts), size))
    within = np.zeros(len(starts))
    for _ in range(steps + 1):
        within = reached @ losses
        reached = sp.csr_array(reached @ step)
        reached.data[:] = 1
    beyond = reached @ losses
    best = np.argsort(within - beyond, kind="stable")[:_TRIED]
    return [(int(n), round(within[n])) for n in best.tolist() if beyond[n] > within[n]]


def _inside(graph: FederatedGraph) -> Tensor:
    """Return the edges [2, E] both of whose ends one client has."""
    clients = np.repeat(np.arange(graph.num_clients), [len(held) for held in graph.clients])
    at = torch.cat(graph.clients).numpy(), clients
    held = sp.csr_array((np.ones(len(clients)), at), shape=(graph.num_nodes, graph.num_clients))
    row, column = graph.edge_index.numpy()
    shared = held[row].multiply(held[column]).sum(1)
    return graph.edge_index[:, torch.from_numpy(shared > 0)]
