"""Linear equations over the unknown feature rows that follow exactly from an observer's ``NeighborSums``.

FedGCN (section 4): client m uploads ``P[m, i] = sum of A_ij x_j over the closed neighbours j of i at m``, and whoever
needs node i receives ``S_i = sum of A_ij x_j over all closed neighbours``. Everything the observer sent itself is
subtracted exactly; what remains is one equation per node (clients) or per node and uploader (server, wire).

With ``A_ij = 1 / sqrt(D_i D_j)``, ``D = degree + 1``, row i is multiplied by ``sqrt(D_i)``: a neighbour then has the
same coefficient ``1 / sqrt(D_j)`` in every equation it is part of.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, own_clients, own_nodes, sees_deliveries
from fglaudit.adversary.public_rules import (
    absent_clients,
    bounded_degrees,
    fewest_neighbors,
    known_as_used,
    noise_of_rows,
    rounding_of_sums,
)
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.attacks.sums.equations.dropped_terms import left_terms
from fglaudit.attacks.sums.equations.sum_errors import added_to_sums
from fglaudit.attacks.sums.equations.term_weights import term_weights
from fglaudit.attacks.sums.recorded_sums import (
    RecordedSums,
    missing_sums,
    owners,
    possible_owners,
    recorded_sums,
    sees_parts,
)
from fglaudit.facts import Additive
from fglaudit.graph import positions
from fglaudit.payloads import SERVER, NeighborSums
from fglaudit.structure import COUNTS, NORMALISED, ROW_MEAN, Sums
from fglaudit.view import View

ROUNDING = 4e-7
"""Rounding error of a float32 sum relative to its size: a few additions of 2^-24 each."""


@dataclass(frozen=True)
class NeighborEquations:
    """``values[r] = sum over its terms e of coefficients[e] x[columns[e]] + up to hidden[r] further rows + noise``.

    Attributes:
        nodes: global ids of the unknown rows [U], ascending.
        rows, columns, coefficients: the known terms, each [E]; a coefficient is NaN where the observer lacks a degree.
        values: [R, F], float64.
        tolerance: bound on the rounding of ``values`` [R, F].
        std: standard deviation of the defense's noise and rounding to a grid in ``values`` [R].
        hidden: bound on the number of further unknown neighbours [R]; 0 where the equation is complete.
        about: the node each equation is the sum of [R].
        uploader: the client whose partial sum it is, ``SERVER`` for a total sum [R].
    """

    nodes: Tensor
    rows: Tensor
    columns: Tensor
    coefficients: Tensor
    values: Tensor
    tolerance: Tensor
    std: Tensor
    hidden: Tensor
    about: Tensor
    uploader: Tensor

    @property
    def num_rows(self) -> int:
        return self.values.shape[0]

    @property
    def num_unknowns(self) -> int:
        return len(self.nodes)

    def to(self, device: torch.device) -> NeighborEquations:
        """Move all tensors to ``device``."""
        return NeighborEquations(**{f.name: getattr(self, f.name).to(device) for f in dataclasses.fields(self)})


def no_equations(view: View, *, need_degrees: bool) -> str | None:
    """Return why ``view`` yields no equations with known coefficients, or None."""
    reason = missing_sums(view)
    if reason is not None:
        return reason
    if sees_deliveries(view) and view.topology is None and not view.own:
        return (
            "without the edges it is unknown which rows a sum is made of; give the observer topology, or use"
            " server-partial-sums"
        )
    if len(absent_clients(view, NeighborSums)) and not sees_deliveries(view):
        return "clients dropped out of the sums, and a client does not know which of its neighbours are theirs"
    if bounded_degrees(view) and (
        view.topology is not None or any(client.remote_degrees is None for client in view.own)
    ):
        return (
            "which edges the degree bound leaves depends on who holds which node, and on degrees; a client knows both"
            " of its own edges"
        )
    weighted = view.public.structure.of(Sums).weighting != COUNTS
    nothing_else = view.topology is None and view.degrees is None
    if need_degrees and weighted and nothing_else and all(client.remote_degrees is None for client in view.own):
        return "the observer does not know the degrees of its neighbours, so the coefficients are unknown"
    return None


@dataclass(frozen=True)
class _Knowledge:
    """What the observer knows.

    Attributes:
        sums: recorded sums [n].
        edges: closed edges [2, E].
        degrees: [N], -1 where unknown.
        mine: own nodes [N].
        owner: client of each node [N], -1 where unknown.
        present: nodes that are certainly in the sums [N].
        missing: nodes that certainly are not, because their client dropped out [N].
    """

    sums: RecordedSums
    edges: Tensor
    degrees: Tensor
    mine: Tensor
    owner: Tensor
    present: Tensor
    missing: Tensor


@once_per_view
def neighbor_equations(view: View) -> NeighborEquations:
    """Return the observer's equations; auxiliary rows count as known and are subtracted.

    An observer of the uploads gets one equation per partial sum, and one per total sum where it cannot tell which
    client holds which of the terms.
    """
    sums, edges = recorded_sums(view), known_edges(view)
    parts = sees_parts(view)
    owner = owners(view, sums, edges) if parts else own_clients(view)
    present, missing = presence(view, sums, edges)
    known = _Knowledge(sums, edges, known_degrees(view), own_nodes(view), owner, present, missing)
    equations = _equations(view, known, parts=False)
    if parts:
        unsure = (owner < 0) & ~known.mine
        open_ends = torch.bincount(edges[0], unsure[edges[1]].double(), minlength=view.public.num_nodes) > 0
        partial = _equations(view, known, parts=True)
        equations = _stack(partial, _select_rows(equations, open_ends[equations.about]))
    return _compact(_subtract_known(equations, view.auxiliary.nodes, known_as_used(view, view.auxiliary.x)))


def presence(view: View, sums: RecordedSums, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Return which nodes' rows are certainly in the sums [N], and which certainly are not [N]."""
    absent = absent_clients(view, NeighborSums)
    if not len(absent):
        return torch.ones(view.public.num_nodes, dtype=torch.bool), torch.zeros(view.public.num_nodes, dtype=torch.bool)
    candidates = possible_owners(view, sums, edges)
    gone = torch.isin(torch.arange(view.public.num_clients), absent)
    return ~candidates[:, gone].any(1), ~candidates[:, ~gone].any(1)


def _equations(view: View, known: _Knowledge, *, parts: bool) -> NeighborEquations:
    """Return the equations of partial or of total sums; ``nodes`` are all ids, ``columns`` point into them."""
    sums, degrees = known.sums, known.degrees
    own_upload = torch.isin(sums.parties, torch.tensor(view.observer.clients, dtype=torch.long))
    picked = ((sums.parties != SERVER) & ~own_upload if parts else sums.parties == SERVER).nonzero().squeeze(1)
    about, uploader = sums.nodes[picked], sums.parties[picked]
    if parts:
        values = sums.values[picked].double()
        size = values.abs()
    else:
        values, size = _remote_parts(view, known, picked, own_upload)
    rows, columns, hidden = _terms(view, known, about, uploader, parts=parts)

    degree = degrees[about]
    scale = torch.ones(len(about), dtype=torch.double)
    coefficients = torch.ones(len(columns), dtype=torch.double)
    weighting = view.public.structure.of(Sums).weighting
    if weighting == ROW_MEAN:
        scale = torch.where(degree < 0, 1.0, (degree + 1.0).double())
        coefficients = torch.where(degree[rows] < 0, torch.nan, coefficients)
    elif weighting == NORMALISED:
        scale = torch.where(degree < 0, 1.0, (degree + 1.0).double().sqrt())
        unknown_weight = (degrees[columns] < 0) | (degree[rows] < 0)
        coefficients = torch.where(unknown_weight, torch.nan, (degrees[columns] + 1.0).double().rsqrt())
    std = added_to_sums(view, values, "up")
    if not parts:
        others = torch.bincount(rows, minlength=len(about)) + hidden
        std = std * _expected_uploaders(others, view.public.num_clients - len(view.observer.clients)).sqrt()
        std = torch.hypot(std, added_to_sums(view, values, "down"))
    std = std * scale
    if isinstance(noisy := noise_of_rows(view), Additive):  # every term brings noise of its own
        squares = torch.zeros_like(std).index_add_(0, rows, coefficients.nan_to_num(1.0).square())
        std = (std.square() + squares * noisy.std**2).sqrt()
    return NeighborEquations(
        nodes=torch.arange(view.public.num_nodes),
        rows=rows,
        columns=columns,
        coefficients=coefficients,
        values=values.mul_(scale[:, None]),  # both are memory of ours
        tolerance=size.mul_(ROUNDING).add_(1e-9).add_(rounding_of_sums(view, NeighborSums)).mul_(scale[:, None]),
        std=std,
        hidden=hidden,
        about=about,
        uploader=uploader,
    )


def _remote_parts(view: View, known: _Knowledge, picked: Tensor, own_upload: Tensor) -> tuple[Tensor, Tensor]:
    """Return total sums less the observer's own uploads, and the size of what was added and subtracted, both [R, F]."""
    n, sums, edges, degrees, mine = view.public.num_nodes, known.sums, known.edges, known.degrees, known.mine
    position = positions(sums.nodes[picked], n)
    values = sums.values[picked].double()
    if bool(own_upload.any()):
        nodes, own = sums.nodes[own_upload], sums.values[own_upload].double()
    else:  # the observer's uploads were not recorded, but it can compute them
        x = torch.zeros(n, view.public.num_features, dtype=torch.double)
        for client, inputs in zip(view.own, view.own_inputs or [client.x for client in view.own], strict=True):
            x[client.nodes] = inputs.double() * known.present[client.nodes, None]
        row, column = edges[:, mine[edges[1]] & (position[edges[0]] >= 0)]
        weight = term_weights(view, degrees, row, column)
        nodes = torch.arange(n)
        own = torch.zeros_like(x).index_add_(0, row, weight[:, None] * x[column])
    where = position[nodes]
    own, where = own[where >= 0], where[where >= 0]
    return values.index_add(0, where, -own), values.abs().index_add(0, where, own.abs())


def _terms(
    view: View, known: _Knowledge, about: Tensor, uploader: Tensor, *, parts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows [E] and node ids [E] of the unknown terms of every sum, and ``hidden`` [R].

    Args:
        about, uploader: node and uploader of every sum [R].
        parts: whether these are partial sums.
    """
    n, count = view.public.num_nodes, len(about)
    edges, degrees, mine = known.edges, known.degrees, known.mine
    starts = torch.searchsorted(edges[0].contiguous(), torch.arange(n + 1))
    sizes = (starts[1:] - starts[:-1])[about]
    rows = torch.repeat_interleave(torch.arange(count), sizes)
    columns = edges[1][starts[about][rows] + torch.arange(len(rows)) - (sizes.cumsum(0) - sizes)[rows]]
    inside = torch.bincount(rows, minlength=count) - 1
    complete = mine[about] | (view.topology is not None)
    hidden = torch.where(complete, 0, torch.where(degrees[about] < 0, n, degrees[about] - inside))
    keep = ~mine[columns]
    if fewest_neighbors(view) > 1:
        certain, possible = left_terms(view, known.sums, known.owner, about, rows, columns)
        hidden = hidden + torch.bincount(rows[keep & possible], minlength=count)
        keep &= certain
    if not parts:
        unsure = keep & ~known.present[columns] & ~known.missing[columns]
        hidden = hidden + torch.bincount(rows[unsure], minlength=count)
        keep &= known.present[columns]
    if parts:
        owner = known.owner[columns]
        hidden = hidden + torch.bincount(rows[keep & (owner < 0)], minlength=count)
        keep &= owner == uploader[rows]
    return rows[keep], columns[keep], hidden


def _expected_uploaders(neighbors: Tensor, others: int) -> Tensor:
    """Return how many of ``others`` clients are expected to hold one of ``neighbors`` evenly spread nodes.

    Each of them adds noise of its own.
    """
    return (others * (1 - (1 - 1 / max(others, 1)) ** neighbors.double())).clamp(min=1)


def _subtract_known(equations: NeighborEquations, nodes: Tensor, x: Tensor) -> NeighborEquations:
    """Move terms of known ``nodes`` [A] with rows ``x`` [A, F] into the values, where their coefficient is known."""
    if len(nodes) == 0:
        return equations
    place = torch.searchsorted(nodes, equations.nodes[equations.columns]).clamp(max=len(nodes) - 1)
    hit = (nodes[place] == equations.nodes[equations.columns]) & ~equations.coefficients.isnan()
    change = equations.coefficients[hit, None] * x[place[hit]].double()
    return dataclasses.replace(
        equations,
        rows=equations.rows[~hit],
        columns=equations.columns[~hit],
        coefficients=equations.coefficients[~hit],
        values=equations.values.index_add(0, equations.rows[hit], -change),
        tolerance=equations.tolerance.index_add(0, equations.rows[hit], ROUNDING * change.abs()),
    )


_BY_ROW = ("values", "tolerance", "std", "hidden", "about", "uploader")


def _select_rows(equations: NeighborEquations, chosen: Tensor) -> NeighborEquations:
    """Return the equations where the mask ``chosen`` [R] is true."""
    term = chosen[equations.rows]
    number = chosen.cumsum(0) - 1
    by_term = {name: getattr(equations, name)[term] for name in ("columns", "coefficients")}
    by_row = {name: getattr(equations, name)[chosen] for name in _BY_ROW}
    return dataclasses.replace(equations, rows=number[equations.rows[term]], **by_term, **by_row)


def _stack(first: NeighborEquations, second: NeighborEquations) -> NeighborEquations:
    """Return both sets of equations over the same unknowns."""
    if second.num_rows == 0:
        return first
    names = ("columns", "coefficients", *_BY_ROW)
    joined = {name: torch.cat([getattr(first, name), getattr(second, name)]) for name in names}
    return dataclasses.replace(first, rows=torch.cat([first.rows, second.rows + first.num_rows]), **joined)


def _compact(equations: NeighborEquations) -> NeighborEquations:
    """Drop equations without terms and unknowns without equations."""
    kept, rows = torch.unique(equations.rows, return_inverse=True)
    present, columns = torch.unique(equations.columns, return_inverse=True)
    all_kept = len(kept) == equations.num_rows
    by_row = {} if all_kept else {name: getattr(equations, name)[kept] for name in _BY_ROW}
    return dataclasses.replace(equations, nodes=equations.nodes[present], rows=rows, columns=columns, **by_row)
