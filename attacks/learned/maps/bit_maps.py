"""Maps of the bits of numbers as they stand on the wire, learned from pairs: masks of bits, orders of bits or bytes,
any linear mixture of bits, and tables of bytes.

Such a map tears numbers apart that lie close together, so no curve or table of values shows it, but few pairs tell it:
each bit of a number is an affine function of the bits sent (over the field of two elements), or each byte is a function
of one byte sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_MOST = 4096
_SPARE = 32
"""Equations beyond as many as there are unknowns."""
_MOST_TABLED = 2**18
_AGREES = 0.75
"""Share of the numbers of which a table of bytes must hold to be worth a try."""
_BYTES = 256


def bits(values: Tensor, wide: bool) -> Tensor:
    """Return the bits of numbers [n, 32] (of float32) or [n, 64] (of float64), the lowest first."""
    whole = values.double().view(torch.int64) if wide else values.float().view(torch.int32).long()
    count = 64 if wide else 32
    return (whole.reshape(-1, 1) >> torch.arange(count, device=values.device)) & 1


def numbers(found: Tensor, wide: bool) -> Tensor:
    """Return the numbers [n] with these bits [n, 32 or 64]."""
    whole = (found.long() << torch.arange(found.shape[1], device=found.device)).sum(1)
    if wide:
        return whole.view(torch.float64)
    low = torch.where(whole >= 2**31, whole - 2**32, whole)
    return low.to(torch.int32).view(torch.float32).double()


def _is_wide(*values: Tensor) -> bool:
    """Whether float32 does not hold them."""
    return not all(torch.equal(v.float().double().nan_to_num(), v.double().nan_to_num()) for v in values)


@dataclass(frozen=True)
class _MixedBits:
    """``z = y @ matrix + shift``, bit by bit, modulo 2."""

    matrix: Tensor
    shift: Tensor
    wide: bool

    def __call__(self, sent: Tensor) -> Tensor:
        seen = bits(sent.reshape(-1), self.wide).double()
        return numbers((seen @ self.matrix + self.shift).long() & 1, self.wide).reshape(sent.shape)


@dataclass(frozen=True)
class _ByteTables:
    """Byte i is entry ``y[source[i]]`` of table i: [bytes, 256]."""

    tables: Tensor
    source: Tensor
    wide: bool

    def __call__(self, sent: Tensor) -> Tensor:
        seen = _bytes(sent.reshape(-1), self.wide)
        found = self.tables.gather(1, seen[:, self.source].T).T
        shifts = torch.arange(8, device=sent.device)
        return numbers(((found[..., None] >> shifts) & 1).flatten(1), self.wide).reshape(sent.shape)


def _bytes(values: Tensor, wide: bool) -> Tensor:
    """Return the bytes of numbers [n, 4 or 8], the lowest first."""
    found = bits(values, wide)
    weights = 2 ** torch.arange(8, device=values.device)
    whole: Tensor = (found.reshape(len(found), -1, 8) * weights).sum(2)
    return whole


def mixed_bits(plain: Tensor, sent: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the affine map of bits that (plain, sent) [n, D] have in common, by elimination; None where they have
    none."""
    wide = _is_wide(plain, sent)
    sent, plain = (t.reshape(-1)[sent.isfinite().reshape(-1)] for t in (sent, plain))  # others may have changed on
    pick = torch.linspace(0, plain.numel() - 1, min(_MOST, plain.numel()), dtype=torch.double).long().to(plain.device)
    y, z = (bits(t[pick], wide) for t in (sent, plain))
    count = y.shape[1]
    if len(y) < count // 2:
        return None
    system = torch.cat([y, torch.ones_like(y[:, :1]), z], dim=1)
    place, pivots = 0, []
    for column in range(count + 1):
        rest = system[place:, column].nonzero()
        if len(rest) == 0:
            continue
        row = place + int(rest[0].item())
        system[[place, row]] = system[[row, place]]
        others = system[:, column].bool()
        others[place] = False
        system[others] ^= system[place]
        pivots.append(column)
        place += 1
        if place == len(system):
            return None  # as many unknowns as equations say nothing
    if bool(system[place:, count + 1 :].any()) or len(system) < place + _SPARE:
        return None
    matrix = torch.zeros(count + 1, count, dtype=torch.double, device=plain.device)
    matrix[pivots] = system[:place, count + 1 :].double()
    return _MixedBits(matrix[:count], matrix[count], wide)


def byte_tables(plain: Tensor, sent: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the tables of bytes that (plain, sent) [n, D] have in common: for every byte the one of those sent that
    tells it most often."""
    wide = _is_wide(plain, sent)
    pick = torch.linspace(0, plain.numel() - 1, min(_MOST_TABLED, plain.numel()), dtype=torch.double).long()
    y, z = (_bytes(t.reshape(-1)[pick.to(t.device)], wide) for t in (sent, plain))
    if len(y) < _BYTES:
        return None
    tables, sources = [], []
    for byte in range(z.shape[1]):
        best, chosen, source = -1.0, None, 0
        for place in range(y.shape[1]):
            seen = torch.zeros(_BYTES * _BYTES, device=y.device)
            seen.index_add_(0, y[:, place] * _BYTES + z[:, byte], torch.ones(len(y), device=y.device))
            counts, table = seen.reshape(_BYTES, _BYTES).max(1)
            agrees = float(counts.sum().item()) / len(y)
            if agrees > best:
                best, chosen, source = agrees, table, place
        if chosen is None or best < _AGREES:
            return None
        tables.append(chosen)
        sources.append(source)
    return _ByteTables(torch.stack(tables), torch.tensor(sources, device=y.device), wide)
