"""Mask-flip differencing: one client of GFL-APPNP separates the terms of the sums of all clients' Jacobians.

The paper has the server send client k only sums, ``C_k = sum over j != k of A_kj h_j`` and ``dC_k``, "which provides a
private communication since the hidden representations are not shared directly" (section 5.2). But dC_k divided by the
known second layer is ``G[h] = sum over j of A_kj 1[h active at x_j] x_j``, which changes between rounds only where a
ReLU mask flips, and a mask that flips alone shows ``A_kj x_j``. With several samples per node the terms are ``A_kj x_js
/ S``. :mod:`fglaudit.attacks.jacobians.switched_sums` separates the terms, and
:mod:`fglaudit.attacks.jacobians.mixture_rows` adds those that never flip and all signs.

C_k and dC_k depend on ``A_kj x_j`` alone (the encoder is positively homogeneous), so only the length of a row
identifies its node. With all edges known A_kj is known; entries of discrete rows have known levels, which gives A_kj
exactly; for real-valued rows the found lengths are matched with the weights in order, as rows of similar length would
have it: the scales are then good, and the nodes are right where weights differ by more than lengths do.

Rows that flip together are seen as one, their sum: what is claimed to be one row is told in
:mod:`fglaudit.attacks.jacobians.lone_rows`.

Noise on the Jacobians (V1, or a defense) enters G with the root of ``sum of A_kj^2``; flips below it are not seen, and
nothing is claimed. Jacobians clipped to an L2 norm lose a factor each, which :mod:`clipped_flips` reckons with: the
common part of the factors follows from the models and is divided out, and flips that stand out from what is left show
their rows, with two of them claimed; senders that are never clipped are found as before. Jacobians clipped entry by
entry or in another norm, or rounded to levels, change from round to round by errors of their own, everywhere; so do
sums of which other senders are missing in every round. The least change stands for that error, and flips below it are
not seen either. These are limits of this attack and no sign of protection: it runs, and models none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.adversary.modelled import known_noise, message_clip, random_rows, sealed
from fglaudit.adversary.public_rules import absent_clients, lossless, noise_std
from fglaudit.attacks.jacobians.clipped_flips import common_length, joined, lone_flips
from fglaudit.attacks.jacobians.encoder import (
    Model,
    foreign_batches,
    global_models,
    jacobian_noise,
    misfit,
    never_sent,
    sealing_error,
    unit_rows,
    untouched,
)
from fglaudit.attacks.jacobians.known_propagation import known_propagation
from fglaudit.attacks.jacobians.lone_rows import Population
from fglaudit.attacks.jacobians.mixture_rows import MixtureRows, recover_rows
from fglaudit.attacks.jacobians.planting import plant_encoder_run
from fglaudit.attacks.jacobians.weighted_rows import name_rows, typical_length
from fglaudit.facts import Clipped, Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, Jacobians, ModelUpdate, Payload, PropagatedJacobians
from fglaudit.structure import Propagation
from fglaudit.view import View

_LEAST_CHANGED = 0.05
_FLOOR_MARGIN = 1.5


@dataclass(frozen=True)
class MaskFlip(Attack):
    """Recover everybody's rows from the sums of Jacobians that one client receives.

    Attributes:
        rounds: most rounds used, the last ones (masks flip alone more often once training has settled).
    """

    name: ClassVar[str] = "mask-flip"
    consumes: ClassVar[tuple[type[Payload], ...]] = (PropagatedJacobians, ModelUpdate)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (Jacobians,)
    metric: ClassVar[str] = "direction_rate"
    least: ClassVar[Mapping[str, float]] = {"rounds": 1}

    rounds: int = 400

    def models(self, fact: Fact) -> bool:
        """Seals, senders that are never there, random reports of rows, and Jacobians scaled down to an L2 norm, with
        noise; what the sums are made of it otherwise takes to be as the nodes made it, and to be made with the model
        that the observer received itself."""
        payloads = (Jacobians, PropagatedJacobians)
        return (
            sealed(fact, *payloads, ModelUpdate)
            or never_sent(fact, *payloads)
            or known_noise(fact, Jacobians)
            or (isinstance(fact, Clipped) and fact.norm == "L2" and message_clip(fact, Jacobians))
            or any(kind(fact) for kind in (untouched, random_rows))
        )

    def unsupported(self, view: View) -> str | None:
        if SERVER in view.observer.parties or view.observer.wire:
            return f"the observer sees every node's {Jacobians.__name__} themselves; use jacobian-reading"
        return misfit(view, PropagatedJacobians) or view.public.structure.missing(Propagation)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        models = global_models(view, device)
        parts = [self._attack(view, client.client, models, device) for client in view.own]
        return _join(parts, view.public.num_features)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_encoder_run(view, rng)

    def _attack(self, view: View, client: int, models: dict[int, Model], device: torch.device) -> Reconstruction:
        """Attack what one of the observing clients received."""
        rounds, sums, power = _received(view, client, models, device)
        rounds, sums, power = rounds[-self.rounds :], sums[-self.rounds :], power[-self.rounds :]
        if len(rounds) == 0:
            return _join([], view.public.num_features)
        own = next(c for c in view.own if c.client == client)
        weights = known_propagation(view, own)
        if weights is not None:
            weights = weights.index_fill(0, absent_clients(view, Jacobians), 0.0)
        noise = jacobian_noise(view) * _spread(weights) * power.clamp(min=1e-30).rsqrt()
        opened = max(sealing_error(view, payload) for payload in (Jacobians, PropagatedJacobians))
        noise = torch.hypot(noise, opened * power.clamp(min=1e-30).rsqrt())
        if not lossless(view, Jacobians, PropagatedJacobians) and noise_std(view, Jacobians) == 0:
            noise = torch.hypot(noise, _floor(sums, power))
        discrete = view.public.features is not FeatureKind.REAL
        w1 = torch.stack([models[round].w1 for round in rounds]).float()
        known = torch.cat([own.x.flatten(0, -2), view.auxiliary.x.flatten(0, -2).to(own.x)]).to(device)
        samples = own.x.shape[1] if own.x.dim() == 3 else 1
        others = view.public.num_nodes - len(own.nodes) if weights is None else int((weights > 0).sum().item())
        population = Population(known, others * samples, discrete)
        found = recover_rows(sums[None], noise[None].float(), w1, population)
        clip = KnownClip.of(view, Jacobians)
        if clip is not None and clip.order == 2 and len(rounds) > 1:
            w2 = torch.stack([models[round].w2 for round in rounds])
            flips = lone_flips(sums, w1, w2, population)
            typical = float(typical_length(view, own).item())
            length = min(float(common_length(w1.double(), w2)[-1].item()), clip.bound / typical)
            flips = dataclasses.replace(flips, rows=flips.rows / length)
            found = joined(found, flips)
        found = MixtureRows(*(getattr(found, f.name).cpu() for f in dataclasses.fields(found)))
        return name_rows(view, own, found, weights)


def _received(
    view: View, client: int, models: dict[int, Model], device: torch.device
) -> tuple[list[int], Tensor, Tensor]:
    """Return the rounds, G [T, H, F] (float32) and its precision [T, H] as ``client`` received them."""
    rounds, sums, power = [], [], []
    for batch, values in foreign_batches(view, PropagatedJacobians):
        for message in (batch.receivers == client).nonzero().squeeze(1).tolist():
            rows, precision = unit_rows(values[message][None].to(device).double(), models[batch.round])
            rounds.append(batch.round)
            sums.append(rows[0].float())
            power.append(precision)
    if not rounds:
        blank = torch.empty(0)
        return rounds, blank, blank
    return rounds, torch.stack(sums), torch.stack(power)


def _floor(sums: Tensor, power: Tensor) -> Tensor:
    """Return the deviation [T, H] of an error that a defense adds without stating its size (quantisation).

    It is that of the least changed cells.

    Args:
        sums: G [T, H, F].
        power: precision of G [T, H].
    """
    change = sums.diff(dim=0).norm(dim=2) * torch.minimum(power[1:], power[:-1]).sqrt()
    floor = change.double().flatten().quantile(_LEAST_CHANGED) / (2 * sums.shape[2]) ** 0.5
    deviation: Tensor = _FLOOR_MARGIN * floor * power.clamp(min=1e-30).rsqrt()
    return deviation


def _spread(weights: Tensor | None) -> float:
    """Return the root of the sum of squared weights, by which noise on Jacobians enters their sum; 1 if unknown."""
    return 1.0 if weights is None else float(weights.double().norm().item())


def _join(parts: Sequence[Reconstruction], num_features: int) -> Reconstruction:
    """Return the rows of several observing clients together."""
    if not parts:
        none = torch.empty(0)
        return Reconstruction(torch.empty(0, num_features), none.long(), none, claimed=none.bool())
    claimed = [part.claimed for part in parts if part.claimed is not None]
    return Reconstruction(
        torch.cat([part.rows for part in parts]),
        torch.cat([part.nodes for part in parts]),
        torch.cat([part.confidence for part in parts]),
        claimed=torch.cat(claimed),
    )
