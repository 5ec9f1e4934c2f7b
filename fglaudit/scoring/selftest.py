"""Rule 6: an attack proves itself before its silence counts.

On a planted plain leak of the cell's shapes it must succeed (:func:`planted_flaw`; nobody needs the truth for that); on
messages of pure noise it must do no better than its control (:func:`on_noise`, for the scorer). An attack that fails
either is reported as `broken-attack`, never as "no leakage".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.local_reports import attack_reports
from fglaudit.adversary.running.contained import contained
from fglaudit.interfaces import Attack
from fglaudit.payloads import MessageBatch, Payload, is_repeated
from fglaudit.quantities import Attempt, Result, quantity
from fglaudit.quantities.base import Excess
from fglaudit.rng import copied, derive, split
from fglaudit.scoring.output import Output
from fglaudit.view import Messages, View

PLAIN_LEAK_AT_LEAST = 0.95
"""Share of a planted answer that an attack must find."""
_ROUNDING = 1e-6
"""19 rows of 20 are less than 0.95 in float32."""
NOISE_AT_MOST = 0.02
"""How much an attack may exceed its control on messages that carry nothing."""
NOISE_DRAWS = 5
"""How often an attack may try again on fresh noise before it counts as broken."""


@dataclass(frozen=True)
class NoiseMessages:
    """The same messages with every floating-point tensor replaced by Gaussian noise of the same mean and spread.

    Attributes:
        ids_below: replace the node ids of rows too, by random ones below this number, and deal the rows out evenly: the
            client of a hub has by far the most. 0 keeps them.
    """

    messages: Messages
    seed: int
    ids_below: int = 0

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        rng = derive(self.seed, "noise", payload.__name__)  # else latents would be columns of weights: plain unit rows
        for batch in self.messages.of(payload):
            tensors = {
                name: _noise_like(value, rng) if value.is_floating_point() else value
                for name, value in batch.payload.tensors().items()
            }
            splits = batch.splits
            if self.ids_below and "nodes" in tensors:
                tensors["nodes"] = torch.randint(self.ids_below, tensors["nodes"].shape, generator=rng)
                splits = None if splits is None else _even(splits)
            noise = type(batch.payload).from_tensors(tensors)
            yield MessageBatch(batch.round, batch.senders, batch.receivers, noise, splits)


def _even(splits: Tensor) -> Tensor:
    """Return offsets [P + 1] of as many rows in messages of equal length, but for rounding."""
    return torch.arange(len(splits)) * int(splits[-1].item()) // (len(splits) - 1)


def _noise_like(value: Tensor, rng: torch.Generator) -> Tensor:
    """Return Gaussian noise of the mean and spread of ``value``; where all messages share one entry they still do."""
    source = value[:1] if is_repeated(value) or _all_alike(value) else value
    spread = source.std() if source.numel() > 1 else 0.0  # one number has none
    noise = torch.randn(source.shape, generator=rng).to(value) * spread + source.mean()
    return noise.expand(value.shape)


def _all_alike(value: Tensor) -> bool:
    """Whether all messages hold the same numbers, each its own copy of them: what a server returns to everybody after
    it was sealed. Noise of their own would tell the receivers apart."""
    return len(value) > 1 and torch.equal(value[0], value[1]) and bool((value == value[:1]).all())


def planted_flaw(attack: Attack, view: View, rng: torch.Generator, device: torch.device) -> str | None:
    """Return what is wrong with ``attack`` on a planted plain leak of the shapes of ``view``, or None."""
    kind = quantity(type(attack).quantity)
    with contained(attack):
        planted = planted_for(attack, view, split(rng, "plant"))
        result = attack.run(planted.view, rng=split(rng, "planted"), device=device)
    if not kind.accepts(result):
        return f"self-test: it returned nothing about {kind.name}"
    found = kind.planted_score(planted, result, split(copied(rng), "planted guess"))
    if found >= PLAIN_LEAK_AT_LEAST - _ROUNDING:
        return None
    return f"self-test: {kind.planted_words(planted, found, PLAIN_LEAK_AT_LEAST)}"


@dataclass
class BlindViews:
    """Views of noise that the attacks of one observer share, so that what is made once per view is made once for all
    of them. Only the last one is kept: the next view takes its place, and its memory."""

    _kept: tuple[View, int, int, View] | None = None

    def of(self, view: View, draw: int, ids_below: int, seed: int) -> View:
        """Return ``view`` with the noise of ``draw``; ``seed`` is the noise's where it was not drawn yet."""
        if self._kept is None or self._kept[0] is not view or self._kept[1:3] != (draw, ids_below):
            self._kept = None  # before the next one needs memory
            messages = NoiseMessages(view.messages, seed, ids_below)
            self._kept = view, draw, ids_below, dataclasses.replace(view, messages=messages)
        return self._kept[3]


@dataclass(frozen=True)
class NoiseRuns:
    """Results of ``attack`` on up to ``NOISE_DRAWS`` draws of noise, each run when it is asked for."""

    attack: Attack
    view: View
    rng: torch.Generator
    device: torch.device
    blind: BlindViews = field(default_factory=BlindViews, repr=False)

    def __iter__(self) -> Iterator[Result]:
        rng = copied(self.rng)
        for draw in range(NOISE_DRAWS):
            seed = int(torch.randint(2**31, (1,), generator=rng).item())
            ids_below = self.view.public.num_nodes if type(self.attack).reads_ids else 0
            blind = self.blind.of(self.view, draw, ids_below, seed)
            yield attack_reports(self.attack, blind, split(rng, "noise"), self.device)


class OnNoise(NamedTuple):
    """What an attack did on messages of noise.

    Attributes:
        flaw: how it beat the guess without any message, or None.
        unique: how many rows that one node alone has it got right on some draw; see ``Quantity.unique_exact``.
    """

    flaw: str | None
    unique: int = 0


def on_noise(output: Output, tested: Attempt) -> OnNoise:
    """Return what ``output``'s attack did on messages of noise in the shapes of ``tested``, its answer to the tested
    view.

    Compared are advantages in the attack's own metric, and for feature rows exact rows too. On noise an attack may beat
    its control by chance: three standard errors are allowed beside the usual margin. These are too small where few
    clients make all targets alike, so only an attack that exceeds them on every draw is broken.
    """
    kind = quantity(type(output.attack).quantity)
    if output.on_noise is None:
        return OnNoise(None)
    least, unique = float("inf"), 0
    for result in output.on_noise:
        if not kind.accepts(result):
            return OnNoise(f"self-test: it returned nothing about {kind.name}")
        blind = tested._replace(result=result)
        unique = max(unique, kind.unique_exact(blind) or 0)
        beyond = [
            part.values.mean().item()
            for part in kind.excess(output.attack, blind)
            if not part.values.mean().item() <= NOISE_AT_MOST + 3 * standard_error(part)
        ]
        if not beyond:
            return OnNoise(None, unique)
        least = min(least, *beyond)
    return OnNoise(
        f"self-test: on every draw of noise it beat its control, by {least:.3f} at least; it reads something not sent",
        unique,
    )


def standard_error(excess: Excess) -> float:
    """Return the standard error of the mean of V values, which depend on each other within clusters; at least that of
    independent ones, which is all there is where one cluster holds all targets."""
    centred, clusters = excess.values - excess.values.mean(), excess.clusters
    if (others := excess.negatives) is not None:
        centred, clusters = torch.cat([centred, others.moved(others.values)]), torch.cat([clusters, others.clusters])
    _, index = torch.unique(clusters, return_inverse=True)
    sums = torch.zeros(int(index.max().item()) + 1, dtype=centred.dtype).index_add_(0, index, centred)
    square = max(sums.square().sum().item(), centred.square().sum().item())
    return float(square**0.5) / len(excess.values)
