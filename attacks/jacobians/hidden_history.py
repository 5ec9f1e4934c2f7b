"""The hidden representations that each node sent, round by round, with the models that made them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.adversary.public_rules import noise_std, rounding_on
from fglaudit.attacks.jacobians.clipped_outputs import clipped, unclipped
from fglaudit.attacks.jacobians.encoder import Model, foreign_batches, sealing_error
from fglaudit.graph import positions
from fglaudit.payloads import HiddenRepresentations
from fglaudit.view import View

_ROUNDING = 3e-7
"""Rounding error of a representation relative to the largest one of its node: sums of a hundred float32 terms."""
_MOST_EQUATIONS = 400
_FACTORS = tuple(2 ** (step / 4) for step in range(1, 41))
"""By which Jacobians may have been scaled down."""
_MARGIN = 1e-6


@dataclass(frozen=True)
class HiddenHistory:
    """Representations of N nodes over T rounds.

    Attributes:
        values: [N, T, C], float64.
        models: of the T rounds.
        error: standard deviation of the error of a node's representations, by rounding and public noise [N].
        clip: to which each representation was clipped before it got noise, None where none was.
        usable: which entries the clip has surely left as they were [N, T, C].
    """

    values: Tensor
    models: tuple[Model, ...]
    error: Tensor
    clip: KnownClip | None
    usable: Tensor

    def scale(self, rows: Tensor) -> Tensor:
        """Return the factor per node [N] with which ``rows`` [N, F] fit the representations best.

        Entries that were not clipped determine it; where there is none, the factor of at least 1 with which clipped
        ones fit best; 1 where that leaves it open too.
        """
        w1 = torch.stack([m.w1 for m in self.models])
        w2 = torch.stack([m.w2 for m in self.models])
        predicted = torch.einsum("nth,thc->ntc", torch.einsum("nf,tfh->nth", rows, w1).relu(), w2)
        used = predicted * self.usable
        square = used.square().sum((1, 2))
        factor = (used * self.values).sum((1, 2)) / square.clamp(min=1e-300)
        return torch.where((square > 0) & (factor > 0), factor, self._scale_under_clip(predicted))

    def _scale_under_clip(self, predicted: Tensor) -> Tensor:
        """Return the factor [N] with which ``predicted`` [N, T, C] fit best after the clip."""
        best = torch.ones(len(predicted), dtype=predicted.dtype, device=predicted.device)
        if self.clip is None:
            return best
        least = (self.values - clipped(predicted, self.clip)).square().sum((1, 2))
        for factor in _FACTORS:
            misfit = (self.values - clipped(factor * predicted, self.clip)).square().sum((1, 2))
            better = misfit < (1 - _MARGIN) * least
            best, least = torch.where(better, factor, best), torch.where(better, misfit, least)
        return best


def hidden_history(view: View, models: dict[int, Model], nodes: Tensor, device: torch.device) -> HiddenHistory | None:
    """Return what ``nodes`` [N] (ascending) sent, or None if some of them sent nothing in some round.

    Rounds are evenly subsampled to at most 400 equations per node.
    """
    by_round: dict[int, Tensor] = {}
    missing: dict[int, Tensor] = {}
    position = positions(nodes, view.public.num_nodes)
    for batch, values in foreign_batches(view, HiddenRepresentations):
        if batch.round not in models:
            continue
        place = position[batch.senders]
        known = place >= 0
        if batch.round not in by_round:
            by_round[batch.round] = torch.zeros(len(nodes), values.shape[1], dtype=torch.double)
            missing[batch.round] = torch.ones(len(nodes), dtype=torch.bool)
        by_round[batch.round][place[known]] = values[known].double()
        missing[batch.round][place[known]] = False
    rounds = [round for round in sorted(by_round) if not bool(missing[round].any())]
    if not rounds or len(rounds) < len(by_round):
        return None
    classes = by_round[rounds[0]].shape[1]
    keep = min(len(rounds), max(1, _MOST_EQUATIONS // classes))
    chosen = [rounds[i] for i in torch.unique(torch.linspace(0, len(rounds) - 1, keep).round().long()).tolist()]
    values = torch.stack([by_round[round] for round in chosen], 1).to(device)
    added = math.hypot(noise_std(view, HiddenRepresentations), sealing_error(view, HiddenRepresentations))
    error = torch.hypot(_ROUNDING * values.abs().amax((1, 2)), torch.tensor(added).to(values))
    error = torch.hypot(error, grid_step(view, values) / 2).clamp(min=1e-12)
    clip = KnownClip.of(view, HiddenRepresentations)
    usable = unclipped(values, clip, added)
    return HiddenHistory(values, tuple(models[round] for round in chosen), error, clip, usable)


def grid_step(view: View, values: Tensor) -> Tensor:
    """Return the step [N] of the grid that ``values`` [N, T, C] were rounded to; 0 where they were not."""
    grid = rounding_on(view, HiddenRepresentations)
    none = torch.zeros(len(values), dtype=values.dtype, device=values.device)
    if grid is None:
        return none
    if grid.step is not None:
        return none + grid.step
    if grid.levels is None or values.shape[2] <= 2:
        return none  # the ends of a message's range are levels themselves
    step: Tensor = (values.amax(2) - values.amin(2)).amax(1) / max(1, grid.levels - 1)
    return step
