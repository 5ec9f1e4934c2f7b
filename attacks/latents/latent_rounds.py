"""What an observer of nFedGNN holds: first weights if they were broadcast, latents and gradients of every round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.adversary.server_models import server_models
from fglaudit.graph import positions
from fglaudit.payloads import LatentGradients, Latents
from fglaudit.view import View


@dataclass(frozen=True)
class LatentRounds:
    """The first T recorded rounds of U users.

    Attributes:
        nodes: the users [U], global ids ascending.
        latents: as received [T, U, D]; zero where a user took no part.
        gradients: as returned by the server [T, U, D]; zero where none was recorded.
        present: which users sent a latent [T, U].
    """

    nodes: Tensor
    latents: Tensor
    gradients: Tensor
    present: Tensor

    def at(self, users: Tensor) -> LatentRounds:
        """Return the rounds of ``users`` (indices or slice)."""
        return LatentRounds(
            self.nodes[users.cpu()], *(value[:, users] for value in (self.latents, self.gradients, self.present))
        )

    def last_means(self, share: float) -> tuple[Tensor, Tensor]:
        """Return every user's mean latent [U, D] over its last rounds, as many as are ``share`` of all, at least one,
        and in how many of these it sent one at all [U, 1]. Users who are not sampled in every round have their own last
        ones: the server goes on with what they sent then."""
        last = max(1, round(share * len(self.latents)))
        late = self.present & (self.present.flip(0).cumsum(0).flip(0) <= last)
        since = int(late.any(1).int().argmax().item())
        count = late.sum(0).unsqueeze(1)
        total = torch.einsum("tu,tud->ud", late[since:].to(self.latents), self.latents[since:])
        return total / count.clamp(min=1), count

    def held(self, rounds: slice) -> Tensor:
        """Return what the server goes on with in each of ``rounds`` [T, U, D]: the last latent of every user, 0 before
        its first."""
        present = self.present[rounds]
        order = torch.arange(len(present), device=present.device).unsqueeze(1)
        last = torch.where(present, order, -1).cummax(0).values
        users = torch.arange(present.shape[1], device=present.device)
        return torch.where((last >= 0)[..., None], self.latents[rounds][last.clamp(min=0), users], 0.0)

    def of(self, users: slice, device: torch.device) -> LatentRounds:
        """Return the rounds of ``users`` in float64 on ``device``."""
        latents, gradients = (value[:, users].to(device, torch.double) for value in (self.latents, self.gradients))
        return LatentRounds(self.nodes[users], latents, gradients, self.present[:, users].to(device))


def initial_weights(view: View) -> Tensor | None:
    """Return the first layer's weights [F, D] that the server broadcast before round 1, or None."""
    round, model = next(server_models(view), (0, None))
    return None if model is None or round > 0 else model.reshape(next(iter(view.public.layout.values())))


def missing_latents(view: View) -> str | None:
    """Return why no latent of a user whose row is unknown was seen, or None."""
    if next(iter(view.messages.of(Latents)), None) is None:
        return "the observer saw no Latents"
    if len(unknown_users(view)) == 0:
        return "the observer saw no Latents but those of users whose rows it knows"
    return None


def all_clipped(view: View, most: int | None = None) -> str | None:
    """Return that a defense clipped every latent of the first ``most`` rounds, which hides its length, or None."""
    clip = KnownClip.of(view, Latents)
    if clip is None:
        return None
    for number, (_, payload) in enumerate(view.sent(Latents)):
        if most is not None and number == most:
            break
        if bool(clip.unclipped(payload.values, added_std(view, Latents, payload.values)).any()):
            return None
    return (
        "every latent may have been cut down to the clip, so that none can be followed by its length; see"
        " sparse-recovery"
    )


def senders(view: View) -> Tensor:
    """Return which users' latents were seen [N]."""
    seen = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    for batch in view.messages.of(Latents):
        seen[batch.senders] = True
    return seen


def unknown_users(view: View) -> Tensor:
    """Return the users whose latents were seen and whose rows the observer does not know, ascending global ids [U]."""
    seen = senders(view)
    seen[view.known_rows().nodes] = False
    return seen.nonzero().squeeze(1)


def first_latents(view: View, nodes: Tensor) -> Tensor:
    """Return the first latent that each of ``nodes`` [U] sent [U, D]: a user's weights are untouched until then."""
    position = _positions(view, nodes)
    found: Tensor | None = None
    missing = torch.ones(len(nodes), dtype=torch.bool)
    for batch, payload in view.sent(Latents):
        if found is None:
            found = payload.values.new_zeros(len(nodes), payload.values.shape[1])
        place = position[batch.senders]
        new = (place >= 0) & missing[place]
        found[place[new]] = payload.values[new]
        missing[place[new]] = False
        if not bool(missing.any()):
            break
    assert found is not None and not bool(missing.any())
    return found


def latent_rounds(view: View, nodes: Tensor, most: int | None = None) -> LatentRounds:
    """Return the first ``most`` rounds (None: all) of ``nodes`` [U]."""
    position = _positions(view, nodes)
    latents: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}
    present: dict[int, Tensor] = {}
    for batch, payload in view.sent(Latents):
        if most is not None and len(latents) == most and batch.round not in latents:
            break
        place = position[batch.senders]
        if batch.round in present and bool(present[batch.round][place[place >= 0]].any()):
            continue  # a second upload of the round, for evaluation
        values = latents.setdefault(batch.round, payload.values.new_zeros(len(nodes), payload.values.shape[1]))
        values[place[place >= 0]] = payload.values[place >= 0]
        present.setdefault(batch.round, torch.zeros(len(nodes), dtype=torch.bool))[place[place >= 0]] = True
        gradients.setdefault(batch.round, torch.zeros_like(values))
    for batch, down in view.sent(LatentGradients):
        if batch.round not in gradients:
            continue
        place = position[batch.receivers]
        gradients[batch.round][place[place >= 0]] = down.values[place >= 0]
    stacked = (torch.stack([by_round[t] for t in sorted(latents)]) for by_round in (latents, gradients, present))
    return _while_finite(LatentRounds(nodes, *stacked))


def _while_finite(rounds: LatentRounds) -> LatentRounds:
    """Return ``rounds`` of every user up to the first number that is none: what a training sent once it diverged tells
    nothing, and no sum of it with what came before does."""
    sound = rounds.latents.isfinite().all(-1)
    steps = rounds.gradients.isfinite().all(-1)
    if bool(sound.all()) and bool(steps.all()):
        return rounds
    before = torch.cat([torch.ones_like(steps[:1]), steps[:-1]])
    there = (sound & before).cummin(0).values
    gone, still = ~there[..., None], ~(there & steps)[..., None]
    latents, gradients = rounds.latents.masked_fill(gone, 0.0), rounds.gradients.masked_fill(still, 0.0)
    return LatentRounds(rounds.nodes, latents, gradients, rounds.present & there)


def _positions(view: View, nodes: Tensor) -> Tensor:
    """Return the index in ``nodes`` of every global id [N], -1 where it is not there."""
    return positions(nodes, view.public.num_nodes)
