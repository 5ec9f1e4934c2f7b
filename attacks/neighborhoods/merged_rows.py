"""Decode means of merged neighbours (defense ``merge-neighbors`` on FedGAT) by the scales of 0/1 rows.

FedGAT scales a row with k ones to ``1 / sqrt(k)`` (Assumption 3), so n times the mean over n members has at each
feature a subset sum of their n scales. Its total is ``sum_j sqrt(k_j)``, which leaves few candidates for the numbers of
ones k_j; a candidate holds if every entry is a subset sum of its scales and each member comes out with k_j ones.
Entries that several subsets explain (members with equal numbers of ones) are shared between them, and such rows are
guesses.

Which nodes' rows are in a mean is public: the defense merges consecutive cross-client neighbours. Rows are assigned to
nodes by intersecting neighbourhoods, as for unmerged rows. Nothing is called proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import training_changed
from fglaudit.adversary.public_rules import fewest_neighbors, merged_size
from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.attacks.neighborhoods.modelled_facts import sealed_finely
from fglaudit.attacks.neighborhoods.planting import masked_payload, plant_masked_pairs
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows, missing_messages
from fglaudit.attacks.neighborhoods.row_levels import known_rows_as_sent, to_levels
from fglaudit.attacks.neighborhoods.row_matching import match_members
from fglaudit.attacks.neighborhoods.vector_columns import VectorColumns
from fglaudit.facts import EDGES, ROWS, DroppedEdges, Fact, KeptColumns, Merged
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import MaskedMatrices, MaskedVectors, Payload, RawFeatures
from fglaudit.view import View

_SAME = 1e-4
"""Largest difference of one random projection of equal rows."""
_TOTAL = 5e-4
"""Largest error of a total of n rows."""
_ENTRY = 5e-5
"""Largest error of an entry of n rows."""
_ONES = {1: 400, 2: 200, 3: 80, 4: 40}
"""Most ones per row that are tried, by number of members; larger groups are not decoded."""
_NUMBERS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class MergedRows(Attack):
    """Split means over merged neighbours into their rows."""

    name: ClassVar[str] = "merged-rows"
    consumes: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices, MaskedVectors)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (RawFeatures,)
    first_rounds: ClassVar[int | None] = 0
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        """Scales and messages are taken as exact: neither clips of rows nor noise is modelled."""
        if fact.target == EDGES:
            return type(fact) in (DroppedEdges, Merged)
        if fact.target == ROWS:
            return type(fact) is KeptColumns  # the scale of a row is that of its entries in these columns
        return training_changed(fact) or sealed_finely(fact, RawFeatures)

    def unsupported(self, view: View) -> str | None:
        if merged_size(view) == 1:
            return "no neighbours were merged"
        if view.public.features is not FeatureKind.BINARY:
            return "only rows of zeros and ones have scales that tell them apart"
        if not view.own:
            return "only the client that receives a mean knows whose rows are in it"
        return missing_messages(view, MaskedMatrices, MaskedVectors)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        if next(iter(view.messages.of(MaskedMatrices)), None) is not None:
            found = JointDiagonalisation().recover(view, rng, device)
        else:
            found = VectorColumns().recover(view, device)
        place, means, members = self._means(view, found, rng)
        group, bits = [], []
        for count in sorted(set(members.tolist()) & set(_ONES)):
            chosen = (members == count).nonzero().squeeze(1)
            share, solved = decode_totals(means[chosen] * count, count)
            group.append(place[chosen[solved]].repeat_interleave(count))
            bits.append((share[solved] >= 0.5).flatten(0, 1))
        n, features = view.public.num_nodes, view.public.num_features
        groups = torch.cat([torch.empty(0, dtype=torch.long), *group])
        kinds, types = torch.unique(
            torch.cat([torch.empty(0, features, dtype=torch.bool), *bits]), dim=0, return_inverse=True
        )
        none = torch.empty(0, dtype=torch.long)
        sizes = torch.bincount(groups, minlength=len(found.centers))
        rows = torch.stack([groups, types.view(-1)])
        matching = match_members(_merged_members(view, found.centers, n), rows, sizes, none, none, rng)
        bits = kinds[matching.types].float()
        full = to_levels(view, bits, matching.nodes, torch.zeros(len(bits)), unit_ball=True)
        return Reconstruction(full, matching.nodes, matching.confidence.float())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_masked_pairs(view, rng, masked_payload(view))

    def _means(self, view: View, found: NeighborhoodRows, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return every distinct row that is not a known node's.

        Of each its neighbourhood [M], the row [M, F] and the number of members [M].
        """
        direction = torch.randn(view.public.num_features, generator=rng, dtype=torch.double)
        code = found.rows.double() @ direction
        order = torch.argsort(code, stable=True)
        order = order[torch.argsort(found.group[order], stable=True)]
        new = torch.ones(len(order), dtype=torch.bool)
        new[1:] = (found.group[order].diff() != 0) | (code[order].diff() > _SAME)
        count = torch.bincount(new.long().cumsum(0) - 1) if len(order) else order
        first = order[new]
        known = (known_rows_as_sent(view).x.double() @ direction).sort().values
        near = torch.searchsorted(known, code[first] - _SAME)
        ours = (near < len(known)) & (known[near.clamp(max=len(known) - 1)] <= code[first] + _SAME)
        keep = ~ours & (count >= fewest_neighbors(view))
        return found.group[first[keep]], found.rows[first[keep]].double(), count[keep]


def _merged_members(view: View, centers: Tensor, num_nodes: int) -> Tensor:
    """Return pairs (neighbourhood, cross-client neighbour) that were merged [2, M]."""
    position = positions(centers, num_nodes)
    parts = [torch.empty(2, 0, dtype=torch.long)]
    for client in view.own:
        count = torch.bincount(client.boundary[0], minlength=len(client.nodes))
        kept = client.boundary[:, count[client.boundary[0]] >= fewest_neighbors(view)]
        parts.append(torch.stack([position[client.nodes[kept[0]]], client.remote_nodes[kept[1]]]))
    pairs = torch.cat(parts, 1)
    return pairs[:, pairs[0] >= 0]


def decode_totals(totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Decode totals of ``count`` scaled 0/1 rows.

    Args:
        totals: [G, F], float64.

    Returns:
        The share of the explanations in which a member has the feature [G, count, F], and which totals were explained
            [G].
    """
    ones = torch.combinations(torch.arange(1, _ONES[count] + 1), count, with_replacement=True).double()
    sums, order = ones.sqrt().sum(1).sort()
    low, high = (torch.searchsorted(sums, totals.sum(1) + sign * _TOTAL) for sign in (-1, 1))
    owner = torch.arange(len(totals)).repeat_interleave(high - low)
    start = (high - low).cumsum(0) - (high - low)
    candidate = order[low[owner] + torch.arange(len(owner)) - start[owner]]
    subsets = (torch.arange(2**count)[:, None] >> torch.arange(count) & 1).double()
    best = torch.full((len(totals),), torch.inf, dtype=torch.double)
    share = torch.zeros(len(totals), count, totals.shape[1], dtype=torch.double)
    step = max(1, _NUMBERS_AT_ONCE // (totals.shape[1] * len(subsets)))
    for part in torch.split(torch.arange(len(owner)), step):
        tried = ones[candidate[part]]
        error = (totals[owner[part], :, None] - (tried.rsqrt() @ subsets.T)[:, None]).abs()
        fits = (error <= _ENTRY).double()
        explained = fits.sum(2, keepdim=True)
        shares = (fits @ subsets / explained.clamp(min=1)).mT
        misfit = (shares.sum(2) - tried).abs().sum(1) + torch.where((explained > 0).all(1).squeeze(1), 0.0, torch.inf)
        ranked = torch.argsort(misfit, descending=True)  # the best of each total is written last
        for i in ranked[torch.isfinite(misfit[ranked])].tolist():
            if misfit[i] < best[owner[part[i]]]:
                best[owner[part[i]]], share[owner[part[i]]] = misfit[i], shares[i]
    return share, torch.isfinite(best)
