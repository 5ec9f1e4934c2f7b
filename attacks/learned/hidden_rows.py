"""Rows that were hidden before a server computed messages from them: attacks then find hidden rows, which are shown.

A defense of what clients upload reaches what others are sent only through what the server makes of it. Where that mixes
rows with masks of its own, messages cannot be cleaned one by one; but attacks on such messages find rows as the server
knew them. An observer knows how rows are hidden from the public code, or from its own rows and uploads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_clients
from fglaudit.attacks.learned.entries import upwards
from fglaudit.attacks.learned.maps.row_map import Learned
from fglaudit.attacks.learned.maps.row_maps import best_map
from fglaudit.attacks.learned.probes import made_up_graph
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import SERVER, MessageBatch, RawFeatures
from fglaudit.rng import derive, split
from fglaudit.view import View

_WORTH = 1e-3
"""Relative error above which nothing was learned."""
_PER_COLUMN = 4
_FEWEST = 64
_WHOLE = 1e-2
"""Of an entry against the level of its row."""
_HALF = 0.5
_UNIT = 1e-3


@dataclass(frozen=True)
class HiddenRows:
    """How rows were hidden.

    Attributes:
        forward: rows [n, F] as they are -> as they were uploaded.
        inverse: the other way.
    """

    forward: Learned
    inverse: Learned

    def hide(self, view: View) -> View:
        """Return ``view`` in terms of hidden rows."""
        own = tuple(dataclasses.replace(client, x=self._hidden(client.x)) for client in view.own)
        known = dataclasses.replace(view.auxiliary, x=self._hidden(view.auxiliary.x))
        public = dataclasses.replace(view.public, features=FeatureKind.REAL)
        return dataclasses.replace(view, own=own, own_inputs=(), auxiliary=known, public=public)

    def shown(self, found: Reconstruction, view: View) -> Reconstruction:
        """Return what was found in the data set's own terms."""
        kind, rows = view.public.features, found.rows.double()
        if kind is not FeatureKind.REAL:
            rows = rows * self._scales(rows)
        return dataclasses.replace(found, rows=in_levels(self.inverse.apply(rows), kind).to(found.rows))

    def _scales(self, rows: Tensor) -> Tensor:
        """Return by how much the server scaled hidden rows [n, F] down to norm one, [n, 1]: most entries of a discrete
        row are 0, and with an affine map each of those says it."""
        shift = self.inverse.apply(torch.zeros_like(rows[:1]))
        told = (shift.abs() > _WHOLE * shift.abs().max()).squeeze(0)
        if float(shift.abs().max().item()) < _WHOLE:
            return torch.ones_like(rows[:, :1])
        slope = (self.inverse.apply(rows) - shift)[:, told]
        scale = (-shift[:, told] / torch.where(slope == 0, 1e-30, slope)).median(dim=1, keepdim=True).values
        unit = (rows.norm(dim=1, keepdim=True) - 1).abs() < _UNIT
        return torch.where(unit & (scale > 1), scale, 1.0)

    def _hidden(self, x: Tensor) -> Tensor:
        return self.forward.apply(x.double()).to(x) if len(x) else x


def in_levels(rows: Tensor, kind: FeatureKind) -> Tensor:
    """Return rows [n, F] with the levels that rows of this kind have; real ones as they are."""
    if kind is FeatureKind.REAL:
        return rows
    ones = (rows > _HALF * rows.amax(1, keepdim=True).clamp(min=_WHOLE)).to(rows)
    return ones / ones.sum(1, keepdim=True).clamp(min=1) if kind is FeatureKind.SCALED_BINARY else ones


def hidden_rows(view: View, rng: torch.Generator, device: torch.device) -> HiddenRows | None:
    """Return how rows are hidden before they are uploaded; None where they are not, or nothing is learned of it."""
    pairs = _own_pairs(view)
    if pairs is None or torch.equal(*pairs):
        return None
    plain, sent = (t.to(device) for t in pairs)
    for learn in (_public_pairs(view, rng), pairs):
        if learn is None:
            continue
        z, y = (t.to(device) for t in learn)
        cut = max(1, len(z) // 5)
        inverse, forward = best_map(z[cut:], y[cut:], z[:cut], y[:cut]), best_map(y[cut:], z[cut:], y[:cut], z[:cut])
        left = (inverse.apply(sent) - plain).square().sum() / plain.square().sum().clamp(min=1e-30)
        if max(inverse.error, forward.error, float(left.item())) <= _WORTH:
            return HiddenRows(_on(forward, device), _on(inverse, device))
    return None


def _own_pairs(view: View) -> tuple[Tensor, Tensor] | None:
    """Return the observer's own rows [n, F] and what was uploaded for them."""
    plain = torch.zeros(view.public.num_nodes, view.public.num_features, dtype=torch.double)
    for client in view.own:
        plain[client.nodes] = client.x.double()
    owner = own_clients(view)
    found = []
    for batch in view.messages.of(RawFeatures):
        payload = batch.payload
        if not isinstance(payload, RawFeatures) or not upwards(batch) or payload.x.shape[1:] != plain.shape[1:]:
            continue
        mine = (owner[payload.nodes] >= 0) & (owner[payload.nodes] == batch.senders[batch.entry_messages()])
        found.append((plain[payload.nodes[mine]], payload.x[mine].double()))
    if not found or sum(len(z) for z, _ in found) < 2:
        return None
    return torch.cat([z for z, _ in found]), torch.cat([y for _, y in found])


def _public_pairs(view: View, rng: torch.Generator) -> tuple[Tensor, Tensor] | None:
    """Return made-up rows [n, F] and what the public defense makes of their upload."""
    assert view.public.release is not None
    nodes = torch.cat([client.nodes for client in view.own])[:1]
    count = _PER_COLUMN * view.public.num_features + _FEWEST
    x = torch.randn(count, view.public.num_features, generator=rng)
    if view.public.features is not FeatureKind.REAL:  # as rows have them: no curve is then told from a line
        x = (x > 0).float()
        x = x / x.sum(1, keepdim=True).clamp(min=1) if view.public.features is FeatureKind.SCALED_BINARY else x
    batch = MessageBatch(
        0,
        torch.tensor(view.observer.clients[:1]),
        torch.tensor([SERVER]),
        RawFeatures(nodes.expand(count).contiguous(), x),
        torch.tensor([0, count]),
    )
    made: Sequence[MessageBatch] = view.public.release(
        made_up_graph(view, True, derive(0, "hidden rows")), [batch], rng=split(rng, "hidden rows")
    ).batches
    payload = made[0].payload
    if not isinstance(payload, RawFeatures) or payload.x.shape != x.shape:
        return None
    return x.double(), payload.x.double()


def _on(learned: Learned, device: torch.device) -> Learned:
    return Learned(learned.name, learned.error, lambda rows: learned.apply(rows.to(device)).cpu())
