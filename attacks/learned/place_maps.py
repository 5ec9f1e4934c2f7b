"""Maps that depend on where a row stands: by node, by client, and between rows of one batch.

They are learned from made-up values in the places of the very messages that are attacked, so that whatever the public
code does to place i it did to the message there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.learned.field_maps import WORTH
from fglaudit.attacks.learned.maps.affine_maps import affine
from fglaudit.attacks.learned.maps.row_map import Learned, RowMap, relative_error
from fglaudit.attacks.learned.maps.row_maps import best_map, no_line

MOST_MIXED = 3000
"""Rows of a batch that may be mixed with one another."""
_MOST_GROUPS = 64
_FEWEST = 8
_SMALL = 1e-4
_COLUMNS = 64
"""Of which maps of single entries are tried first, where nothing is linear."""
_HALF = 0.5
"""Relative error that they must stay below."""

Pairs = Sequence[tuple[Tensor, Tensor]]
"""(plain, sent) [n, D] in the same places, of several probes."""


@dataclass(frozen=True)
class _ByEntry:
    """``z = (y - shift) / factor`` in every place and column."""

    factor: Tensor
    shift: Tensor
    senseless: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return torch.where(self.senseless, 0.0, (sent - self.shift) / torch.where(self.senseless, 1.0, self.factor))


@dataclass(frozen=True)
class _ByGroup:
    """A map for each group of rows."""

    groups: Tensor
    maps: dict[int, RowMap]

    def __call__(self, sent: Tensor) -> Tensor:
        cleaned = sent.clone()
        for group, map_ in self.maps.items():
            cleaned[self.groups == group] = map_(sent[self.groups == group])
        return cleaned


@dataclass(frozen=True)
class _Unmixed:
    """Undo ``y = M z + shift``, by least squares."""

    inverse: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return self.inverse @ (sent - self.shift)


def _by_entry(pairs: Pairs) -> RowMap:
    plain, sent = (torch.stack([pair[i] for pair in pairs]) for i in (0, 1))
    z, y = plain - plain.mean(0), sent - sent.mean(0)
    square = z.square().sum(0)
    factor = torch.where(square > 0, (y * z).sum(0) / square.clamp(min=1e-300), 1.0)
    return _ByEntry(factor, sent.mean(0) - factor * plain.mean(0), factor.abs() < _SMALL)


def _by_group(pairs: Pairs, held: tuple[Tensor, Tensor], groups: Tensor) -> RowMap | None:
    distinct = torch.unique(groups)
    if not 1 < len(distinct) <= _MOST_GROUPS:
        return None
    plain, sent = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
    every = groups.repeat(len(pairs))
    maps, left = {}, 0.0
    for group in distinct.tolist():
        here, asked = every == group, groups == group
        if int(here.sum()) < _FEWEST:
            return None
        examples = (plain[here], sent[here], held[0][asked], held[1][asked])
        few = [t[:, :_COLUMNS] for t in examples]
        if no_line(*examples) and best_map(*few, simple=True).error > _HALF:
            return None
        learned = best_map(*examples, simple=True)
        left += min(learned.error, 1.0) * len(examples[2]) / len(groups)
        if left > WORTH:
            return None  # noise, mostly: what the other groups are would not make it worth anything
        maps[group] = learned.apply
    return _ByGroup(groups, maps)


def _unmixed(pairs: Pairs) -> RowMap | None:
    """Return the map that undoes a linear mixture of the rows; columns are its examples."""
    plain, sent = (torch.cat([pair[i] for pair in pairs], dim=1) for i in (0, 1))
    rows, examples = plain.shape
    if rows > MOST_MIXED or examples < rows + 2 or rows < 2:
        return None
    fitted = affine(sent.T, plain.T, 1e-10)  # rows are columns here: y' = (z' - center) @ matrix + shift
    zero = fitted(torch.zeros(1, rows, dtype=plain.dtype, device=plain.device))
    mixture = (fitted(torch.eye(rows, dtype=plain.dtype, device=plain.device)) - zero).T
    mixture = torch.where(mixture.abs() < _SMALL * mixture.abs().max(), 0.0, mixture)
    return _Unmixed(torch.linalg.pinv(mixture, rtol=1e-6), zero.T)


def best_place_map(pairs: Pairs, held: tuple[Tensor, Tensor], senders: Tensor, unless: float) -> Learned | None:
    """Return the map by place with the least error on the pair ``held``, if that is below ``unless``."""
    tried: list[tuple[str, RowMap | None]] = [("affine by place", _by_entry(pairs)) if len(pairs) > 1 else ("", None)]
    tried.append(("by sender", _by_group(pairs, held, senders)))
    tried.append(("mixture of rows", _unmixed(pairs)))
    scored = [Learned(name, relative_error(held[0], map_(held[1])), map_) for name, map_ in tried if map_ is not None]
    best = min((s for s in scored if s.error == s.error), key=lambda s: s.error, default=None)
    return best if best is not None and best.error < unless else None
