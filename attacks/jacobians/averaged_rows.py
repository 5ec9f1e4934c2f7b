"""Rows from Jacobians with noise: averaged over units, classes and rounds, then fitted to hidden representations.

For one sample per node ``G[h] = 1[x . w_h > 0] x + noise``. This is an expectation-maximisation over the masks, one
pass over the messages per iteration, started from all units: an estimate of x gives the probability that a unit is
active (its own error allowed for), and the active units' rows, weighted by the squared weights W2 that they were
measured with, give the estimate of x. The spread of the rows around the estimate is its error, be it from noise,
quantisation or else. Clipping to a norm shrinks every Jacobian by an unknown factor; the length then follows from the
hidden representations. Of entries that were clipped one by one, what the clip takes of the estimate is added.

These are sent without noise in variant V1, and there the noise helps the attacker: it makes the weights wander through
all directions, so that the known encoder can be inverted (:mod:`fglaudit.attacks.jacobians.encoder_inversion`) from the
averaged row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.adversary.public_rules import lossless
from fglaudit.attacks.jacobians.encoder import Model, foreign_batches, unit_rows
from fglaudit.attacks.jacobians.encoder_inversion import exactness, invert_encoder
from fglaudit.attacks.jacobians.hidden_history import HiddenHistory, hidden_history
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import HiddenRepresentations, Jacobians
from fglaudit.view import View

_PASSES = 3
_PASSES_UNDER_CLIP = 10


def averaged_rows(view: View, models: dict[int, Model], device: torch.device) -> Reconstruction:
    """Return one row for every node that sent Jacobians."""
    rows, precision, seen = _average(view, models, device)
    nodes = seen.nonzero().squeeze(1)
    rows, precision = rows[nodes].to(device), precision[nodes].to(device)
    deviation = precision.rsqrt()
    history = hidden_history(view, models, nodes, device)
    if history is not None:
        rows, deviation = _refine(view, rows, precision, history)
    confidence, exact = exactness(rows, deviation)
    return Reconstruction(rows.float().cpu(), nodes, confidence.float().cpu(), claimed=exact.cpu())


def _average(view: View, models: dict[int, Model], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows [N, F], their precision [N] and which nodes sent any Jacobian [N]."""
    count, features = view.public.num_nodes, view.public.num_features
    rows = torch.zeros(count, features, dtype=torch.double)
    precision = torch.zeros(count, dtype=torch.double)
    seen = torch.zeros(count, dtype=torch.bool)
    clip = KnownClip.of(view, Jacobians)
    cut = clip.bound if clip is not None and clip.order == math.inf else math.inf
    for sweep in range(_PASSES if cut == math.inf else _PASSES_UNDER_CLIP):
        total = torch.zeros_like(rows)
        weight, square, used = (torch.zeros_like(precision) for _ in range(3))
        for batch, values in foreign_batches(view, Jacobians):
            model = models[batch.round]
            who = batch.senders
            sums, power = unit_rows(values.to(device), model)
            chance = torch.full(sums.shape[:2], 0.5, device=device, dtype=torch.double)
            if sweep:
                spread = precision[who].rsqrt().to(device)[:, None] * model.w1.norm(dim=0)
                chance = torch.special.ndtr(rows[who].to(device) @ model.w1 / spread)
                if cut < math.inf:
                    sums = sums + _taken_by_clip(rows[who].to(device), model, cut).to(sums)
            measured = chance * power
            total[who] += torch.einsum("ph,phf->pf", measured.to(sums), sums).double().cpu()
            weight[who] += measured.sum(1).cpu()
            square[who] += (measured * sums.square().sum(2)).sum(1).cpu()
            used[who] += chance.sum(1).cpu()
            seen[who] = True
        rows = total / weight.clamp(min=1e-30)[:, None]
        scatter = (square - weight * rows.square().sum(1)) / (used * features).clamp(min=1)
        precision = weight / scatter.clamp(min=1e-14 * rows.square().mean(1) * weight / used.clamp(min=1) + 1e-30)
    return rows, precision, seen


def _taken_by_clip(rows: Tensor, model: Model, bound: float) -> Tensor:
    """Return what G [P, H, F] of active units lacks if ``rows`` [P, F] are right, for entries clipped at ``bound``."""
    lost = torch.zeros(len(rows), model.w2.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    for weights in model.w2.T:  # of a class [H]
        entry = weights[:, None] * rows[:, None]
        lost += weights[:, None] * (entry - entry.clamp(-bound, bound))
    return lost / model.w2.square().sum(1).clamp(min=1e-30)[:, None]


def _refine(view: View, rows: Tensor, precision: Tensor, history: HiddenHistory) -> tuple[Tensor, Tensor]:
    """Fit ``rows`` [n, F] to the hidden representations, with the average as the prior of ``precision`` [n].

    Where no row fits (several samples) the average stays.
    """
    if not lossless(view, Jacobians, HiddenRepresentations):
        scale = history.scale(rows)
        rows, precision = rows * scale[:, None], precision / scale.square()
    found = invert_encoder(history.values, history.models, history.error, rows, rows, precision, clip=history.clip)
    return found.rows, found.deviation
