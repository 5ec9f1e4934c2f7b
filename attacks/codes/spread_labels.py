"""Labels that were propagated, solved for in the rows that an observer saw of it.

The row of a node after t steps is ``Z_t = spread A Z_{t-1} + (1 - spread) Y``, so ``Z_t = P_t Y`` with ``P_t`` known to
whoever knows the edges. ``Y`` has a row for every node that reported, one entry of 1, and zeros elsewhere. Three steps,
repeated until nothing new is found:

1. What is seen of step 0 is ``Y`` itself, each entry nearer to 0 or to 1; subtract what known rows of ``Y`` add to the
   others.
2. Where nothing is left of a row, nobody that it is made of reported: no term is negative.
3. The rest is solved for by least squares. A node's row is found where the equations determine it (its entry of the
   resolution matrix is 1) and the solution is zero or one class, further from any other than what equations are off by
   can have moved it: rows may carry noise that nobody stated.

Where a defense changed neighbourhoods, ``P_t`` is not known, and step 0 alone is read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges, own_nodes, sees_deliveries
from fglaudit.adversary.public_rules import same_neighborhoods
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import ClassReports, HopSums
from fglaudit.sparse_tensors import csr
from fglaudit.structure import SpreadReports
from fglaudit.view import View

STEPS = 4
"""Steps that are read beside step 0: farther terms drown in the rounding of single precision."""
_NOTHING = 5e-6
"""What may be left of a row that is explained: rows, at most about 1, are sent in single precision."""
SURE = 100 * _NOTHING
"""Weight from which a term would show in a row."""
_DETERMINED = 0.99
_SINGULAR = 1e-4
"""Of the largest singular value, below which directions are not solved for."""
_CLASS = 0.1
"""How far a solution may be off zero or one class, and four of its standard errors may be long."""
_ROUNDING = 1e-7
"""Error of a row in single precision: what equations are taken to be off by at least."""
_MOST = 1500
"""Nodes solved for at once at most, those of the largest weights."""
_REPEATS = 4
_ENTRIES = 2**27
"""Weights kept at most; steps beyond that are not read."""


class Found(NamedTuple):
    """``Y`` [N, C] as far as it was found, zeros elsewhere, and of which nodes it was [N]."""

    labels: Tensor
    known: Tensor


def solved_labels(view: View, device: torch.device) -> Found | None:
    """Return the propagated labels as far as they follow from what was seen; None if no row of a node was seen."""
    seen = _seen(view)
    if seen is None:
        return None
    labels, known = _given(view, seen)
    if view.topology is None or not same_neighborhoods(view) or bool(known.all()):
        return Found(labels, known)
    labels, known = labels.to(device), known.to(device)
    weights, rows = _equations(view, seen, device)
    for _ in range(_REPEATS):
        before = int(known.sum())
        left = rows - weights @ labels
        unknown = (~known).nonzero().squeeze(1)
        nothing = left.abs().amax(1) < _NOTHING
        cleared = weights[nothing][:, unknown].amax(0) > SURE if bool(nothing.any()) else torch.zeros_like(unknown) > 0
        known[unknown[cleared]] = True
        _solve(weights, left, labels, known)
        if int(known.sum()) == before:
            break
    return Found(labels.cpu(), known.cpu())


def _seen(view: View) -> dict[int, tuple[Tensor, Tensor]] | None:
    """Return by step the nodes whose rows were seen, each once, and their rows; None if there is none."""
    parts: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for batch, payload in view.sent(HopSums):
        if batch.round <= STEPS and len(payload.tensors()["nodes"]):
            parts.setdefault(batch.round, []).append((payload.nodes.cpu(), payload.sums.cpu().double()))
    seen = {}
    for step, pieces in parts.items():
        nodes, index = torch.unique(torch.cat([piece[0] for piece in pieces]), return_inverse=True)
        rows = torch.cat([piece[1] for piece in pieces])
        seen[step] = nodes, rows.new_zeros(len(nodes), rows.shape[1]).index_copy_(0, index, rows)
    return seen or None


def _given(view: View, seen: dict[int, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return what the observer has without solving: reports that it saw or sent, and rows of step 0."""
    n, width = view.public.num_nodes, next(iter(seen.values()))[1].shape[1]
    labels, known = torch.zeros(n, width, dtype=torch.double), own_nodes(view)
    for _, payload in view.sent(ClassReports):
        labels[payload.nodes.cpu()] = payload.values.cpu().double()
        known[payload.nodes.cpu()] = True
        known |= sees_deliveries(view)  # who is sent every report knows who sent none
    if 0 in seen:
        nodes, rows = seen[0]
        whole, plain = _nearest(rows)
        labels[nodes[plain]], known[nodes[plain]] = whole[plain], True
    return labels, known


def _equations(view: View, seen: dict[int, tuple[Tensor, Tensor]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return how the rows of steps 1 to ``STEPS`` are made of all reports: weights [R, N], and the rows [R, C]."""
    n, spread = view.public.num_nodes, view.public.structure.of(SpreadReports).spread
    row, column = known_edges(view).to(device)
    scale = torch.bincount(row, minlength=n).double().rsqrt()
    step = csr(row_starts(row, n), column, scale[row] * scale[column], n)
    weights, rows = list[Tensor](), list[Tensor]()
    for number in sorted(set(seen) - {0}):
        nodes, values = seen[number]
        if n * (len(nodes) + sum(map(len, rows))) > _ENTRIES:
            break
        start = torch.zeros(n, len(nodes), dtype=torch.double, device=device)
        start[nodes.to(device), torch.arange(len(nodes), device=device)] = 1.0
        made = start  # the step's matrix is symmetric, so its powers may be taken from the side of the seen rows
        for _ in range(number):
            made = spread * (step @ made) + (1 - spread) * start
        weights.append(made.T)
        rows.append(values.to(device))
    if not weights:
        width = next(iter(seen.values()))[1].shape[1]
        none = torch.zeros(0, n, dtype=torch.double, device=device)
        return none, torch.zeros(0, width, dtype=torch.double, device=device)
    return torch.cat(weights), torch.cat(rows)


def _solve(weights: Tensor, left: Tensor, labels: Tensor, known: Tensor) -> None:
    """Add to ``labels`` and ``known`` what the rows' rest ``left`` [R, C] determines of other nodes."""
    unknown = (~known).nonzero().squeeze(1)
    if not len(unknown) or not len(left):
        return
    largest = weights[:, unknown].amax(0)
    unknown, largest = unknown[largest > SURE], largest[largest > SURE]
    if not len(unknown):
        return
    unknown = unknown[largest.topk(min(_MOST, len(unknown))).indices]
    made = weights[:, unknown]
    outside = weights[:, ~known].sum(1) - made.sum(1)  # weights of nodes that are not solved for
    made, left = made[outside < _NOTHING], left[outside < _NOTHING]
    values, basis = torch.linalg.eigh(made.T @ made)
    kept = values > _SINGULAR**2 * values[-1].clamp(min=1e-30)
    basis, values = basis[:, kept], values[kept]
    solution = basis @ ((basis.T @ (made.T @ left)) / values.unsqueeze(1))
    spare = max(1, (len(made) - len(values)) * left.shape[1])
    off = max(_ROUNDING, float((left - made @ solution).norm()) / spare**0.5)
    error = off * (basis.square() / values).sum(1).sqrt()
    determined = (basis.square().sum(1) > _DETERMINED) & (4 * error < _CLASS)
    whole, plain = _nearest(solution)
    right = determined & plain & ((solution - whole).abs().amax(1) < _CLASS)
    labels[unknown[right]], known[unknown[right]] = whole[right], True


def _nearest(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return zeros or ones next to ``rows`` [R, C], and which rows are then no class or one [R]."""
    whole = rows.round().clamp(0, 1)
    return whole, whole.sum(1) <= 1
