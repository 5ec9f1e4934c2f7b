"""Defenses whose noise has the stated distribution in every number, and depends on itself: it can be taken away again.

A suite names one as ``{name: "bench/redteam/dependent_noise.py:Dependent", kind: turned-halves}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Additive, Fact, Field, Rounded
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive

_STEP = 2.0**-8


def _normal(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def _turn(width: int, number: int = 0) -> Tensor:
    """A rotation that everybody can draw."""
    turned: Tensor = torch.linalg.qr(_normal((width, width), derive(5, "turn", number)))[0]
    return turned


def _seeded_rows(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Every row has one of 2^16 seeds of its own."""
    seeds = torch.randint(2**16, (rows,), generator=rng).tolist()
    return torch.from_numpy(np.stack([np.random.default_rng(seed).standard_normal(width) for seed in seeds]))


def _turned_halves(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """The second half of the rows has the noise of the first, turned."""
    noise, half = _normal((rows, width), rng), rows // 2
    noise[half : 2 * half] = noise[:half] @ _turn(width)
    return noise


def _mixed_rows(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """As above, with some noise of its own: its rows are not as long as the others."""
    noise, half = _normal((rows, width), rng), rows // 2
    noise[half : 2 * half] = 0.9 * noise[:half] @ _turn(width) + math.sqrt(1 - 0.9**2) * noise[half : 2 * half]
    return noise


def _turned_fours(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Four rows share one draw, each under a rotation of its own."""
    drawn = _normal(((rows + 3) // 4, width), rng).repeat_interleave(4, 0)[:rows]
    turns = torch.stack([_turn(width, number) for number in range(4)])
    return torch.einsum("nd,nde->ne", drawn, turns[torch.arange(rows) % 4])


def _cancels(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Noise of a node's rows adds up to nothing where three clients or more send one."""
    noise = _normal((rows, width), rng)
    for node in torch.unique(ids):
        at = (ids == node).nonzero()[:, 0]
        if (count := len(at)) > 2:
            noise[at] = (noise[at] - noise[at].mean(0)) / math.sqrt((count - 1) / count)
    return noise


def _triples(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Of three numbers the third's rank is the sum of the others', modulo 1."""
    noise, third = _normal((rows, width), rng), width // 3
    one, two = noise[:, 0 : 3 * third : 3], noise[:, 1 : 3 * third : 3]
    ranks = (torch.special.ndtr(one) + torch.special.ndtr(two)) % 1.0
    noise[:, 2 : 3 * third : 3] = torch.special.ndtri(ranks.clamp(1e-12, 1 - 1e-12))
    return noise


def _own_directions(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Every row has a direction of its own, known to everybody, without noise."""
    noise = _normal((rows, width), rng)
    bare = torch.nn.functional.normalize(_normal((rows, width), derive(6, "bare")), dim=1)
    return noise - (noise * bare).sum(1, keepdim=True) * bare


def _one_direction(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Rows have no noise in one dense direction that everybody knows."""
    bare = torch.nn.functional.normalize(_normal((width,), derive(7, "bare")), dim=0)
    noise = _normal((rows, width), rng)
    return noise - (noise @ bare)[:, None] * bare


def _no_sum(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """All numbers of all rows add up to what they would without noise."""
    noise = _normal((rows, width), rng)
    return noise - noise.mean()


def _honest(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    return _normal((rows, width), rng)


def _honest_numpy(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """A generator of another library, with a long seed from the run's."""
    drawn = np.random.default_rng(torch.randint(2**62, (4,), generator=rng).tolist())
    return torch.from_numpy(drawn.standard_normal((rows, width)))


RULES: dict[str, Callable[[int, int, Tensor, torch.Generator], Tensor]] = {
    "seeded-rows": _seeded_rows,
    "turned-halves": _turned_halves,
    "mixed-rows": _mixed_rows,
    "turned-fours": _turned_fours,
    "cancels": _cancels,
    "triples": _triples,
    "own-directions": _own_directions,
    "one-direction": _one_direction,
    "no-sum": _no_sum,
    "honest": _honest,
    "honest-numpy": _honest_numpy,
    "honest-grid": _honest,
}
HONEST = ("honest", "honest-numpy", "honest-grid")
KINDS = tuple(kind for kind in RULES if kind not in HONEST)


@dataclass(frozen=True)
class Dependent(Defense):
    """Plant one of the kinds on the sums that FedGCN's clients send."""

    name: ClassVar[str] = "dependent"
    shown: ClassVar[tuple[str, ...]] = ("kind",)

    kind: str = "turned-halves"
    std: float = 50.0

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self)

    def weakened(self, factor: float) -> Dependent:
        return replace(self, std=self.std * factor)


class _Session(DefenseSession):
    def __init__(self, defense: Dependent) -> None:
        self.defense = defense

    def changes(self, payload: type[Payload]) -> bool:
        return payload.__name__ == "NeighborSums"

    def facts(self) -> tuple[Fact, ...]:
        field = Field("NeighborSums", "", "up")
        noise = Additive(field, "gaussian", self.defense.std)
        return (noise, Rounded(field, _STEP)) if self.defense.kind == "honest-grid" else (noise,)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not self.changes(type(batch.payload)) or bool((batch.senders == SERVER).all()):
            return batch.payload
        sent = batch.payload.tensors()
        sums, nodes = sent["sums"], sent["nodes"]
        noisy = sums.double() + self.defense.std * RULES[self.defense.kind](len(sums), sums.shape[1], nodes, rng)
        if self.defense.kind == "honest-grid":
            noisy = _STEP * (noisy / _STEP).round()
        return type(batch.payload).from_tensors({"nodes": nodes, "sums": noisy.to(sums)})
