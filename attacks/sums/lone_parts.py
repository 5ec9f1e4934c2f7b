"""Rows of any real numbers from the sums that the server or the wire sees, without knowing a single edge or degree.

FedGCN without encryption shows the server ``P[m, i]``, the part of node i's sum that lies at client m, and by whom it
passes ``S_i`` on to who holds i. The part at i's own client is ``x_i / D_i`` and its neighbours' there; with the nodes
of a sparse graph spread over ten clients most have none there, and the part is the row but for ``D_i = degree + 1``.
Parallel parts show the degrees (:mod:`fglaudit.attacks.sums.degree_ratios`). Words need none of this:
:mod:`fglaudit.attacks.sums.server_partial_sums` takes sums of several of their rows apart by their values, which
real-valued rows do not allow.

Noise that a defense adds is allowed for as far as known rows say how much rows vary. Where the parts cannot be read and
the totals can (secure aggregation), the totals are taken in their place, less the observer's own parts; they have more
terms, and show directions alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, own_nodes, sees_deliveries
from fglaudit.adversary.modelled import kept_columns, row_clip, sealed
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, known_as_used, unused_columns
from fglaudit.attacks.sums.degree_ratios import Ratios, least_degrees, lowest_terms, parallel_parts
from fglaudit.attacks.sums.equations.neighbor_equations import presence
from fglaudit.attacks.sums.equations.sum_errors import added_to_sums
from fglaudit.attacks.sums.modelled_facts import in_errors, in_terms
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.attacks.sums.recorded_sums import RecordedSums, missing_sums, owners, recorded_sums, sees_parts
from fglaudit.attacks.sums.server_partial_sums import without_own_uploads
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, NeighborSums, Payload
from fglaudit.rng import split
from fglaudit.structure import COUNTS, NORMALISED, Sums
from fglaudit.view import View


@dataclass(frozen=True)
class LoneParts(Attack):
    """Real-valued rows read off the parts of nodes without neighbours at their own client."""

    name: ClassVar[str] = "lone-parts"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "f1"

    def models(self, fact: Fact) -> bool:
        """Noise and grids enter by their standard deviation, a clip of rows by what it leaves of known ones; of columns
        that are not used nothing is read."""
        return in_terms(fact) or in_errors(fact) or row_clip(fact) or kept_columns(fact) or sealed(fact, NeighborSums)

    def unsupported(self, view: View) -> str | None:
        if not sees_deliveries(view):
            return "only the server and the wire see the sums of all nodes"
        if view.public.features is not FeatureKind.REAL:
            return "rows whose non-zero entries are equal are taken apart by server-partial-sums"
        return missing_sums(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        sums = recorded_sums(view)
        mine = own_nodes(view)[sums.nodes]
        if sees_parts(view):
            own = _own_parts(view, sums)
            degrees = _degrees(view, sums, own, split(rng, "direction"))
            picked = (own & ~mine).nonzero().squeeze(1)
            rows = sums.values[picked].double()
        else:
            gone = presence(view, sums, known_edges(view))[1]
            picked = ((sums.parties == SERVER) & ~mine & ~gone[sums.nodes]).nonzero().squeeze(1)
            rows, degrees = without_own_uploads(view, sums)[picked].double(), known_degrees(view) + 1
        nodes = sums.nodes[picked]
        scale = torch.ones(len(nodes), dtype=torch.double)
        if view.public.structure.of(Sums).weighting != COUNTS:
            scale = degrees[nodes].clamp(min=1).double()
        prior, std = feature_prior(view, nodes), scale * added_to_sums(view, rows, "up")
        left = _left_by_clip(view)
        variance = prior.variance * left**2
        share = variance / (variance + std.square()[:, None]).clamp(min=1e-300)
        share = torch.where(std[:, None] > 0, share, 1.0).masked_fill(unused_columns(view), 0.0)
        found = prior.mean + share * (rows * scale[:, None] / left - prior.mean)
        return Reconstruction(found.float(), nodes, share.mean(1), torch.zeros(len(nodes), dtype=torch.bool))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng, lone_nodes=True)


def _own_parts(view: View, sums: RecordedSums) -> Tensor:
    """Return which sums [n] are the part of a node at its own client: of several candidates the longest."""
    owner = owners(view, sums, known_edges(view))[sums.nodes]
    able = (sums.parties >= 0) & ((owner < 0) | (owner == sums.parties))
    length = torch.where(able, sums.values.norm(dim=1), -1.0)
    order = length.argsort(stable=True)
    best = torch.full((view.public.num_nodes,), -1)
    best[sums.nodes[order]] = order  # the last write, the longest, stays
    return able & (best[sums.nodes] == torch.arange(len(able)))


def _left_by_clip(view: View) -> float:
    """Return the factor that a clip leaves of a typical known row; 1 without a clip."""
    raw = view.known_rows().x
    length = raw.norm(dim=1)
    if clip_of_rows(view) is None or not bool((length > 0).any()):
        return 1.0
    used = known_as_used(view, raw).norm(dim=1)
    return max(1e-6, float((used / length)[length > 0].median().item()))


def _degrees(view: View, sums: RecordedSums, own: Tensor, rng: torch.Generator) -> Tensor:
    """Return one more than the degree of every node [N], as known, or as parallel parts have it."""
    n, known = view.public.num_nodes, known_degrees(view)
    uploaded = sums.parties >= 0
    least = 1 + torch.bincount(sums.nodes[uploaded & ~own], minlength=n)
    index = uploaded.nonzero().squeeze(1)
    part, partner, ratio = parallel_parts(sums.parties[index], own[index], sums.values[index], rng)
    power = 2 if view.public.structure.of(Sums).weighting == NORMALISED else 1
    above, below = lowest_terms(ratio**power)
    ratios = Ratios(sums.nodes[index[part]], sums.nodes[index[partner]], above, below)
    sure = (above > 0) & (below > 0) & (above <= n) & (below <= n)
    ratios = Ratios(ratios.nodes[sure], ratios.neighbors[sure], above[sure], below[sure])
    return torch.where(known >= 0, known + 1, least_degrees(ratios, least, n))
