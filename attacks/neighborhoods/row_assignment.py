"""Assignment of rows recovered per neighbourhood to nodes, by intersecting neighbourhoods.

A client knows who the neighbours of its own nodes are, and one masked neighbourhood yields the multiset of its members'
rows. Three rules settle members until nothing changes: a node's row occurs in every neighbourhood the node belongs to;
a row that is used up in a neighbourhood belongs to none of its other members; a row that only as many members can have
as it occurs is theirs. The rules start from the observer's own rows and those of nodes whose own neighbourhood was
sent. Nodes that belong to the same neighbourhoods cannot be distinguished by any of this: one consistent choice is
made, and marked by its confidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges, own_nodes
from fglaudit.adversary.public_rules import clip_of_rows, fewest_neighbors, merged_size, noise_std, norm_bound
from fglaudit.attacks.neighborhoods.embedding_assignment import EmbeddingEvidence
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows
from fglaudit.attacks.neighborhoods.row_levels import (
    NEGLIGIBLE,
    as_bits,
    known_rows_as_sent,
    sent_as_held,
    to_levels,
)
from fglaudit.attacks.neighborhoods.row_matching import Matching, match_members
from fglaudit.attacks.neighborhoods.row_types import close_rows, equal_bits
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import MaskedMatrices, MaskedVectors, RawFeatures
from fglaudit.view import View

_DECIDED = 0.02
"""Share of the longest row's length above which float32 decides a real-valued row: moments hold squared lengths, of
which it leaves 2^-24, and a row is exact to one in a thousand, so the root of 2^-24 / 1e-3 with a margin."""
_DROWNED = 1e3
"""Standard deviation of a row that was not found: nothing of it is left in the noise."""


@dataclass(frozen=True)
class _Types:
    """Distinct rows.

    Attributes:
        rows: mean of the recovered rows of a type [T, F].
        std: its noise [T].
        of_rows, of_known: type of every recovered row [R] and of every known row [K].
    """

    rows: Tensor
    std: Tensor
    of_rows: Tensor
    of_known: Tensor


def assign_rows(view: View, found: NeighborhoodRows, rng: torch.Generator) -> Reconstruction:
    """Return the recovered rows of nodes that are not the observer's own, each with the node it is assigned to.

    Rows that no known node can have (members of a neighbourhood whose edges the observer does not know) get node -1.
    """
    known = known_rows_as_sent(view)
    types = _distinct(view, found, known.x)
    members = _members(view, found)
    named = (found.own >= 0) & ~torch.isin(found.centers, known.nodes)
    identified = torch.cat([known.nodes, found.centers[named]])
    kinds = torch.cat([types.of_known, types.of_rows[found.own[named]]])
    raw, mine = noise_std(view, RawFeatures), own_nodes(view)[known.nodes]
    seen = _as_known(found, types, members, known.nodes, mine) if raw == 0 else torch.ones_like(mine)
    evidence = EmbeddingEvidence(view, types.rows, known.nodes[seen], types.of_known[seen])
    matching = match_members(
        members, torch.stack([found.group, types.of_rows]), found.members, identified, kinds, rng, evidence
    )
    fresh = ~torch.isin(matching.nodes, known.nodes)
    nodes, chosen = matching.nodes[fresh], matching.types[fresh]
    unassigned = _unassigned(found, types, matching, members)
    nodes = torch.cat([nodes, torch.full_like(unassigned, -1)])
    chosen = torch.cat([chosen, unassigned])
    rows, std = types.rows[chosen], types.std[chosen]
    if raw > 0:  # the server scaled rows down after they got their noise
        stretch = max(1.0, (_typical_norm(view) ** 2 + raw**2 * rows.shape[1]) ** 0.5)
        rows, std = rows * stretch, ((std * stretch).square() + raw**2).sqrt()
    confidence = torch.cat([matching.confidence[fresh], torch.full((len(unassigned),), 0.5)])
    settled = torch.cat([matching.settled[fresh], torch.zeros(len(unassigned), dtype=torch.bool)])
    lost = _lost(view, members, torch.cat([nodes, known.nodes]), bool((std > 0).any()))
    nodes, rows = torch.cat([nodes, lost]), torch.cat([rows, rows.new_zeros(len(lost), rows.shape[1])])
    std = torch.cat([std, torch.full((len(lost),), _DROWNED).to(std)])
    confidence = torch.cat([confidence, torch.zeros(len(lost))])
    settled = torch.cat([settled, torch.zeros(len(lost), dtype=torch.bool)])
    rows = to_levels(view, rows, nodes, std, unit_ball=raw == 0)
    whole = sent_as_held(view, RawFeatures, MaskedMatrices, MaskedVectors) and merged_size(view) == 1
    exact = whole and bool(found.sure.all())
    decided = torch.cat([_decided(view, types.rows)[chosen], torch.zeros(len(lost), dtype=torch.bool)])
    return Reconstruction(rows, nodes, confidence * (1.0 if exact else 0.5), settled & decided & exact)


def _decided(view: View, rows: Tensor) -> Tensor:
    """Return which distinct ``rows`` [T, F] the messages hold whole [T]: a real-valued row of norm 1 may have lost its
    length, and one that is short beside others is drowned in the rounding of what is sent of them."""
    if view.public.features is not FeatureKind.REAL or len(rows) == 0:
        return torch.ones(len(rows), dtype=torch.bool)
    length = rows.norm(dim=1)
    decided: Tensor = (length < 1 - 1e-3) & (length > _DECIDED * length.max())
    return decided


def _lost(view: View, members: Tensor, done: Tensor, noisy: bool) -> Tensor:
    """Return the members of neighbourhoods [M], none of ``done``, whose row noise hides: the prior is what is left."""
    if not noisy or view.public.features is FeatureKind.REAL:
        return members.new_empty(0)
    asked = torch.unique(members[1])
    left: Tensor = asked[~torch.isin(asked, done)]
    return left


def _as_known(found: NeighborhoodRows, types: _Types, members: Tensor, known: Tensor, mine: Tensor) -> Tensor:
    """Return which rows of ``known`` nodes [K] may be those in the messages.

    Rows known beforehand are not what their owners sent where that was drawn at random: then none of them is found in
    the neighbourhoods of its node.
    """
    count = len(types.rows)
    present = torch.unique(found.group * count + types.of_rows)
    place = torch.full((int(members.max().item()) + 1 if members.numel() else 1,), -1)
    place[known[known < len(place)]] = torch.arange(len(known))[known < len(place)]
    group, at = members[0][place[members[1]] >= 0], place[members[1]][place[members[1]] >= 0]
    lacking = ~torch.isin(group * count + types.of_known[at], present)
    usable = mine.clone()
    usable[~mine] = bool((~lacking & ~mine[at]).any()) or not bool((lacking & ~mine[at]).any())
    return usable


def _typical_norm(view: View) -> float:
    """Return the norm of a typical row when it leaves its owner."""
    norms = view.known_rows().x.norm(dim=1)
    return min(norm_bound(view), float(norms.mean().item()) if len(norms) else 1.0)


def _distinct(view: View, found: NeighborhoodRows, known: Tensor) -> _Types:
    """Number the distinct rows among what was recovered and what the observer knows."""
    rows = torch.cat([found.rows, known.to(found.rows.dtype)])
    std = torch.cat([found.std.float(), torch.zeros(len(known))])
    noisy = bool((std > 0).any()) or noise_std(view, RawFeatures) > 0
    floor = 0.0
    if view.public.features is FeatureKind.REAL or noisy:
        kind = close_rows(rows, std)
    else:
        # No entry of a row is below one over their number: where all rows are zeros, rounding is all there is.
        least = 1 / rows.shape[1] if clip_of_rows(view) is None else 0.0
        floor = NEGLIGIBLE * max(least, float(rows.abs().amax().item()) if len(rows) else 0.0)
        kind = equal_bits(as_bits(torch.where(rows.abs() > floor, rows, 0.0)))
    count = int(kind.max().item()) + 1 if len(kind) else 0
    recovered = kind[: len(found.rows)]
    weight = 1 / (found.std.float().square() + 1e-12)
    total = torch.zeros(count, rows.shape[1]).index_add_(0, recovered, weight[:, None] * found.rows)
    scale = torch.zeros(count).index_add_(0, recovered, weight)
    mean = total / scale.clamp(min=1e-30)[:, None]
    mean = torch.where(mean.abs() > floor, mean, 0.0)
    noise = torch.where(scale < 1e11, scale.clamp(min=1e-30).rsqrt(), 0.0)
    return _Types(mean, noise, recovered, kind[len(found.rows) :])


def _members(view: View, found: NeighborhoodRows) -> Tensor:
    """Return pairs (neighbourhood, node) the observer knows to be members [2, M].

    Where a defense removed edges, own nodes with too few cross-client neighbours lost them; their edges are dropped
    where the neighbourhood has more listed members than rows.
    """
    n = view.public.num_nodes
    position = positions(found.centers, n)
    row, column = known_edges(view)
    keep = position[row] >= 0
    row, column = row[keep], column[keep]
    size = found.members
    excess = torch.bincount(position[row], minlength=len(size)) > size
    for client in view.own:
        crossing = torch.bincount(client.boundary[0], minlength=len(client.nodes))
        single = crossing[client.boundary[0]] < max(2, fewest_neighbors(view))
        code = client.nodes[client.boundary[0, single]] * n + client.remote_nodes[client.boundary[1, single]]
        dropped = torch.isin(row * n + column, code) & excess[position[row]]
        row, column = row[~dropped], column[~dropped]
    return torch.stack([position[row], column])


def _unassigned(found: NeighborhoodRows, types: _Types, matching: Matching, members: Tensor) -> Tensor:
    """Return the types of rows that no known member of their neighbourhood accounts for, each once."""
    count = len(types.rows)
    chosen = torch.full((int(members.max().item()) + 1 if members.numel() else 1,), -1)
    chosen[matching.nodes] = matching.types
    taken = chosen[members[1]]
    used = torch.bincount((members[0] * count + taken)[taken >= 0], minlength=len(found.centers) * count)
    present = torch.bincount(found.group * count + types.of_rows, minlength=len(found.centers) * count)
    left: Tensor = torch.unique((present > used).nonzero().squeeze(1) % max(1, count))
    accounted = torch.isin(left, torch.cat([types.of_known, matching.types]))
    return left[~accounted]
