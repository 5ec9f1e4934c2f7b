"""The best map of single rows from pairs: what was sent [n, D] -> what it was made of [n, D].

Every learner is given pairs and returns a function; the one with the least error on pairs that it was not given is
taken (:func:`best_map`). Simple ones are asked first, and dear ones only where those leave something. Together they
undo whatever a fixed code does to entries one by one (offsets, factors, signs, monotone curves, tables, bits,
remainders), and to rows as a whole (orders of columns, rotations, any affine map, curves after one); what none of them
undoes, a small network approaches.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fglaudit.attacks.learned.maps.affine_maps import RIDGES, curved, orthogonal, regression, rotation
from fglaudit.attacks.learned.maps.bit_maps import byte_tables, mixed_bits
from fglaudit.attacks.learned.maps.column_maps import by_column, one_affine, ordered, permuted
from fglaudit.attacks.learned.maps.entry_tables import remainder, table, table_by_column
from fglaudit.attacks.learned.maps.network_map import network
from fglaudit.attacks.learned.maps.row_map import Learned, Learner, RowMap, identity, relative_error
from fglaudit.attacks.learned.maps.unrelated import changing, unrelated

_EXACT = 3e-14
"""Relative error below which no other learner is asked."""
_CLOSE = 1e-6
"""Relative error below which no approximation is asked for."""
_FEWEST = 64
"""Pairs without which no dear learner is asked."""
_SIGNAL = 0.8
"""Relative error that something must get below for a network to be trained: it improves on what is told, and what is
noise to all others is noise to it."""

_SIMPLE: tuple[tuple[str, Learner], ...] = (
    ("nothing", lambda plain, sent: identity),
    ("one affine map of entries", one_affine),
    ("affine by column", by_column),
    ("order and signs of columns", permuted),
    ("order of columns", ordered),
    ("remainder", remainder),
    ("monotone map", table(True)),
    ("table", table(False)),
    ("table by column", table_by_column),
    ("bits", mixed_bits),
    ("table of bytes", byte_tables),
    *((f"affine, ridge {ridge:g}", regression(ridge)) for ridge in RIDGES),
    ("rotation", rotation),
    ("orthogonal", orthogonal),
)
_DEAR: tuple[tuple[str, Learner], ...] = (
    ("affine map of logarithms", curved(lambda y: y.clamp(min=1e-30).log(), 1e-30, float("inf"))),
    ("affine map of exponentials", curved(torch.exp, -50.0, 50.0)),
    ("affine map of areas", curved(lambda y: y.clamp(-1 + 1e-15, 1 - 1e-15).atanh(), -1.0, 1.0)),
    ("affine map of logits", curved(lambda y: y.clamp(1e-15, 1 - 1e-15).logit(), 0.0, 1.0)),
    ("affine map of angles", curved(lambda y: y.clamp(-1, 1).asin(), -1.0, 1.0)),
    ("affine map of squares", curved(lambda y: y * y.abs(), -float("inf"), float("inf"))),
    ("affine map of roots", curved(lambda y: y.sign() * y.abs().sqrt(), -float("inf"), float("inf"))),
    ("affine map of cubes", curved(lambda y: y**3, -float("inf"), float("inf"))),
    ("affine map of cube roots", curved(lambda y: y.sign() * y.abs().pow(1 / 3), -float("inf"), float("inf"))),
    ("network", network),
)
LEARNERS = dict((*_SIMPLE, *_DEAR))
"""By name, the simplest first."""
_LINEAR = (
    *("order and signs of columns", "order of columns", "rotation", "orthogonal"),
    *(name for name in LEARNERS if name.startswith("affine, ridge")),
)
"""What finds nothing where there is no linear dependence."""
_OF_ANY_WIDTH = tuple(name for name in LEARNERS if name.startswith(("affine, ridge", "affine map of")))
"""What serves messages that are wider or narrower than what they were made of."""


def _finite(rows: Tensor) -> Tensor:
    return rows.nan_to_num(0.0, 0.0, 0.0)


def relearned(learned: Learned, plain: Tensor, sent: Tensor) -> Learned:
    """Return the map of the same learner from other pairs; as it was where that learner has nothing to say of them."""
    again = LEARNERS[learned.name](plain, _finite(sent) if learned.name not in _OF_BITS else sent)
    return learned if again is None else Learned(learned.name, learned.error, _guarded(learned.name, again))


TABLES = ("monotone map", "table", "table by column")
"""What knows only values that were seen: more pairs tell more of it."""
_OF_BITS = ("bits", "table of bytes")
"""What is no number may still be known bits."""


def _guarded(name: str, map_: RowMap) -> RowMap:
    if name in _OF_BITS:
        return lambda rows: _finite(map_(rows))
    return lambda rows: map_(_finite(rows))


def no_line(plain: Tensor, sent: Tensor, held_plain: Tensor, held_sent: Tensor) -> bool:
    """Return whether linear maps have nothing to learn from pairs that holds for the held-out ones."""
    return unrelated(plain, sent) or changing(plain, sent, held_plain, held_sent)


def best_map(plain: Tensor, sent: Tensor, held_plain: Tensor, held_sent: Tensor, *, simple: bool = False) -> Learned:
    """Return the map from ``sent`` to ``plain`` [n, D] with the least error on the held-out pairs [m, D]; of the
    affine ones where the two have not the same width.

    Args:
        simple: ask no dear learner.
    """
    best = Learned("nothing", float("inf"), identity)
    related = not unrelated(plain, _finite(sent))
    changes = related and changing(plain, _finite(sent), held_plain, _finite(held_sent))
    linear = related and not changes
    groups: Iterable[tuple[float, tuple[tuple[str, Learner], ...]]] = ((_EXACT, _SIMPLE), (_CLOSE, _DEAR))
    for enough, group in groups:
        if group is _DEAR and (simple or changes or len(plain) < _FEWEST):
            break
        for name, learner in group:
            if best.error <= enough:
                return best
            if (learner is network and best.error > _SIGNAL) or (name in _LINEAR and not linear):
                continue
            if sent.shape[1] != plain.shape[1] and name not in _OF_ANY_WIDTH:
                continue
            map_ = learner(plain, sent if name in _OF_BITS else _finite(sent))
            if map_ is None:
                continue
            guarded = _guarded(name, map_)
            error = relative_error(held_plain, guarded(held_sent))
            if error < best.error:
                best = Learned(name, error, guarded)
    return best
