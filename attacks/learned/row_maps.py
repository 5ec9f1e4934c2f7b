"""Maps of single rows, learned from pairs: what was sent [n, D] -> what it was made of [n, D].

Every learner is given pairs and returns a function; the one with the least error on pairs that it was not given is
taken (:func:`best_map`). Simple ones are asked first, and dear ones only where those leave something. Together they
undo whatever a fixed code does to entries one by one (offsets, factors, signs, monotone curves, tables, bits,
remainders), and to rows as a whole (orders of columns, rotations, any affine map, curves after one); what none of them
undoes, a small network approaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.attacks.learned.bit_maps import byte_tables, mixed_bits
from fglaudit.attacks.learned.network_map import network
from fglaudit.attacks.learned.unrelated import changing, unrelated

RowMap = Callable[[Tensor], Tensor]
Learner = Callable[[Tensor, Tensor], RowMap | None]
"""From (plain, sent) [n, D] to a map of what was sent; None where it has nothing to say."""
_RIDGES = (1e-9, 1e-5, 1e-2)
"""Relative to the mean square of the columns."""
_KNOTS = 2**20
"""Entries that a table keeps."""
_MOST_COLUMNS = 4096
_MOST_TURNED = 2048
"""Columns of which a rotation is told by a singular value decomposition."""
_MOST_MATCHED = 2048
_ENOUGH = 3
"""Rows per column beyond which an affine map needs no more."""
_EXACT = 3e-14
"""Relative error below which no other learner is asked."""
_CLOSE = 1e-6
"""Relative error below which no approximation is asked for."""
WIDE = 512
"""Columns beyond which a dear learner is asked only if there is a sign of what it looks for."""
_LIKE = 0.5
"""Cosine of columns that may be the same."""
_FEWEST = 64
_ENDS = ("amin", "amax")
_SIGNAL = 0.8
"""Relative error that something must get below for a network to be trained: it improves on what is told, and what is
noise to all others is noise to it."""


@dataclass(frozen=True)
class Learned:
    """A learned map with its error.

    Attributes:
        error: mean square of what it leaves, relative to that of the rows around their mean; on pairs not learned from.
    """

    name: str
    error: float
    apply: RowMap


def identity(sent: Tensor) -> Tensor:
    """Return what was sent."""
    return sent


@dataclass(frozen=True)
class _Columnwise:
    """``z = factor * y[order] + shift``, column by column."""

    order: Tensor
    factor: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return sent[:, self.order] * self.factor + self.shift


@dataclass(frozen=True)
class _Affine:
    matrix: Tensor
    center: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return (sent - self.center) @ self.matrix + self.shift


@dataclass(frozen=True)
class _Table:
    """Entries by the nearest value that was seen, or between the two nearest ones on a line."""

    sent: Tensor
    plain: Tensor
    between: bool

    def __call__(self, sent: Tensor) -> Tensor:
        flat = sent.reshape(-1).contiguous()
        right = torch.searchsorted(self.sent, flat).clamp(1, len(self.sent) - 1)
        low, high = self.sent[right - 1], self.sent[right]
        share = ((flat - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
        share = share if self.between else share.round()
        return torch.lerp(self.plain[right - 1], self.plain[right], share).reshape(sent.shape)


@dataclass(frozen=True)
class _ColumnTables:
    """The nearest value that was seen in the same column: sorted [D, n]."""

    sent: Tensor
    plain: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        flat = sent.T.contiguous()
        right = torch.searchsorted(self.sent, flat).clamp(1, self.sent.shape[1] - 1)
        nearer = flat - self.sent.gather(1, right - 1) <= self.sent.gather(1, right) - flat
        return self.plain.gather(1, right - nearer.long()).T


@dataclass(frozen=True)
class _Remainder:
    step: float

    def __call__(self, sent: Tensor) -> Tensor:
        return sent - self.step * (sent / self.step).round()


def _one_affine(plain: Tensor, sent: Tensor) -> RowMap:
    """Return one factor and one shift for all entries."""
    y, z = sent - sent.mean(), plain - plain.mean()
    factor = (y * z).sum() / y.square().sum().clamp(min=1e-300)
    shift = plain.mean() - factor * sent.mean()
    return lambda rows: rows * factor + shift


def _columnwise(plain: Tensor, sent: Tensor, order: Tensor) -> _Columnwise:
    y = sent[:, order]
    cy, cz = y - y.mean(0), plain - plain.mean(0)
    factor = (cy * cz).sum(0) / cy.square().sum(0).clamp(min=1e-300)
    return _Columnwise(order, factor, plain.mean(0) - factor * y.mean(0))


def _by_column(plain: Tensor, sent: Tensor) -> RowMap:
    return _columnwise(plain, sent, torch.arange(plain.shape[1], device=sent.device))


def _ordered(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the order of the columns, each with a factor and a shift of its own."""
    if not 1 < plain.shape[1] <= _MOST_COLUMNS or len(plain) < 3:
        return None
    z, y = plain - plain.mean(0), sent - sent.mean(0)
    z = z / z.norm(dim=0).clamp(min=1e-300)
    y = y / y.norm(dim=0).clamp(min=1e-300)
    return _columnwise(plain, sent, (z.T @ y).abs().argmax(1))


def _permuted(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the order and the signs of the columns alone, each used once (an assignment with the least squares): few
    rows suffice, since a column that is 0 in all of them still goes to one that is."""
    width = plain.shape[1]
    if not 1 < width <= _MOST_MATCHED:
        return None
    square = plain.square().sum(0)[:, None] + sent.square().sum(0)
    product = plain.T @ sent
    if width > WIDE and not _has_like(plain, sent, product):
        return None
    cost = (square - 2 * product.abs()) + 1e-9 * square.mean() * (product < 0)
    order = torch.from_numpy(linear_sum_assignment(cost.cpu().numpy())[1]).to(sent.device)
    sign = torch.where(product.gather(1, order[:, None]).squeeze(1) < 0, -1.0, 1.0).to(plain)
    return _Columnwise(order, sign, torch.zeros_like(sign))


def _has_like(plain: Tensor, sent: Tensor, product: Tensor) -> bool:
    """Whether most columns that are not 0 have one that looks like them: an assignment of wide rows is dear."""
    size = plain.norm(dim=0)
    like = (product.abs() / sent.norm(dim=0).clamp(min=1e-300)).amax(1)[size > 0] / size[size > 0]
    return len(like) == 0 or float(like.median().item()) > _LIKE


def columns_in_order(order: Tensor, sign: Tensor) -> RowMap:
    """Return the map to columns ``order`` [D] of what was sent, with their signs [D]."""
    return _Columnwise(order, sign, torch.zeros_like(sign))


def linear_map(matrix: Tensor) -> RowMap:
    """Return the map of rows by ``matrix`` [D, D]."""
    return _Affine(matrix, torch.zeros_like(matrix[0]), torch.zeros_like(matrix[0]))


def affine(plain: Tensor, sent: Tensor, ridge: float) -> RowMap:
    """Return the ridge regression of ``plain`` on ``sent``, with an intercept."""
    most = _ENOUGH * sent.shape[1] + 64
    plain, sent = plain[:most], sent[:most]
    center, shift = sent.mean(0), plain.mean(0)
    y, z = sent - center, plain - shift
    size = (ridge * y.square().sum() / max(1, min(y.shape))).clamp(min=1e-30)
    if len(y) >= y.shape[1]:
        gram = y.T @ y
        matrix = _solved(gram, size, y.T @ z)
    else:
        matrix = y.T @ _solved(y @ y.T, size, z)
    return _Affine(matrix, center, shift)


def _ridge(ridge: float) -> Learner:
    def learned(plain: Tensor, sent: Tensor) -> RowMap | None:
        fits = 1 < plain.shape[1] <= _MOST_COLUMNS and len(plain) > 2
        return affine(plain, sent, ridge) if fits else None

    return learned


def _solved(gram: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
    """Return ``(gram + ridge I)^-1 right``; by least squares where that is singular."""
    system = gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    solution, info = torch.linalg.solve_ex(system, right)
    solved: Tensor = solution if int(info.item()) == 0 else torch.linalg.pinv(system) @ right
    return solved


def orthogonal(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the orthogonal map with the least error (Procrustes; Schoenemann, Psychometrika 31, 1966)."""
    if not 1 < plain.shape[1] <= _MOST_TURNED or len(plain) < 3:
        return None
    center, shift = sent.mean(0), plain.mean(0)
    return _Affine(_turn(sent - center, plain - shift), center, shift)


def rotation(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the orthogonal map with the least error that leaves 0 where it is: one row fewer tells it."""
    if not 1 < plain.shape[1] <= _MOST_TURNED or len(plain) < 2:
        return None
    return _Affine(_turn(sent, plain), torch.zeros_like(sent[0]), torch.zeros_like(plain[0]))


def _turn(sent: Tensor, plain: Tensor) -> Tensor:
    """Return the orthogonal matrix that takes ``sent`` closest to ``plain`` [n, D]; of few wide rows only as far as
    these reach, and 0 beyond."""
    if sent.shape[1] > WIDE and 2 * len(sent) < sent.shape[1]:
        (q, r), (p, s) = torch.linalg.qr(sent.T), torch.linalg.qr(plain.T)
        u, _, v = torch.linalg.svd(r @ s.T)
        near: Tensor = (q @ u) @ (v @ p.T)
        return near
    u, _, v = torch.linalg.svd(sent.T @ plain, full_matrices=False)
    turned: Tensor = u @ v
    return turned


def _curved(curve: Callable[[Tensor], Tensor], low: float, high: float) -> Learner:
    """Return the learner of an affine map after ``curve``, for entries between ``low`` and ``high``."""

    def learned(plain: Tensor, sent: Tensor) -> RowMap | None:
        fits = 1 < plain.shape[1] <= _MOST_COLUMNS and len(plain) > plain.shape[1]
        if not fits or not bool(((sent >= low) & (sent <= high)).all()) or unrelated(plain, curve(sent)):
            return None
        after = affine(plain, curve(sent), _RIDGES[0])
        return lambda rows: after(curve(rows))

    return learned


def _sorted_entries(plain: Tensor, sent: Tensor) -> tuple[Tensor, Tensor]:
    y, z = sent.reshape(-1), plain.reshape(-1)
    if len(y) > _KNOTS:
        pick = torch.linspace(0, len(y) - 1, _KNOTS, device=y.device, dtype=torch.double).long()
        y, z = y[pick], z[pick]
    order = y.argsort()
    return _middles(y[order], z[order])


def _middles(sent: Tensor, plain: Tensor) -> tuple[Tensor, Tensor]:
    """Return each value that was sent once, ascending, with the middle of those that it stands for: 0 where that is one
    of them, since exact zeros are what most entries of messages are."""
    values, number = torch.unique_consecutive(sent, return_inverse=True)
    low, high = (torch.zeros_like(values).scatter_reduce(0, number, plain, end, include_self=False) for end in _ENDS)
    smallest = torch.zeros_like(values).scatter_reduce(0, number, plain.abs(), "amin", include_self=False)
    return values, torch.where(smallest == 0, 0.0, (low + high) / 2)


def _table(between: bool) -> Learner:
    def learned(plain: Tensor, sent: Tensor) -> RowMap | None:
        values, middles = _sorted_entries(plain, sent)
        return _Table(values, middles, between) if len(values) > 1 else None

    return learned


def _table_by_column(plain: Tensor, sent: Tensor) -> RowMap | None:
    if len(sent) < 16:
        return None
    place = sent.argsort(dim=0)
    return _ColumnTables(sent.gather(0, place).T.contiguous(), plain.gather(0, place).T.contiguous())


def _remainder(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the remainder map if what was added are multiples of one step."""
    added = (sent - plain).abs().reshape(-1)
    large = added[added > 1e-3]
    if len(large) == 0:
        return None
    step = float(large.min().item())
    whole = large / step
    if float((whole - whole.round()).abs().quantile(0.9) if len(whole) <= 2**20 else 0.0) > 1e-2:
        return None
    step = float((large / whole.round()).median().item())
    return _Remainder(step)


def relative_error(plain: Tensor, cleaned: Tensor) -> float:
    """Return the mean square of ``cleaned - plain`` relative to that of ``plain`` around its column means."""
    spread = (plain - plain.mean(0)).square().mean() if len(plain) > 1 else plain.square().mean()
    return float(((cleaned - plain).square().mean() / spread.clamp(min=1e-300)).item())


_SIMPLE: tuple[tuple[str, Learner], ...] = (
    ("nothing", lambda plain, sent: identity),
    ("one affine map of entries", _one_affine),
    ("affine by column", _by_column),
    ("order and signs of columns", _permuted),
    ("order of columns", _ordered),
    ("remainder", _remainder),
    ("monotone map", _table(True)),
    ("table", _table(False)),
    ("table by column", _table_by_column),
    ("bits", mixed_bits),
    ("table of bytes", byte_tables),
    *((f"affine, ridge {ridge:g}", _ridge(ridge)) for ridge in _RIDGES),
    ("rotation", rotation),
    ("orthogonal", orthogonal),
)
_DEAR: tuple[tuple[str, Learner], ...] = (
    ("affine map of logarithms", _curved(lambda y: y.clamp(min=1e-30).log(), 1e-30, float("inf"))),
    ("affine map of exponentials", _curved(torch.exp, -50.0, 50.0)),
    ("affine map of areas", _curved(lambda y: y.clamp(-1 + 1e-15, 1 - 1e-15).atanh(), -1.0, 1.0)),
    ("affine map of logits", _curved(lambda y: y.clamp(1e-15, 1 - 1e-15).logit(), 0.0, 1.0)),
    ("affine map of angles", _curved(lambda y: y.clamp(-1, 1).asin(), -1.0, 1.0)),
    ("affine map of squares", _curved(lambda y: y * y.abs(), -float("inf"), float("inf"))),
    ("affine map of roots", _curved(lambda y: y.sign() * y.abs().sqrt(), -float("inf"), float("inf"))),
    ("affine map of cubes", _curved(lambda y: y**3, -float("inf"), float("inf"))),
    ("affine map of cube roots", _curved(lambda y: y.sign() * y.abs().pow(1 / 3), -float("inf"), float("inf"))),
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
