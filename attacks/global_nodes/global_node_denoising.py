"""Denoising of FedGT's global nodes (section 4.3: ``clip(g, delta) + Laplace(0, lambda)``, fresh noise in each round).

The codebook moves slowly (momentum 0.9, and the average that comes back resembles what was sent), so T noisy uploads
are T observations of nearly the same numbers. Each coordinate is a hidden state on a grid between the clip bounds that
stays, steps to a neighbouring level or jumps; the noise is known, and the transition rate is the one with the highest
likelihood for a client's uploads. The forward filter then gives the mean of every coordinate in the last round. What
was clipped stays unknown. Rounding to levels is weak noise: uploads are averaged with the gain that their changes from
round to round allow for. Without noise the last upload is the result.

A client's global nodes keep their order from round to round. Should a protocol shuffle them, the filter's predictions
are matched to the uploads first: an order other than the last one is accepted if the uploads favour it by more than
``evidence`` (log odds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.adversary.modelled import about, decides, fewer_edges, known_noise, message_clip, training_changed
from fglaudit.adversary.public_rules import noise_on
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import codebooks, missing_uploads
from fglaudit.attacks.global_nodes.clusters import upload_error
from fglaudit.attacks.global_nodes.planting import dealt_nodes, rehearsed_round
from fglaudit.facts import ROWS, Additive, Fact, Rounded
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import GlobalNodes, Payload
from fglaudit.view import View

RATES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)
"""Transition probabilities of a state per round that are tried."""
_JUMPS = 0.1
"""Share of the transitions that go anywhere; the others go to a neighbouring level."""


@dataclass(frozen=True)
class GlobalNodeDenoising(Attack):
    """De-noise the last global nodes.

    Attributes:
        levels: of the grid.
        evidence: log odds needed to believe that the global nodes changed their order.
    """

    name: ClassVar[str] = "global-node-denoising"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes,)
    metric: ClassVar[str] = "cosine"
    quantity: ClassVar[str] = "global-nodes"
    least: ClassVar[Mapping[str, float]] = {"levels": 1, "evidence": 0}

    levels: int = 9
    evidence: float = 10.0

    def models(self, fact: Fact) -> bool:
        """Noise, rounding and clips of what is uploaded; what is done before global nodes are made does not matter for
        what they were."""
        before = fewer_edges(fact) or training_changed(fact) or (fact.target == ROWS and decides(fact))
        rounded = isinstance(fact, Rounded) and about(fact, GlobalNodes)
        return before or rounded or known_noise(fact, GlobalNodes) or message_clip(fact, GlobalNodes)

    def unsupported(self, view: View) -> str | None:
        return missing_uploads(view, GlobalNodes)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        books = codebooks(view)
        estimate = self.estimate(view, books.uploaded.to(device), upload_error(view, books)).cpu()
        return Inference(type(self).quantity, books.clients, estimate.flatten(1))

    def estimate(self, view: View, uploaded: Tensor, error: float) -> Tensor:
        """Return estimates of the last global nodes [K, g, d] behind ``uploaded`` [T, K, g, d].

        Args:
            error: standard deviation of an entry's noise and rounding.
        """
        noise = noise_on(view, GlobalNodes)
        if noise is None:
            return _smoothed(uploaded, error)
        return self.denoise(uploaded, noise, UploadClip.of(view, GlobalNodes).bound or _range(uploaded, noise))

    def denoise(self, uploaded: Tensor, noise: Additive, bound: float) -> Tensor:
        """Return the means of the last states [K, g, d] from uploads [T, K, g, d] whose states lie within ``bound``."""
        uploaded = self._ordered(uploaded, noise)
        found = [self._filter(uploaded, noise, bound, rate) for rate in RATES]
        best = torch.stack([likelihood for _, likelihood in found]).argmax(0)
        return torch.stack([mean for mean, _ in found])[best, torch.arange(len(best), device=best.device)]

    def _filter(self, uploaded: Tensor, noise: Additive, bound: float, rate: float) -> tuple[Tensor, Tensor]:
        """Return the means of the last states [K, g, d] and the log likelihood of every client's uploads [K]."""
        grid = torch.linspace(-bound, bound, self.levels, device=uploaded.device)
        moves = _moves(self.levels, rate).to(uploaded.device)
        chance = torch.full((*uploaded.shape[1:], self.levels), 1 / self.levels, device=uploaded.device)
        likelihood = torch.zeros(len(chance), dtype=torch.double, device=uploaded.device)
        for seen in uploaded:
            chance = (chance @ moves) * _density(seen.unsqueeze(-1) - grid, noise)
            total = chance.sum(-1, keepdim=True)
            chance = chance / total
            likelihood += total.double().log().flatten(1).sum(1)
        return chance @ grid, likelihood

    def _ordered(self, uploaded: Tensor, noise: Additive) -> Tensor:
        """Return uploads with every client's global nodes in the order of its first upload, matched through noise."""
        ordered, mean = [uploaded[0]], uploaded[0].clone()
        for count, seen in enumerate(uploaded[1:], start=1):
            # The mean of ``count`` uploads is noisy as well.
            gain = torch.einsum("kad,kbd->kab", mean, seen) / (noise.std**2 * (1 + 1 / count))
            gain -= (mean.square().sum(2).unsqueeze(2) + seen.square().sum(2).unsqueeze(1)) / (
                2 * noise.std**2 * (1 + 1 / count)
            )
            gain = gain.cpu().double()
            stay = gain.diagonal(dim1=1, dim2=2).sum(1)
            rows = []
            for k in range(len(seen)):
                row, column = linear_sum_assignment(gain[k].numpy(), maximize=True)
                better = float(gain[k, row, column].sum().item()) - float(stay[k].item()) > self.evidence
                rows.append(seen[k, torch.from_numpy(column)] if better else seen[k])
            ordered.append(torch.stack(rows))
            mean = mean + (ordered[-1] - mean) / (count + 1)
        return torch.stack(ordered)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant global nodes without noise."""
        x = torch.randn(view.public.num_nodes, view.public.num_features, generator=rng)
        planted = rehearsed_round(view, x, dealt_nodes(view), rng)
        books = codebooks(planted, 1)
        return Planted(planted, books.uploaded[0].flatten(1), books.clients)


def _smoothed(uploaded: Tensor, error: float) -> Tensor:
    """Return the last states [K, g, d] of a random walk seen with ``error`` in ``uploaded`` [T, K, g, d].

    This is a Kalman filter with the walk's variance from the changes of each global node.
    """
    if error == 0 or len(uploaded) < 2:
        return uploaded[-1]
    drift = (uploaded.diff(dim=0).square().mean((0, 3), keepdim=True)[0] - 2 * error**2).clamp(min=0)
    mean, variance = uploaded[0], torch.full_like(drift, error**2)
    for seen in uploaded[1:]:
        gain = (variance + drift) / (variance + drift + error**2)
        mean, variance = mean + gain * (seen - mean), (1 - gain) * (variance + drift)
    return mean


def _density(difference: Tensor, noise: Additive) -> Tensor:
    """Return the noise density at ``difference``, up to a factor; never 0, so that outliers leave the state alone."""
    if noise.distribution == "laplace":
        return (-difference.abs() / noise.scale).exp().clamp(min=1e-30)
    return (-difference.square() / (2 * noise.std**2)).exp().clamp(min=1e-30)


def _moves(levels: int, rate: float) -> Tensor:
    """Return the transition probabilities [levels, levels] between levels."""
    near = torch.diag(torch.ones(levels - 1), 1) + torch.diag(torch.ones(levels - 1), -1)
    near = near / near.sum(1, keepdim=True)
    return (1 - rate) * torch.eye(levels) + rate * ((1 - _JUMPS) * near + _JUMPS / levels)


def _range(uploaded: Tensor, noise: Additive) -> float:
    """Return a bound on coordinates without a clip: four times their root mean square, estimated through the noise."""
    square = float(uploaded.double().square().mean().item()) - noise.std**2
    return 4 * math.sqrt(max(square, 1e-4 * noise.std**2))
