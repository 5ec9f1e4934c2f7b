"""Feature rows made random before use, and sums of losses' gradients, replayed with values of the auditor's choice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.replays.stages import HUGE, WIDE, Pair, Stage, directions, worlds
from fglaudit.facts import Additive, Clipped, Randomised
from fglaudit.graph import ClientGraph


@dataclass(frozen=True, kw_only=True)
class RowStage(Stage):
    """Rows that pass through ``prepare``, each a node of its own without neighbours.

    Attributes:
        like: a real client, of which all but the rows is replaced.
        fact: how rows are made random.
        clip: what is stated of a row before the noise.
    """

    like: ClientGraph
    fact: Additive | Randomised
    clip: Clipped | None

    @property
    def numbers(self) -> int:
        return self.width * self.noise.releases

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.like.x.shape[-1]

    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        if isinstance(self.fact, Randomised):
            low, high = (float(dict(self.fact.parameters).get(name, at)) for name, at in (("low", 0.0), ("high", 1.0)))
            row = torch.full((self.width,), high + HUGE * (high - low), dtype=torch.float64)
            either = torch.where(torch.rand(self.width, generator=rng) < 0.5, row, low + high - row)
            return [
                Pair("a row of highest entries", row, low + high - row),
                Pair("a row of highest and lowest entries", either, low + high - either),
            ]
        bound = self.clip.bound if self.clip is not None else self.noise.sensitivity / self.relation.moves
        norm = self.clip.norm if self.clip is not None else "L2"
        turned = self.noise.sensitivity > 1.5 * bound
        return [
            worlds(f"a row with {name}, {size:g} clips long", size * bound * v, turned=turned)
            for size, (name, v) in zip((HUGE, HUGE, WIDE), directions(self.width, rng, norm), strict=False)
        ]

    def side_by_side(self, given: Tensor, copies: int, rng: torch.Generator) -> Tensor:
        rows = given.to(self.like.x).expand(copies * self.noise.releases, self.width)
        x = rows if self.like.x.dim() == 2 else rows.unsqueeze(1)
        seen = self.fresh().prepare(_alone(self.like, x.clone()), rng).x.double()
        return seen.reshape(copies, self.noise.releases, self.width)


def _alone(like: ClientGraph, x: Tensor) -> ClientGraph:
    """Return a client of as many nodes as rows ``x`` [n, ...], without edges."""
    count = len(x)
    none = torch.empty(2, 0, dtype=torch.long)
    mask = torch.ones(count, *like.train.shape[1:], dtype=torch.bool)
    return dataclasses.replace(
        like,
        nodes=torch.arange(count),
        x=x,
        y=torch.zeros(count, *like.y.shape[1:], dtype=like.y.dtype),
        edge_index=none,
        degrees=torch.zeros(count, dtype=torch.long),
        remote_nodes=none[0],
        remote_degrees=None if like.remote_degrees is None else none[0],
        boundary=none,
        train=mask,
        val=~mask,
        test=~mask,
    )


@dataclass(frozen=True, kw_only=True)
class UpdateStage(Stage):
    """Sums of gradients: every replay is a client with a batch of realistic size, of which one node changes some.

    Attributes:
        clip: of one loss's gradient.
        losses: how many of them the account lets one node change.
        batch: losses of a client in the graph.
        sampled: whether losses are drawn at random.
    """

    clip: Clipped
    losses: int
    batch: int
    sampled: bool = False

    WIDTH = 3

    @property
    def numbers(self) -> int:
        return self.WIDTH * max(self.noise.releases, self.losses, self.batch)

    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        sizes = (HUGE, HUGE, WIDE)
        return [
            worlds(f"gradients along {name}, {size:g} clips long", size * self.clip.bound * v, turned=True)
            for size, (name, v) in zip(sizes, directions(self.WIDTH, rng, self.clip.norm), strict=False)
        ]

    def side_by_side(self, given: Tensor, copies: int, rng: torch.Generator) -> Tensor:
        session = self.fresh()
        size = max(self.batch, self.losses)
        gradients = torch.zeros(size, 1, self.WIDTH)
        gradients[: self.losses, 0] = given.float()
        # The others are public to the adversary, and alike in both worlds.
        gradients[self.losses :, 0] = 0.1 * self.clip.bound / math.sqrt(self.WIDTH)
        whole = gradients.expand(-1, copies, -1).contiguous()
        seen = torch.empty(copies, self.noise.releases, self.WIDTH, dtype=torch.float64)
        for release in range(self.noise.releases):
            seen[:, release] = session.local_update(whole, rng).double()
        return seen
