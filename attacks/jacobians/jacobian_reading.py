"""Reading feature rows off the Jacobians that GFL-APPNP's clients send the server.

"Gradient compensation" (section 3.3, Algorithm 1) has client j upload the Jacobian of its hidden representation. Up to
the known second layer its block for the first layer is ``G_j[h] = mean over samples s of 1[x_js . w_h > 0] x_js`` for
every hidden unit h.

* One sample per node: G_j[h] is x_j for every active unit. A message of the first round is enough.
* Several samples: every unit shows another subset sum of the samples, and the subsets change from round to round with
  the weights. The sums are separated by their mask flips (:mod:`fglaudit.attacks.jacobians.switched_sums`), all nodes
  at once; the result has one row per sample. Their number S scales the rows: it is estimated by the most rows found at
  one node (a lower bound, and exact unless every node misses one).
* Clipping to a norm shrinks a whole message by one factor, so that one sample per node is read as before; its length
  follows from any hidden representation that was not clipped. Several samples are only averaged, as under noise.
* Noise on the Jacobians (variant V1 of the paper, appendix A.2.5, or a defense) or quantisation: the rows are averaged
  over units, classes and rounds with masks inferred from the estimate, then fitted to the hidden representations, which
  V1 sends without noise (:mod:`fglaudit.attacks.jacobians.averaged_rows`); one row per node, the mean of its samples
  where there are several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, known_noise, message_clip, random_rows, sealed
from fglaudit.adversary.public_rules import lossless, stated
from fglaudit.attacks.jacobians.averaged_rows import averaged_rows
from fglaudit.attacks.jacobians.encoder import (
    Model,
    activations,
    common_model,
    foreign_batches,
    global_models,
    jacobian_noise,
    misfit,
    never_sent,
    rounding,
    sealing_error,
    unit_rows,
    untouched,
)
from fglaudit.attacks.jacobians.hidden_history import hidden_history
from fglaudit.attacks.jacobians.lone_rows import Population
from fglaudit.attacks.jacobians.mixture_rows import recover_rows
from fglaudit.attacks.jacobians.planting import plant_encoder_run
from fglaudit.facts import Absent, Clipped, Fact, Rounded, Sealed
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import HiddenRepresentations, Jacobians, ModelUpdate, Payload
from fglaudit.view import View

_NUMBERS_AT_ONCE = 1 << 25
_SOUND = 1e-3


@dataclass(frozen=True)
class JacobianReading(Attack):
    """Read every node's rows off its Jacobians.

    Attributes:
        rounds: rounds used to separate several samples of a node.
    """

    name: ClassVar[str] = "jacobian-reading"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Jacobians, HiddenRepresentations, ModelUpdate)
    metric: ClassVar[str] = "exact_rate"
    least: ClassVar[Mapping[str, float]] = {"rounds": 1}

    rounds: int = 100

    def models(self, fact: Fact) -> bool:
        """Noise, clips and seals of messages, rounding that averages out in Jacobians, and random reports of rows."""
        messages = (Jacobians, HiddenRepresentations)
        rounded = isinstance(fact, Rounded) and (
            about(fact, HiddenRepresentations) or (about(fact, Jacobians) and fact.stochastic)
        )
        kinds = (known_noise, message_clip, sealed, never_sent)
        return (
            rounded
            or any(kind(fact, *messages) for kind in kinds)
            or any(kind(fact) for kind in (untouched, common_model, random_rows))
        )

    def unsupported(self, view: View) -> str | None:
        return misfit(view, Jacobians)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        models = global_models(view, device)
        changes = [f for f in stated(view, Jacobians) if not isinstance(f, Sealed | Absent)]
        clipped = all(isinstance(f, Clipped) and f.norm != "elementwise" for f in changes)
        if jacobian_noise(view) > 0 or not clipped:
            return averaged_rows(view, models, device)
        read = _read_single(view, models, device)
        if changes:
            return _with_lengths(view, models, read, device)
        nodes = read.single.nonzero().squeeze(1)
        several = read.several.nonzero().squeeze(1)
        sure = torch.ones(len(nodes), dtype=torch.bool)
        rows, confidence, claimed = read.rows[nodes], sure.float(), sure
        if len(several):
            found = _separate(view, models, several, self.rounds, device)
            rows, nodes = torch.cat([rows, found.rows]), torch.cat([nodes, found.nodes])
            assert found.claimed is not None
            confidence = torch.cat([confidence, found.confidence])
            claimed = torch.cat([claimed, found.claimed])
        proven = torch.zeros_like(claimed)
        proven[: len(sure)] = lossless(view, Jacobians)
        return Reconstruction(rows, nodes, confidence, proven, claimed)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_encoder_run(view, rng)


@dataclass(frozen=True)
class _Single:
    """Rows of nodes with one sample.

    Attributes:
        rows: [N, F].
        single: which nodes have one sample [N].
        several: which nodes have several [N].
    """

    rows: Tensor
    single: Tensor
    several: Tensor


def _read_single(view: View, models: dict[int, Model], device: torch.device) -> _Single:
    """Read rounds until every sender showed an active unit."""
    count, features = view.public.num_nodes, view.public.num_features
    rows = torch.zeros(count, features)
    single, several, seen = (torch.zeros(count, dtype=torch.bool) for _ in range(3))
    round = None
    for batch, values in foreign_batches(view, Jacobians):
        if round not in (None, batch.round) and bool((single | several)[seen].all()):
            break
        round = batch.round
        values = values.to(device).double()
        sums, power = unit_rows(values, models[round])
        means = activations(values, models[round])
        # w_h . G[h] = mean relu(x . w_h): what does not satisfy it is no Jacobian of this encoder.
        gap = (torch.einsum("phf,fh->ph", sums, models[round].w1) - means).abs().amax(1)
        sound = (gap <= _SOUND * means.abs().amax(1)).cpu()
        norm = sums.norm(dim=2)
        slack = (
            4 * features**0.5 * rounding(sums)
            + 4 * sealing_error(view, Jacobians) * (features / power.clamp(min=1e-30)).sqrt()
        )
        active = norm > slack
        weight = power.expand_as(norm) * active
        mean = (weight[..., None] * sums).sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-30)
        apart = (sums - mean[:, None]).norm(dim=2) > 1e-3 * norm.amax(1, keepdim=True)
        mixed, any_active = (apart & active).any(1).cpu(), active.any(1).cpu()
        seen[batch.senders[sound]] = True
        several[batch.senders[mixed & sound]] = True
        fresh = any_active & ~mixed & sound & ~single[batch.senders]
        rows[batch.senders[fresh]] = mean[fresh.to(device)].float().cpu()
        single[batch.senders[fresh]] = True
    return _Single(rows, single & ~several, several)


def _with_lengths(view: View, models: dict[int, Model], read: _Single, device: torch.device) -> Reconstruction:
    """Return rows read from clipped Jacobians, scaled to the hidden representations that were not clipped."""
    nodes = read.single.nonzero().squeeze(1)
    rows, known = read.rows[nodes], torch.zeros(len(nodes), dtype=torch.bool)
    history = hidden_history(view, models, nodes, device)
    if history is not None:
        factor = history.scale(rows.to(device).double()).cpu()
        known = (factor != 1) & history.usable.any(2).any(1).cpu()
        rows = (rows * factor[:, None]).float()
    confidence, claimed = torch.where(known, 0.9, 0.5), torch.ones_like(known)
    if not bool(read.several.any()):
        return Reconstruction(rows, nodes, confidence, claimed=claimed)
    averaged = averaged_rows(view, models, device)
    assert averaged.claimed is not None
    rest = read.several[averaged.nodes]
    return Reconstruction(
        torch.cat([rows, averaged.rows[rest]]),
        torch.cat([nodes, averaged.nodes[rest]]),
        torch.cat([confidence, averaged.confidence[rest]]),
        claimed=torch.cat([claimed, averaged.claimed[rest]]),
    )


def _separate(view: View, models: dict[int, Model], nodes: Tensor, rounds: int, device: torch.device) -> Reconstruction:
    """Return the samples of nodes that have several each.

    Args:
        nodes: [n].
        rounds: most rounds used.
    """
    used = sorted({batch.round for batch, _ in foreign_batches(view, Jacobians)} & models.keys())[:rounds]
    weights = torch.stack([models[round].w1 for round in used]).float()
    step = max(1, _NUMBERS_AT_ONCE // max(1, weights.numel()))
    known = view.auxiliary.x  # without any node it still tells how many samples a node has
    samples = known.shape[1] if known.dim() == 3 else 1
    population = Population(known.flatten(0, -2).to(device), samples, view.public.features is not FeatureKind.REAL)
    parts = []
    for chunk in torch.split(nodes, step):
        sums = _sums_of(view, models, chunk, used, device)
        found = recover_rows(sums, torch.zeros_like(sums[..., 0]), weights, population)
        parts.append((chunk[found.mixture.cpu()], found.rows.cpu(), found.claimed.cpu(), found.signed.cpu()))
    owners, rows, claimed, signed = (torch.cat(part) for part in zip(*parts, strict=True))
    terms = torch.bincount(owners[claimed], minlength=1).max()
    confidence = torch.where(claimed, torch.where(signed, 0.9, 0.5), 0.1)
    return Reconstruction(rows * terms, owners, confidence, claimed=claimed)


def _sums_of(view: View, models: dict[int, Model], nodes: Tensor, rounds: list[int], device: torch.device) -> Tensor:
    """Return G of some nodes and rounds [B, T, H, F], float32.

    Args:
        nodes: [B].
        rounds: the T rounds.
    """
    features, hidden = models[rounds[0]].w1.shape
    place = {round: index for index, round in enumerate(rounds)}
    position = positions(nodes, view.public.num_nodes)
    sums = torch.zeros(len(nodes), len(rounds), hidden, features, device=device)
    for batch, values in foreign_batches(view, Jacobians):
        if batch.round > rounds[-1]:
            break
        index = position[batch.senders]
        wanted = index >= 0
        if batch.round in place and bool(wanted.any()):
            got, _ = unit_rows(values[wanted].to(device).double(), models[batch.round])
            sums[index[wanted].to(device), place[batch.round]] = got.float()
    return sums
