"""Weight differences: a user who uploads its first-layer weights after one step reveals its row.

CNFGNN, as nFedGNN (section 4.1) adapts it, has users upload ``W_i`` after a step from common weights ``W``. The
gradient is ``x_i g_i' + decay W`` and the server computed ``g_i`` itself, so a step of SGD gives ``x_f g_d + decay W_fd
= (W - W_i)_fd / rate`` for every entry: least squares over d is the row, up to rounding. Adam's first step is ``v /
(|v| + eps)`` with ``v = x_f g_d + decay W_fd``: for a binary row it is one of two known numbers. In general its sign
shows whether ``x_f g_d`` outweighs the decay, and its distance to one, ``eps / |v|``, how large it is, as long as
float32 resolves it. Users without any gradient, more than two hops from all labels, reveal nothing here; for binary
rows their first latents are read as by ``sparse-recovery``.

A defense that scales weights or their change down to a norm leaves the direction. The factor on a change follows from
the steps that a row with the typical number of ones would take, the factor on weights from the entries that hardly
moved.

Estimates of several rounds are averaged by their precision; of Adam only the first counts where it keeps its memory.
Dropped features are those whose estimate is 0 in every recorded round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.bit_recovery import recover_bits
from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.adversary.message_passing import Measurements
from fglaudit.adversary.modelled import about, known_noise, noisy_rows
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import stated
from fglaudit.attacks.latents.latent_rounds import first_latents, initial_weights, missing_latents, unknown_users
from fglaudit.attacks.latents.modelled_facts import edges_changed, messages_changed, rounded
from fglaudit.attacks.latents.optimizer_replay import UserOptimizer, first_adam_step, unknown_steps
from fglaudit.attacks.latents.planting import plant_weight_updates
from fglaudit.attacks.latents.truncated_means import expected_entries
from fglaudit.facts import Absent, Clipped, Fact, Field
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, LatentGradients, Latents, ModelUpdate, Payload, is_repeated
from fglaudit.structure import Training
from fglaudit.view import View

_EPSILON = 1e-8
_ROUNDING = 2.0**-23
_NUMBERS_AT_ONCE = 1 << 22
_PROOF = 0.05
"""An entry whose estimate has this standard deviation or less is determined."""
_REAL_PROOF = 2.5e-4
"""The same of real-valued entries, relative to the row's largest: a quarter of what an exact row may be off."""
_BLIND_DENSITY = 0.02
_BLIND_ONES = 20.0
_SHORTENED = 0.9
"""Uploads with less than this share of the weights before the step were scaled down as a whole."""
_BIAS_CORRECTION = 1e-4
"""Error of an Adam step by its bias correction: ``1 - 0.999`` has four digits in float32."""
_RESOLVED = 8.0
"""How many rounding errors an Adam step must stay below one to determine the size of its gradient."""
_CERTAIN = 4.0
"""How many errors a weight must move for the sign of its step to be certain."""
_CLEAR = 100.0
"""Squared deviations from zero of an entry whose size is clear."""
_SWEEPS = 40


@dataclass(frozen=True)
class WeightDifference(Attack):
    """Read rows off the difference of uploaded and received weights."""

    name: ClassVar[str] = "weight-difference"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, Latents, LatentGradients)
    metric: ClassVar[str] = "f1"
    first_rounds: ClassVar[int | None] = 2

    def models(self, fact: Fact) -> bool:
        """Noise, clip and rounding of uploads are undone or weighed; latents that were changed are not read, and models
        and gradients are read as users receive them."""
        if about(fact, ModelUpdate):
            down = isinstance(fact.target, Field) and fact.target.direction == "down"
            clip = type(fact) is Clipped and fact.per == "message"
            sent = known_noise(fact, ModelUpdate) or clip or rounded(fact, ModelUpdate)
            return sent or type(fact) is Absent or (down and messages_changed(fact, ModelUpdate))
        return messages_changed(fact, Latents, LatentGradients) or edges_changed(fact) or noisy_rows(fact)

    def unsupported(self, view: View) -> str | None:
        gradient = next(iter(view.messages.of(LatentGradients)), None)
        if gradient is None:
            return "the observer saw no gradients of latents"
        if next(_uploads(view), None) is None:
            return "no user uploads its weights"
        if missing := missing_latents(view):
            return missing
        return unknown_steps(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        nodes = unknown_users(view)
        position = positions(nodes, view.public.num_nodes)
        gradients = _gradients(view)
        optimizer = UserOptimizer.of(view)
        clip = KnownClip.of(view, ModelUpdate, direction="up")
        training = view.public.structure.of(Training)
        drop = training.feature_dropout
        total = torch.zeros(len(nodes), view.public.num_features, dtype=torch.double, device=device)
        precision = torch.zeros_like(total)
        bounds = torch.stack([torch.full_like(total, -torch.inf), torch.full_like(total, torch.inf)])
        once = optimizer.adam and training.keep_optimizer
        ones = float((view.known_rows().x != 0).sum(1).double().mean()) if len(view.known_rows().x) else _BLIND_ONES
        for round, senders, before, after in _uploads(view):
            if once and round > min(gradients):
                break  # Adam's memory of earlier rounds hides what one step would show
            place = position[senders]
            for low in range(0, len(senders), step := max(1, _NUMBERS_AT_ONCE // before[0].numel())):
                use = (place[low : low + step] >= 0).nonzero().squeeze(1) + low
                g = gradients[round][senders[use]].to(device, torch.double)
                stepped = after[use].to(device, torch.double).view(len(use), *before.shape[1:])
                std = added_std(view, ModelUpdate, after[use], direction="up")
                start = (before if len(before) == 1 else before[use]).to(device, torch.double)
                taken = UserStep(start, stepped, g, optimizer, once, std)
                if clip is not None:
                    taken = _undo_clip(taken, ones, clip)
                value, weight = _row_estimates(taken, view.public.features)
                at = place[use].to(device)
                if optimizer.adam and clip is None and drop == 0 and view.public.features is FeatureKind.REAL:
                    low_bound, high_bound = sign_bounds(taken)
                    bounds[0, at] = torch.maximum(bounds[0, at], low_bound)
                    bounds[1, at] = torch.minimum(bounds[1, at], high_bound)
                if drop == 0:
                    total[at] += value * weight
                    precision[at] += weight
                else:  # a kept entry is scaled up; one round in which it stands out is enough
                    larger = value * (1 - drop) * weight > total[at]
                    total[at] = torch.where(larger, value * (1 - drop) * weight, total[at])
                    precision[at] = torch.where(larger, weight, precision[at].clamp(min=1e-300))
        prior = feature_prior(view, nodes)
        chance = prior.mean if prior.informed else torch.full_like(prior.mean, _BLIND_DENSITY)
        plain = all(rounded(fact, Latents) for fact in stated(view, Latents))
        if view.public.features is FeatureKind.BINARY and drop == 0 and plain:
            chance = self._chance_from_latents(view, nodes, chance, rng, device)
        value = total / precision.clamp(min=1e-30)
        if view.public.features is FeatureKind.REAL:
            return _real_rows(view, nodes, value, precision, bounds, drop)
        return _rows(view, nodes, value, precision, chance, drop)

    @staticmethod
    def _chance_from_latents(
        view: View, nodes: Tensor, chance: Tensor, rng: torch.Generator, device: torch.device
    ) -> Tensor:
        """Return the posterior of ones [U, F] after the first latents.

        Args:
            nodes: [U].
            chance: prior probabilities of ones [U, F].
        """
        weights = initial_weights(view)
        assert weights is not None
        values = first_latents(view, nodes).to(device)
        odds = chance.to(values).clamp(1e-6, 1 - 1e-6).logit()
        measured = Measurements(weights.T.contiguous().to(device))
        std = added_std(view, Latents, values)
        variance = torch.full_like(values, std**2) if std > 0 else 0.0
        return recover_bits(measured, values, variance, odds, sweeps=_SWEEPS, restarts=0, rng=rng).chance

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_weight_updates(view, rng)


def _uploads(view: View) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Yield round, senders [P], the weights they had received [P, F, D] and those they uploaded [P, F D].

    The weights received are [1, F, D] where all received the same.
    """
    received: Tensor | None = None
    place = torch.full((view.public.num_clients,), -1)
    for batch, payload in view.sent(ModelUpdate):
        if bool((batch.senders == SERVER).all()):
            vector = payload.vector
            same = is_repeated(vector) or bool((vector == vector[0]).all())
            received = (vector[:1] if same else vector).reshape(-1, *next(iter(view.public.layout.values())))
            place.fill_(-1)
            place[batch.receivers] = torch.arange(len(vector))
        elif received is not None and payload.vector.shape[1] == received[0].numel():
            if len(received) == 1:
                yield batch.round, batch.senders, received, payload.vector
                continue
            known = (place[batch.senders] >= 0).nonzero().squeeze(1)  # whose weights were seen before the step
            yield batch.round, batch.senders[known], received[place[batch.senders[known]]], payload.vector[known]


def _gradients(view: View) -> dict[int, Tensor]:
    """Return the gradients that every user got [N, D], by round; zero for users without."""
    found: dict[int, Tensor] = {}
    for batch, payload in view.sent(LatentGradients):
        table = found.setdefault(batch.round, payload.values.new_zeros(view.public.num_nodes, payload.values.shape[1]))
        table[batch.receivers] = payload.values
    return found


@dataclass(frozen=True)
class UserStep:
    """One step of P users.

    Attributes:
        before: weights before the step [P, F, D], or [1, F, D].
        after: weights after it, as the observer has them [P, F, D].
        gradient: of the latents [P, D].
        kept: whether Adam's bias corrections apply.
        std: standard deviation of the error of ``after``, of all or of each user [P, 1, 1].
    """

    before: Tensor
    after: Tensor
    gradient: Tensor
    optimizer: UserOptimizer
    kept: bool
    std: float | Tensor


def _undo_clip(step: UserStep, ones: float, clip: KnownClip) -> UserStep:
    """Return ``step`` without a clip on its weights or on their change; rows have ``ones`` ones, typically."""
    before, after, optimizer = step.before, step.after, step.optimizer
    whole = (after * before).sum((1, 2), keepdim=True) / before.square().sum((1, 2), keepdim=True)
    # Below 1 the defense clipped the weights, not their change.
    whole = torch.where(whole < _SHORTENED, whole, 1.0).clamp(min=1e-3)
    change = before - after / whole
    decay = (optimizer.weight_decay * before).expand_as(change)
    moves = [decay, decay + step.gradient[:, None]]
    if optimizer.adam:
        moves = [first_adam_step(v, step.kept) for v in moves]
    share = ones / before.shape[1]
    squares = ((1 - share) * moves[0].square() + share * moves[1].square()).sum((1, 2)) * optimizer.learning_rate**2
    factor, rest = (v.view(-1, 1, 1) for v in clip.effect(squares, before[0].numel()))
    factor = torch.where(whole < 1, 1.0, factor)
    std = (step.std**2 + torch.where(whole < 1, 0.0, rest)).sqrt() / (whole * factor)
    return replace(step, after=before - change / factor, std=std)


def _row_estimates(step: UserStep, kind: FeatureKind) -> tuple[Tensor, Tensor]:
    """Return estimates of the rows and their precisions, both [P, F]."""
    before, after, optimizer, kept = step.before, step.after, step.optimizer, step.kept
    moved = (before - after) / optimizer.learning_rate
    error = (_ROUNDING * torch.maximum(before.abs(), after.abs()) + step.std) / optimizer.learning_rate
    decay = optimizer.weight_decay * before
    slope = step.gradient[:, None].expand_as(moved)
    if not optimizer.adam:
        shown = moved - decay
    elif kind is FeatureKind.BINARY:  # between the steps that an absent and a present feature would take
        absent, present = (first_adam_step(v, kept) for v in (decay, slope + decay))
        shown, slope = moved - absent, present - absent
        error = error + _ROUNDING
    else:
        size = moved.abs().clamp(max=1)
        short = 1 - size  # eps / (|v| + eps)
        shown = moved.sign() * _EPSILON * size / short.clamp(min=1e-12) - decay
        error = (error + _BIAS_CORRECTION * kept) * _EPSILON / short.square().clamp(min=1e-24)
        slope = torch.where(short > _RESOLVED * (error * short.square() / _EPSILON), slope, 0.0)
    weight = slope / error.square().clamp(min=1e-40)
    precision = (weight * slope).sum(-1)
    return (weight * shown).sum(-1) / precision.clamp(min=1e-30), precision


def sign_bounds(step: UserStep) -> tuple[Tensor, Tensor]:
    """Return between which numbers the signs of an Adam step put the entries of rows, each [P, F]."""
    moved = step.before - step.after
    error = _ROUNDING * torch.maximum(step.before.abs(), step.after.abs()) + step.std
    turn = -step.optimizer.weight_decay * step.before / step.gradient[:, None]
    certain = (moved.abs() > _CERTAIN * error) & turn.isfinite()
    above = moved.sign() == step.gradient[:, None].sign()
    low = torch.where(certain & above, turn, -torch.inf).amax(2)
    return low, torch.where(certain & ~above, turn, torch.inf).amin(2)


def _real_rows(
    view: View, nodes: Tensor, value: Tensor, precision: Tensor, bounds: Tensor, drop: float
) -> Reconstruction:
    """Turn estimates of real-valued rows into rows.

    Args:
        nodes: [U].
        value, precision: estimates and their precisions [U, F].
        bounds: least and largest that each entry can be [2, U, F].
        drop: share of the features that users drop.
    """
    prior, seen = feature_prior(view, nodes), view.known_rows().x
    size = float(seen[seen != 0].abs().mean().item()) if bool((seen != 0).any()) else 1.0
    # Of a row whose small entries are read the others, of which signs are, are at least as large.
    read = torch.where(precision * value.square() > _CLEAR, value.abs(), 0.0).amax(1, keepdim=True)
    low, high = bounds
    bounded = (low <= high) & (low.isfinite() | high.isfinite())
    expected = torch.where(bounded, expected_entries(low, high, read, bounded, size), prior.mean.to(value))
    known = 1 / prior.variance.to(value).clamp(min=1e-12)
    rows = (precision * value + known * expected) / (precision + known)
    error = precision.rsqrt() + (rows - value).abs()
    determined = (error.amax(1) < _REAL_PROOF * value.abs().amax(1)).cpu() & (drop == 0)
    told = ((precision > 0) | bounded).any(1).cpu()  # of others nothing was read, and the mean of no rows is no guess
    return Reconstruction(rows.float().cpu()[told], nodes[told], determined.float()[told], determined[told])


def _rows(view: View, nodes: Tensor, value: Tensor, precision: Tensor, chance: Tensor, drop: float) -> Reconstruction:
    """Turn estimates into discrete rows.

    Args:
        nodes: [U].
        value, precision: estimates and their precisions [U, F].
        chance: prior probabilities of ones [U, F].
        drop: share of the features that users drop.
    """
    prior = feature_prior(view, nodes)
    kind = view.public.features
    level = torch.ones_like(value[:, :1])
    determined = (precision >= _PROOF**-2).all(1).cpu() & (drop == 0)
    if kind is FeatureKind.SCALED_BINARY:
        sure = torch.where(precision * value.square() > _CLEAR, value, 0.0)
        top = sure.amax(1, keepdim=True)
        high = sure > 0.5 * top
        level = torch.where(
            top > 0, (sure * high).sum(1, keepdim=True) / high.sum(1, keepdim=True).clamp(min=1), prior.level
        )
        determined = (precision >= (_PROOF * level) ** -2).all(1).cpu() & (drop == 0)
    odds = chance.to(value).clamp(1e-6, 1 - 1e-6).logit() + (value * level - level.square() / 2) * precision
    found = odds.sigmoid()
    rows = best_f1_bits(found)
    sure = torch.where(rows > 0, found, 1 - found).clamp(min=1e-12).log().sum(1).exp().cpu()
    return Reconstruction((rows * level).float().cpu(), nodes, torch.where(determined, 1.0, sure).float(), determined)
