"""Rows from neighbour sums alone: what the server and the wire learn without knowing a single edge or degree.

FedGCN without encryption shows the server ``P[m, i]``, the part of node i's sum that lies at client m. Clients hold few
neighbours of any one node, so a part has few terms, and the part at i's own client contains ``x_i / D_i``. Entries of
such a part take few distinct values: one per term, and sums of two where two terms share a word. Values that are no
such sums are the terms; the self term is the one whose inverse is an integer (``D_i``, or ``D_i`` times the number of
entries if rows are normalised), while other terms are ``1 / sqrt(D_i D_j)``. Its entries are x_i, assigned to node i by
the message itself. With noise, entries get their posterior (:mod:`fglaudit.attacks.sums.noisy_parts`), and a row those
with the best expected F1.

Where the parts cannot be read and the totals can (secure aggregation), the totals are read in the same way: they have
more terms.

Not separable: terms of equal value, e.g. a neighbour at the same client with the same degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges, own_nodes, sees_deliveries
from fglaudit.adversary.modelled import kept_columns, row_clip, sealed
from fglaudit.adversary.priors.expected_f1 import MOST_ENTRIES, best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, rounding_of_sums
from fglaudit.attacks.sums.equations.neighbor_equations import ROUNDING, presence
from fglaudit.attacks.sums.equations.sum_errors import added_to_sums
from fglaudit.attacks.sums.modelled_facts import in_errors, in_terms
from fglaudit.attacks.sums.noisy_parts import noisy_entries
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.attacks.sums.recorded_sums import RecordedSums, missing_sums, owners, recorded_sums, sees_parts
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, NeighborSums, Payload
from fglaudit.structure import COUNTS, ROW_MEAN, Sums
from fglaudit.view import View

_SAME = 2e-6
"""Relative difference below which two float32 entries are the same value."""
_INTEGER = 1e-5
_VALUES = 24
"""Distinct values looked at per part, the most frequent first."""
_LEAST_NOISE = 1e-3
"""Below it float32 sums are as good as without noise."""
_RARE = 1e-6
"""Least probability of an entry, whatever known rows say."""
_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class ServerPartialSums(Attack):
    """Rows read out of the sums that the server or the wire sees, without the topology."""

    name: ClassVar[str] = "server-partial-sums"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        """Entries of columns that are not used are not claimed; entries well above noise or a grid are terms whatever
        a clip made of their level."""
        in_rows = row_clip(fact) or kept_columns(fact)
        return in_terms(fact) or in_errors(fact) or in_rows or sealed(fact, NeighborSums)

    def unsupported(self, view: View) -> str | None:
        if not sees_deliveries(view):
            return "only the server and the wire see the sums of all nodes"
        if view.public.features is FeatureKind.REAL:
            return "terms are told apart by rows whose non-zero entries are equal; these are real-valued"
        if missing := missing_sums(view):
            return missing
        if view.public.structure.of(Sums).weighting == ROW_MEAN:
            return (
                "rows are told apart by their weights, or as whole numbers; in means all weights are equal:"
                " not modelled, and no sign of protection"
            )
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        sums = recorded_sums(view)
        at, chosen, values = sums.parties, ~own_nodes(view)[sums.nodes], sums.values
        if sees_parts(view):
            owner = owners(view, sums, known_edges(view))[sums.nodes]
            chosen &= (at >= 0) & torch.where(owner >= 0, owner == at, True)
        else:
            chosen &= at == SERVER
            chosen &= ~presence(view, sums, known_edges(view))[1][sums.nodes]
            values = without_own_uploads(view, sums)
        picked = chosen.nonzero().squeeze(1)
        parts = values[picked].double().to(device)
        return read_parts(view, sums.nodes[picked], parts, _noise(view, parts), rounding_of_sums(view, NeighborSums))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng, lone_nodes=True)


def read_parts(view: View, nodes: Tensor, parts: Tensor, std: Tensor, error: float) -> Reconstruction:
    """Return the rows of ``nodes`` [R], read out of sums that hold them and a few others.

    Args:
        parts: the sums [R, F], float64.
        std: standard deviation of noise on their entries [R].
        error: largest error of their entries beside noise.
    """
    if bool((std > 0).any()):
        return _through_noise(view, nodes, parts, std)
    if view.public.structure.of(Sums).weighting == COUNTS and view.public.features is FeatureKind.BINARY:
        found = parts > (0.5 if clip_of_rows(view) is None else 1e-6 + error)
        certainty = torch.full((len(parts),), 0.5, dtype=torch.double, device=parts.device)
    else:
        whole = clip_of_rows(view) is None  # a clip leaves levels whose inverses are no integers
        found = torch.zeros_like(parts, dtype=torch.bool)
        certainty = torch.zeros(len(parts), dtype=torch.double, device=parts.device)
        # Sums of few terms take few distinct values: a table is as wide as its longest row.
        for block in torch.split((parts > error).sum(1).argsort(stable=True), _ROWS_AT_ONCE):
            found[block], certainty[block] = _self_terms(parts[block], error, whole)
        told = found.any(1) | ~(parts > error).any(1)  # a sum without any term of its own says nothing of the row
        nodes, found, certainty = nodes[told.cpu()], found[told], certainty[told]
    nodes, best = _best_part(nodes, certainty.cpu())
    rows = found.cpu()[best].float()
    if view.public.features is FeatureKind.SCALED_BINARY:
        rows = rows / rows.sum(1, keepdim=True).clamp(min=1)
    return Reconstruction(rows, nodes, certainty.cpu()[best], torch.zeros(len(nodes), dtype=torch.bool))


def _through_noise(view: View, nodes: Tensor, parts: Tensor, std: Tensor) -> Reconstruction:
    """Return the likeliest rows of ``nodes`` [R] where their parts carry noise; a node's surest part speaks for it."""
    prior = feature_prior(view, nodes)
    known = prior.mean.clamp(_RARE, 1 - _RARE).float() if prior.informed else None
    chance, evidence = noisy_entries(parts.float(), std.float().clamp(min=_LEAST_NOISE), known)
    nodes, best = _best_part(nodes, evidence.cpu())
    most = MOST_ENTRIES if prior.informed else parts.shape[1]  # what says nothing about any entry rules none out
    rows = best_f1_bits(chance[best.to(chance.device)], most).cpu().float()
    if view.public.features is FeatureKind.SCALED_BINARY:
        rows = rows / rows.sum(1, keepdim=True).clamp(min=1)
    confidence = torch.full((len(nodes),), 0.5, dtype=torch.double)
    return Reconstruction(rows, nodes, confidence, torch.zeros(len(nodes), dtype=torch.bool))


def without_own_uploads(view: View, sums: RecordedSums) -> Tensor:
    """Return the sums [n, F] with the observer's own uploads subtracted from the totals; rounding errors become 0."""
    total, own = (part.nonzero().squeeze(1) for part in (sums.parties == SERVER, sums.parties >= 0))
    place = torch.full((view.public.num_nodes,), -1)
    place[sums.nodes[total]] = total
    where = place[sums.nodes[own]]
    values = sums.values.double().index_add(0, where[where >= 0], -sums.values[own[where >= 0]].double())
    tolerance = ROUNDING * sums.values.abs() + rounding_of_sums(view, NeighborSums)
    return torch.where(values.abs() <= tolerance, 0.0, values)


def _noise(view: View, sums: Tensor) -> Tensor:
    """Return the standard deviation of what the defense adds to ``sums`` [R, F], partial or total ones [R].

    Of a total it is unknown how many clients added to it. Rows are not negative, so what is below zero is noise alone.
    """
    up = added_to_sums(view, sums, "up")
    if sees_parts(view) or len(sums) == 0:
        return up
    below = sums.clamp(max=0)
    spread = (below.square().sum(1) / (below < 0).sum(1).clamp(min=1)).sqrt()
    return torch.where(torch.hypot(up, added_to_sums(view, sums, "down")) > 0, spread, 0.0)


def _best_part(nodes: Tensor, certainty: Tensor) -> tuple[Tensor, Tensor]:
    """Return each node once, and which of its parts is the surest to hold a self term."""
    order = certainty.argsort(stable=True)
    order = order[nodes[order].argsort(stable=True)]
    unique, count = torch.unique_consecutive(nodes[order], return_counts=True)
    return unique, order[count.cumsum(0) - 1]


def _self_terms(parts: Tensor, error: float, whole: bool) -> tuple[Tensor, Tensor]:
    """Return the entries of the self term of each sum [B, F], and the confidence in it [B].

    Args:
        parts: the sums [B, F].
        error: largest error of their entries.
        whole: whether the inverse of a self term's entries is an integer; otherwise the most frequent term is taken.
    """
    row, entry = (parts > error).nonzero(as_tuple=True)
    value = parts[row, entry]
    order = value.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    row, entry, value = row[order], entry[order], value[order]
    new = torch.ones_like(row, dtype=torch.bool)
    new[1:] = (row[1:] != row[:-1]) | (value[1:] > value[:-1] * (1 + _SAME) + 2 * error)
    cluster = new.cumsum(0) - 1
    number = torch.bincount(cluster)
    table, frequency, slot = _tabulate(row[new], value[new], number, len(parts))

    # Which values [B, V] are sums of two that are no rarer, and of which pairs [B, V, P].
    width = table.shape[1]
    one, other = torch.triu_indices(width, width, 1, device=parts.device)
    pair, common = table[:, one] + table[:, other], torch.minimum(frequency[:, one], frequency[:, other])
    least = torch.where(frequency > 0, frequency, parts.shape[1] + 1)
    match = (pair[:, None] - table[:, :, None]).abs_() <= (2 * _SAME * table + 3 * error)[:, :, None]
    match &= common[:, None] >= least[:, :, None]
    composite = match.any(2)
    inverse = 1 / table.clamp(min=1e-12)
    integral = (inverse - inverse.round()).abs() <= _INTEGER * inverse + error * inverse.square()
    candidate = (frequency > 0) & ~composite
    if whole:
        candidate &= integral
    choice = torch.where(candidate, frequency, -1).argmax(1)
    with_choice = (match & ((one == choice[:, None]) | (other == choice[:, None]))[:, None]).any(2)
    taken = with_choice.scatter(1, choice[:, None], True) & candidate.any(1, keepdim=True)
    inside = torch.zeros_like(parts, dtype=torch.bool)
    seen = slot[cluster] < width
    inside[row[seen], entry[seen]] = taken[row[seen], slot[cluster][seen]]
    terms = ((frequency > 0) & ~composite).sum(1)
    sure = torch.where(terms == 1, 1.0 if whole else 0.5, 0.5) * candidate.any(1)
    return inside, sure.double()


def _tabulate(row: Tensor, value: Tensor, number: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tabulate distinct values by row, most frequent first: values, frequencies [rows, V], each value's place [n]."""
    order = number.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    count = torch.bincount(row, minlength=rows)
    slot = torch.empty_like(row)
    slot[order] = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row[order]]
    width = int(count.clamp(1, _VALUES).max().item()) if rows else 1
    table = torch.zeros(rows, width, dtype=torch.double, device=row.device)
    frequency = torch.zeros(rows, width, dtype=torch.long, device=row.device)
    kept = slot < width
    table[row[kept], slot[kept]] = value[kept]
    frequency[row[kept], slot[kept]] = number[kept]
    return table, frequency, slot
