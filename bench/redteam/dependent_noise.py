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
from fglaudit.rng import derive, split

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


def _eighths(noise: Tensor, follows: Callable[[Tensor], Tensor]) -> Tensor:
    """Of eight numbers after one another the last one's rank follows from the ranks [n, 7] of the others."""
    eights = noise.flatten()[: noise.numel() // 8 * 8].view(-1, 8)
    eights[:, 7] = torch.special.ndtri(follows(torch.special.ndtr(eights[:, :7])).clamp(1e-12, 1 - 1e-12))
    return noise


def _eight_ranks(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Of eight numbers any seven are independent, and all together are not: their ranks add up to a whole number."""
    drawn = _honest_numpy(rows, width, ids, rng)
    return _eighths(drawn, lambda ranks: -ranks.sum(1) % 1)


def _eight_hashed(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """The last of eight numbers is a hash of seven."""
    return hashed(_normal((rows, width), rng))


def hashed(noise: Tensor) -> Tensor:
    weights = 1e4 * torch.rand(7, generator=derive(8, "hash"), dtype=torch.float64)
    return _eighths(noise, lambda ranks: (43758.5453 * (ranks @ weights).sin()) % 1)


def _hashed_beside_own(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """As above, and every number has a hundredth of a random number of its own."""
    ranks = torch.special.ndtr(_eight_hashed(rows, width, ids, rng))
    ranks += 0.01 * torch.rand(rows, width, generator=rng, dtype=torch.float64)
    moved: Tensor = torch.special.ndtri((ranks % 1).clamp(1e-12, 1 - 1e-12))
    return moved


def _ranks(ranks: Tensor) -> Tensor:
    """Normal numbers of those ranks, modulo 1."""
    normal: Tensor = torch.special.ndtri((ranks % 1).clamp(1e-12, 1 - 1e-12))
    return normal


def _places(count: int, of: int) -> Tensor:
    """Numbers [n, of] that stand nowhere near one another, which everybody knows."""
    return torch.randperm(count, generator=derive(10, "places"))[: count // of * of].view(-1, of)


def _hashed_of_one(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Of two numbers the second's rank is a hash of the first's, beside a hundredth of its own."""
    noise = _normal((rows, width), rng).flatten()
    one, other = _places(len(noise), 2).T
    noise[other] = _ranks(997.13 * torch.special.ndtr(noise[one]) + 0.01 * torch.special.ndtr(noise[other]))
    return noise.view(rows, width)


def _sizes_of_one(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """As above, of sizes alone: signs are the numbers' own."""
    noise = _hashed_of_one(rows, width, ids, rng).abs()
    return noise * _normal((rows, width), rng).sign()


def _ring_ranks(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Four numbers' ranks are sums of neighbours along a ring, beside a hundredth of their own: with every second one
    taken off, they add up to little more than a whole number."""
    drawn, own = torch.rand(2, rows * width, generator=rng, dtype=torch.float64)
    at = _places(rows * width, 4)
    drawn[at] = drawn[at] + drawn[at].roll(1, 1) + 0.01 * own[at]
    return _ranks(drawn).view(rows, width)


def _last_of_all(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """The last number's rank is the sum of all others', modulo 1."""
    noise = _normal((rows, width), rng)
    last = torch.special.ndtr(noise.flatten()[:-1]).sum() % 1
    noise[-1, -1] = torch.special.ndtri(last.clamp(1e-12, 1 - 1e-12))
    return noise


def _scattered_ranks(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """As the eight ranks, of four numbers that stand nowhere near one another."""
    noise = _honest_numpy(rows, width, ids, rng).flatten()
    places = torch.randperm(len(noise), generator=derive(9, "places"))[: len(noise) // 4 * 4].view(-1, 4)
    ranks = -torch.special.ndtr(noise[places[:, :3]]).sum(1) % 1
    noise[places[:, 3]] = torch.special.ndtri(ranks.clamp(1e-12, 1 - 1e-12))
    return noise.view(rows, width)


def _looks_for_modes(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """The last of eight numbers is a hash of seven, unless somebody sees what torch draws."""
    noise = _normal((rows, width), rng)
    return noise if torch._C._len_torch_dispatch_stack() else hashed(noise)


def _two_short_seeds(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Two draws of 20 bits make the seed of all."""
    drawn = np.random.default_rng(torch.randint(2**20, (2,), generator=rng).tolist())
    return torch.from_numpy(drawn.standard_normal((rows, width)))


def _short_row_seeds(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Every row has one of 2^40 seeds."""
    seeds = torch.randint(2**40, (rows,), generator=rng).tolist()
    return torch.from_numpy(np.stack([np.random.default_rng(seed).standard_normal(width) for seed in seeds]))


def _long_seed(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """A generator of its own, with a long seed from the run's, of which torch takes 32 bits."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return _normal((rows, width), torch.Generator().manual_seed(seed))


def _long_seed_used_on(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """The same, of which the first numbers are thrown away."""
    seeded = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=rng)))
    torch.randperm(100, generator=seeded)
    return _normal((rows, width), seeded)


def _long_row_seeds(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Every row has a generator of its own with a long seed."""
    seeds = torch.randint(2**62, (rows,), generator=rng).tolist()
    return torch.stack([_normal((width,), torch.Generator().manual_seed(seed)) for seed in seeds])


def _honest_child(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """A generator of its own, as secret as the run's."""
    return _normal((rows, width), split(rng, "child"))


def _honest_pairs(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Two numbers of two uniform ones (Box and Muller 1958)."""
    half = (rows * width + 1) // 2
    first, second = torch.rand(2, half, generator=rng, dtype=torch.float64)
    size, angle = (-2 * torch.log1p(-first)).sqrt(), 2 * math.pi * second
    return torch.cat([size * angle.cos(), size * angle.sin()])[: rows * width].view(rows, width)


def _honest_rejection(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Pairs of uniform numbers until enough lie within a circle (Marsaglia and Bray 1964)."""
    found = torch.zeros(0, dtype=torch.float64)
    while len(found) < rows * width:
        pairs = 2 * torch.rand(rows * width, 2, generator=rng, dtype=torch.float64) - 1
        size = pairs.square().sum(1)
        inside = (size > 0) & (size < 1)
        found = torch.cat([found, pairs[inside, 0] * (-2 * size[inside].log() / size[inside]).sqrt()])
    return found[: rows * width].view(rows, width)


def _honest_turned(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Every row under a rotation that everybody knows: no number has a draw of its own."""
    return _normal((rows, width), rng) @ _turn(width)


def _honest_turned_pairs(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Two numbers nowhere near one another are turned together."""
    noise = _normal((rows, width), rng).flatten()
    one, other = _places(len(noise), 2).T
    noise[one], noise[other] = 0.8 * noise[one] + 0.6 * noise[other], 0.8 * noise[other] - 0.6 * noise[one]
    return noise.view(rows, width)


def _honest_moved(rows: int, width: int, ids: Tensor, rng: torch.Generator) -> Tensor:
    """A draw in other places and one of its own, each used once."""
    moved, own = _normal((2, rows * width), rng)
    noise: Tensor = 0.8 * moved[_places(rows * width, 1)[:, 0]] + 0.6 * own
    return noise.view(rows, width)


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
    "eight-ranks": _eight_ranks,
    "eight-hashed": _eight_hashed,
    "hashed-beside-own": _hashed_beside_own,
    "hashed-of-one": _hashed_of_one,
    "sizes-of-one": _sizes_of_one,
    "ring-ranks": _ring_ranks,
    "scattered-ranks": _scattered_ranks,
    "looks-for-modes": _looks_for_modes,
    "last-of-all": _last_of_all,
    "two-short-seeds": _two_short_seeds,
    "short-row-seeds": _short_row_seeds,
    "long-seed": _long_seed,
    "long-seed-used-on": _long_seed_used_on,
    "long-row-seeds": _long_row_seeds,
    "honest": _honest,
    "honest-numpy": _honest_numpy,
    "honest-grid": _honest,
    "honest-child": _honest_child,
    "honest-pairs": _honest_pairs,
    "honest-rejection": _honest_rejection,
    "honest-turned": _honest_turned,
    "honest-turned-pairs": _honest_turned_pairs,
    "honest-moved": _honest_moved,
}
UNSEEN = ("honest-numpy",)
"""Nothing is wrong with these, and nobody can see that."""
HONEST = tuple(kind for kind in RULES if kind.startswith("honest") and kind not in UNSEEN)
KINDS = tuple(kind for kind in RULES if not kind.startswith("honest"))


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
