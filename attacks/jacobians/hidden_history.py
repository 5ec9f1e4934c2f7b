"""The hidden representations that each node sent, round by round, with the models that made them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.jacobians.encoder import Model, foreign_batches
from fglaudit.payloads import HiddenRepresentations
from fglaudit.view import View

_ROUNDING = 3e-7
"""Rounding error of a representation relative to the largest one of its node: sums of a hundred float32 terms."""
_MOST_EQUATIONS = 400


@dataclass(frozen=True)
class HiddenHistory:
    """Representations of N nodes over T rounds.

    Attributes:
        values: [N, T, C], float64.
        models: of the T rounds.
        error: standard deviation of the error of a node's representations, by rounding and public noise [N].
    """

    values: Tensor
    models: tuple[Model, ...]
    error: Tensor

    def scale(self, rows: Tensor, most: float = math.inf) -> Tensor:
        """Return the factor per node [N] with which ``rows`` [N, F] fit the representations best.

        Only representations of norm below ``most`` are used; 1 where none determines it.
        """
        w1 = torch.stack([m.w1 for m in self.models])
        w2 = torch.stack([m.w2 for m in self.models])
        predicted = torch.einsum("nth,thc->ntc", torch.einsum("nf,tfh->nth", rows, w1).relu(), w2)
        predicted = predicted * (self.values.norm(dim=2, keepdim=True) < most)
        square = predicted.square().sum((1, 2))
        factor = (predicted * self.values).sum((1, 2)) / square.clamp(min=1e-300)
        return torch.where((square > 0) & (factor > 0), factor, 1.0)


def hidden_history(view: View, models: dict[int, Model], nodes: Tensor, device: torch.device) -> HiddenHistory | None:
    """Return what ``nodes`` [N] (ascending) sent, or None if some of them sent nothing in some round.

    Rounds are evenly subsampled to at most 400 equations per node.
    """
    by_round: dict[int, Tensor] = {}
    missing: dict[int, Tensor] = {}
    position = torch.full((view.public.num_nodes,), -1)
    position[nodes] = torch.arange(len(nodes))
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
    noise = view.public.noise.get(HiddenRepresentations.__name__)
    error = torch.hypot(
        _ROUNDING * values.abs().amax((1, 2)), torch.tensor(0.0 if noise is None else noise.std).to(values)
    )
    error = torch.hypot(error, _quantisation_step(view, values) / 2)
    return HiddenHistory(values, tuple(models[round] for round in chosen), error.clamp(min=1e-12))


def _quantisation_step(view: View, values: Tensor) -> Tensor:
    """Return the quantisation step [N] of ``values`` [N, T, C] over the range of each message; 0 without a defense."""
    facts = view.public.defense_parameters
    if "levels" not in facts or HiddenRepresentations.__name__ not in facts.get("on", ()) or values.shape[2] <= 2:
        # The ends of the range are levels themselves.
        return torch.zeros(len(values), dtype=values.dtype, device=values.device)
    step: Tensor = (values.amax(2) - values.amin(2)).amax(1) / (int(facts["levels"]) - 1)
    return step
