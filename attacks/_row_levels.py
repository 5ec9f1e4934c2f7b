"""From rows as FedGAT's messages carry them to rows as the data set has them.

FedGAT scales every feature row to norm at most one (Assumption 3). Rows whose non-zero entries are equal survive that: the largest
entry shows the level, half of it separates ones from zeros. Under noise the number of ones m is chosen with them: the level is then known
(``1 / sqrt(m)`` for a 0/1 row of norm one, ``1 / m`` for one normalised to sum one), and the likeliest row under a prior counts.
A real-valued row longer than one has lost its length; it is returned as sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.attacks._feature_prior import feature_prior
from fglaudit.graph import FeatureKind
from fglaudit.payloads import RawFeatures
from fglaudit.view import Auxiliary, View

NEGLIGIBLE = 1e-4
"""Entries below this, relative to the largest entry of all rows, are rounding errors."""
_MOST_ONES = 256
_ROWS_AT_ONCE = 1024


def known_rows_as_sent(view: View) -> Auxiliary:
    """Return the observer's own and auxiliary rows as they entered the messages: as uploaded where that was recorded, else
    scaled by the public rule."""
    known = view.known_rows()
    x = known.x / known.x.norm(dim=1, keepdim=True).clamp(min=1)
    position = torch.full((view.public.num_nodes,), -1)
    position[known.nodes] = torch.arange(len(known.nodes))
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    for batch in view.messages.of(RawFeatures):
        payload = batch.payload
        assert isinstance(payload, RawFeatures)
        sent = torch.isin(batch.senders, mine)[batch.entry_messages()] & (position[payload.nodes] >= 0)
        uploaded = payload.x[sent]
        x[position[payload.nodes[sent]]] = uploaded / uploaded.norm(dim=1, keepdim=True).clamp(min=1)
    return Auxiliary(known.nodes, x, known.y)


def as_bits(rows: Tensor) -> Tensor:
    """Return the ones of noise-free discrete ``rows`` [R, F]."""
    top = rows.amax(1, keepdim=True)
    floor = NEGLIGIBLE * rows.max() if rows.numel() else 0.0
    return (rows > 0.5 * top) & (top > floor)


def norm_bound(view: View) -> float:
    """Return the norm to which the defense clipped rows before they were sent."""
    clip = view.public.defense_parameters.get("clip")
    return float("inf") if clip is None else float(clip)


def to_levels(view: View, rows: Tensor, nodes: Tensor, std: Tensor, norm: float) -> Tensor:
    """Return ``rows`` [R, F] in the data set's own levels.

    Args:
        nodes: whose rows they are [R], for the prior; -1 where unknown. Used for noisy rows only.
        std: standard deviation of the noise on every entry of a row [R].
        norm: the norm that longer rows were scaled down to.
    """
    kind = view.public.features
    if kind is FeatureKind.REAL or len(rows) == 0:
        return rows
    if bool((std == 0).all()):
        bits = as_bits(rows)
    else:
        prior = feature_prior(view, nodes).mean.clamp(1e-6, 1 - 1e-6).logit()
        scaled = kind is FeatureKind.SCALED_BINARY
        blocks = [slice(low, low + _ROWS_AT_ONCE) for low in range(0, len(rows), _ROWS_AT_ONCE)]
        bits = torch.cat([_likeliest_bits(rows[b].double(), prior[b], std[b].double(), norm, scaled) for b in blocks])
    found = bits.to(rows.dtype)
    return found / found.sum(1, keepdim=True).clamp(min=1) if kind is FeatureKind.SCALED_BINARY else found


def _likeliest_bits(rows: Tensor, odds: Tensor, std: Tensor, norm: float, scaled: bool) -> Tensor:
    """Return the bits [R, F] with the highest posterior; ``odds`` are prior log odds of a one, ``std`` [R] the noise."""
    best = torch.zeros(len(rows), dtype=torch.double)  # no ones at all: gain zero
    bits = torch.zeros(rows.shape, dtype=torch.bool)
    variance = std.square().clamp(min=1e-12)[:, None]
    for ones in range(1, min(_MOST_ONES, rows.shape[1]) + 1):
        level = min(1 / ones if scaled else 1.0, norm * ones**-0.5)
        gain = (rows * level - level**2 / 2) / variance + odds
        value, place = gain.topk(ones, dim=1)
        total = value.sum(1)
        better = total > best
        best = torch.where(better, total, best)
        bits[better] = torch.zeros_like(bits[better]).scatter(1, place[better], True)
    return bits
