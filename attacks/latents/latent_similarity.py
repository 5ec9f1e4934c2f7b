"""Edges from latents: nFedGNN's regulariser makes the latents of neighbours alike, for everyone who sees them.

An observer of the uploads without the topology (the wire) compares users: equation (6) makes neighbours alike, so late
in training the cosine of two users' latents shows whether they are near each other. The returned gradients contain
more: that of the regulariser is ``2 lambda / sum |N| * 2 sum_j (latent_i - latent_j)`` over the neighbours j of i, so
``-gradient_i`` points to them from the first round on, when latents are still apart. Both scores, each in units of its
own standard deviation, are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.clipping import added_std
from fglaudit.adversary.modelled import training_changed
from fglaudit.attacks.latents.latent_rounds import LatentRounds, latent_rounds, missing_latents, senders
from fglaudit.attacks.latents.modelled_facts import clipped_latents, disturbed_latents, rows_changed
from fglaudit.attacks.latents.planting import plant_neighbors
from fglaudit.facts import Additive, Fact, Randomised
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import LatentGradients, Latents, Payload
from fglaudit.view import View

_ROWS_AT_ONCE = 1024
_LATE = (0.1, 0.3, 1.0)
"""Shares of the rounds, the last ones, whose mean latents are compared: the least that noise does not dominate."""
_NOISY = 0.2
"""Share of the variance of mean latents from which noise counts as dominating."""
_EARLY_ROUNDS = 20


@dataclass(frozen=True)
class LatentSimilarity(Attack):
    """Rank pairs of users by how alike their latents are and where their gradients point.

    Attributes:
        pairs: most pairs that are listed, those of highest score.
    """

    name: ClassVar[str] = "latent-similarity"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents, LatentGradients)
    metric: ClassVar[str] = "auc"
    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = (Additive, Randomised)
    quantity: ClassVar[str] = "edges"
    least: ClassVar[Mapping[str, float]] = {"pairs": 1}

    pairs: int = 4_000_000

    def models(self, fact: Fact) -> bool:
        """Users are compared by what they sent, whatever rows that was computed from; gradients are those of latents as
        they were sent. Edges that were dropped leave no trace in either."""
        return rows_changed(fact) or training_changed(fact) or disturbed_latents(fact) or clipped_latents(fact)

    def unsupported(self, view: View) -> str | None:
        return missing_latents(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        nodes = senders(view).nonzero().squeeze(1)
        rounds = latent_rounds(view, nodes)
        late = _late_directions(rounds, added_std(view, Latents, rounds.latents[-1])).to(device)
        targets, descents = (value.to(device) for value in _early_descents(rounds))
        keep = max(1, min(len(nodes), self.pairs // max(1, len(nodes))))
        subjects, scores = [], []
        for low in range(0, len(nodes), _ROWS_AT_ONCE):
            part = slice(low, low + _ROWS_AT_ONCE)
            alike = late[part] @ late.mT
            toward = descents[part] @ targets.mT + targets[part] @ descents.mT
            score = alike / alike.std().clamp(min=1e-12) + toward / toward.std().clamp(min=1e-12)
            value, other = score.topk(keep, dim=1)
            first = torch.arange(low, low + len(value), device=device)[:, None].expand_as(other)
            pair = first < other if keep == len(nodes) else first != other
            subjects.append(torch.stack([first[pair], other[pair]], 1))
            scores.append(value[pair])
        return Inference(type(self).quantity, nodes[torch.cat(subjects).cpu()], torch.cat(scores).cpu())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_neighbors(view, rng)


def _late_directions(rounds: LatentRounds, std: float) -> Tensor:
    """Return the directions of the mean latents of the last rounds from the mean over users [U, D].

    Args:
        std: standard deviation of the noise on a latent.
    """
    centered = torch.zeros_like(rounds.latents[0])
    for share in _LATE:
        mean, count = rounds.last_means(share)
        centered = mean - mean.mean(0)
        noise = std**2 * float((1 / count.clamp(min=1)).mean().item())
        if noise <= _NOISY * float(centered.square().mean().item()):
            break
    return torch.nn.functional.normalize(centered, dim=1)


def _early_descents(rounds: LatentRounds) -> tuple[Tensor, Tensor]:
    """Return directions of latents and of descents in the first rounds, [U, R D] each.

    Their products are summed over these rounds.
    """
    first = slice(0, _EARLY_ROUNDS)
    held = rounds.held(first)
    targets = held - held.mean(1, keepdim=True)
    descents = -rounds.gradients[first]
    flat = (torch.nn.functional.normalize(v, dim=2).transpose(0, 1).flatten(1) for v in (targets, descents))
    return tuple(flat)  # type: ignore[return-value]
