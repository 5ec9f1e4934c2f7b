"""Gram peeling: FedGAT's K2 alone, ``K2_i' K2_i = 2 sum_j h_j h_j'``, determines discrete rows.

Equation (13) sends ``K2_i = sqrt(2) sum_j u1_j h_j'`` with orthonormal u1_j, so the Gram matrix of its columns is known
whatever the u1_j are; nothing else of the message is read. Entry (s, t) is the sum over neighbours that have both
features of their squared level. If all non-zero entries of row s equal entry (s, s), then every neighbour with feature
s has exactly the features of that row: a feature t of one of them that another lacks would make entry (s, t) smaller
than (s, s). The level follows from the number of features (norm one: ``1 / sqrt(n)``), the entry then gives the number
of neighbours that share the row. Known and found rows are subtracted, which makes further features pure. For
real-valued features only the plain sum ``K1' K2 = 2 sum_j h_j`` is used, where one row is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.modelled import dropped_edges, training_changed
from fglaudit.attacks.neighborhoods.embedding_assignment import FIRST_ROUNDS
from fglaudit.attacks.neighborhoods.modelled_facts import evidence_alone, sealed_finely
from fglaudit.attacks.neighborhoods.planting import plant_masked_pairs
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows, missing_messages
from fglaudit.attacks.neighborhoods.row_assignment import assign_rows
from fglaudit.attacks.neighborhoods.row_levels import known_rows_as_sent
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Embeddings, MaskedMatrices, ModelUpdate, Payload, RawFeatures
from fglaudit.view import View

_TOLERANCE = 1e-4
"""Largest rounding error of an entry of the Gram matrix, relative to the largest entry or one."""
_NUMBERS_AT_ONCE = 1 << 24
_PROBED = 64
"""Columns of the Gram matrices that are looked at first: where they leave no row pure, the rest is never made."""


@dataclass(frozen=True)
class GramPeeling(Attack):
    """Peel discrete rows off the second moments of every neighbourhood."""

    name: ClassVar[str] = "gram-peeling"
    consumes: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, Embeddings, ModelUpdate)
    first_rounds: ClassVar[int | None] = FIRST_ROUNDS
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        """Levels are taken as exact, and known rows as those in the message: nothing that changes rows is modelled."""
        return dropped_edges(fact) or training_changed(fact) or evidence_alone(fact) or sealed_finely(fact, RawFeatures)

    def unsupported(self, view: View) -> str | None:
        return missing_messages(view, MaskedMatrices)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        known, n = known_rows_as_sent(view), view.public.num_nodes
        source = positions(known.nodes, n)
        row, column = known_edges(view)
        inside = source[column] >= 0
        row, column = row[inside], column[inside]
        kind, parts = view.public.features, []
        for _, payload in view.sent(MaskedMatrices):
            for low in range(0, len(payload.node), step := _step(payload.k2)):
                nodes = payload.node[low : low + step]
                place = positions(nodes, n)
                use = place[row] >= 0
                group, members = place[row[use]], known.x[source[column[use]]].double()
                k1, k2 = (field[low : low + step].to(device).double() for field in (payload.k1, payload.k2))
                if kind is FeatureKind.REAL:
                    parts.append(_last_rows(nodes, k1, k2, group.to(device), members.to(device)))
                else:
                    power = 2 if kind is FeatureKind.SCALED_BINARY else 1
                    parts.append(_peel(nodes, k2, group.to(device), members.to(device), power))
        return assign_rows(view, NeighborhoodRows.join(parts, view.public.num_features), rng)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_masked_pairs(view, rng)


def _step(k2: Tensor) -> int:
    """Return how many neighbourhoods are processed at once."""
    active = int((k2 != 0).any(1).sum(1).max().item()) if len(k2) else 1
    return max(1, _NUMBERS_AT_ONCE // max(1, active**2))


def _peel(nodes: Tensor, k2: Tensor, group: Tensor, members: Tensor, power: int) -> NeighborhoodRows:
    """Return the rows of P neighbourhoods that their second moments determine.

    Args:
        nodes: [P].
        k2: [P, 2b, F].
        group, members: neighbourhood and row of the members that are known [K], [K, F].
        power: a row of n features and norm at most one has squared level ``n ** -power``.
    """
    count, width, features = k2.shape
    size = k2.square().sum(1)
    active = size > _TOLERANCE * size.amax(1, keepdim=True).clamp(min=1)
    most = max(1, int(active.sum(1).max().item()))
    feature = active.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    columns = k2.gather(2, feature[:, None].expand(-1, width, -1))
    slack = _TOLERANCE * (columns.square().sum(1) / 2).amax(1).clamp(min=1)[:, None, None]
    known = members.gather(1, feature[group])
    if most > 2 * _PROBED and _nothing_pure(columns, group, known, slack):
        return _collect(nodes, group, members, width // 2)
    gram = (columns.mT @ columns).div_(2)
    gram.index_add_(0, group, -known[:, :, None] * known[:, None])
    groups, rows = [group], [members]
    while True:
        at, here, times = _pure(gram, slack, power)
        if len(at) == 0:
            break
        level = here.sum(1, keepdim=True).double() ** (-power / 2)
        row = here * level
        gram.index_add_(0, at, -times[:, None, None] * row[:, :, None] * row[:, None])
        repeated = torch.arange(len(at), device=at.device).repeat_interleave(times)
        groups.append(at[repeated])
        rows.append(members.new_zeros(len(repeated), features).scatter(1, feature[at[repeated]], row[repeated]))
    found = torch.cat(groups)
    missing = (width // 2 - torch.bincount(found, minlength=count)).clamp(min=0)
    largest = torch.maximum(gram.amax((1, 2)), -gram.amin((1, 2)))
    missing[largest > slack.flatten()] = 0  # elsewhere the remaining rows are zero
    empty = torch.arange(count, device=found.device).repeat_interleave(missing)
    return _collect(
        nodes, torch.cat([found, empty]), torch.cat([*rows, members.new_zeros(len(empty), features)]), width // 2
    )


def _nothing_pure(columns: Tensor, group: Tensor, known: Tensor, slack: Tensor) -> bool:
    """Whether a few columns of every Gram matrix show already that no row of it is pure and that rows are missing.

    Noise has as many active features as there are, and a Gram matrix of their square for every neighbourhood.

    Args:
        columns: [P, 2b, n].
        group, known: neighbourhood and row of the members that are known [K], [K, n].
        slack: [P, 1, 1].
    """
    some = columns[:, :, :_PROBED]
    gram = (columns.mT @ some / 2).index_add(0, group, -known[:, :, None] * known[:, None, :_PROBED])
    value = (columns.square().sum(1) / 2).index_add(0, group, -known.square())[..., None]
    uneven = (gram > slack) & ((gram - value).abs() > slack)
    impure = (uneven | (gram < -slack)).any(2) | (value <= slack).squeeze(2)
    return bool(impure.all()) and bool((value.amax(1, keepdim=True) > slack).all())


def _pure(gram: Tensor, slack: Tensor, power: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return neighbourhood [R], features [R, n] and multiplicity [R] of rows that pure features show, each once."""
    value = gram.diagonal(dim1=1, dim2=2)[..., None]
    here = gram > slack
    number = here.sum(2).double()
    times = value.squeeze(2) * number**power
    whole = (times - times.round()).abs() <= 0.02 * times.round()
    even = ((gram - value).abs() <= slack).logical_or(~here).all(2)
    pure = (value.squeeze(2) > slack.squeeze(2)) & even & whole & (times.round() >= 1) & (gram >= -slack).all(2)
    before = torch.ones_like(here[0]).tril(-1)
    first = pure & ~(here & pure[:, None] & before).any(2)
    at, feature = first.nonzero(as_tuple=True)
    return at, here[at, feature], times[at, feature].round().long()


def _last_rows(nodes: Tensor, k1: Tensor, k2: Tensor, group: Tensor, members: Tensor) -> NeighborhoodRows:
    """Return the known rows, and the missing one where only one is missing.

    Args:
        nodes: [P].
        k1: [P, 2b].
        k2: [P, 2b, F].
        group, members: neighbourhood and row of the members that are known [K], [K, F].
    """
    count = len(nodes)
    total = torch.einsum("pa,paf->pf", k1, k2) / 2
    rest = total.index_add(0, group, -members)
    alone = (k2.shape[1] // 2 - torch.bincount(group, minlength=count) == 1).nonzero().squeeze(1)
    return _collect(nodes, torch.cat([group, alone]), torch.cat([members, rest[alone]]), k2.shape[1] // 2)


def _collect(nodes: Tensor, group: Tensor, rows: Tensor, size: int) -> NeighborhoodRows:
    order = group.argsort(stable=True)
    group, rows = group[order].cpu(), rows[order].float().cpu()
    sure = torch.ones(len(group), dtype=torch.bool)
    unclear = torch.full((len(nodes),), -1)
    return NeighborhoodRows(nodes, group, rows, sure, torch.zeros(len(group)), unclear, torch.full_like(unclear, size))
