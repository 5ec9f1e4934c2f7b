"""Secrets of a run, learned from messages of which the observer knows some of the rows that they were made of.

A message that follows from known rows alone is a pair to learn from, but few do. Of the others the protocol tells what
they may be: it is rehearsed with made-up rows in the places of the unknown ones, and every entry gets a mean, a
variance and, where rows are discrete, a list of possible values. Two kinds of secrets are learned from these:

* an order of the columns with signs: the assignment of columns with the largest (Gaussian) likelihood;
* a rotation: orthogonal Procrustes with weights by variance, refined by turns (the possible values nearest to what the
  rotation makes of the messages; the rotation that takes the messages there). Once all entries are possible values to
  the precision of the wire, the rotation is right: no other one is by chance.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.attacks.learned.maps.affine_maps import linear_map
from fglaudit.attacks.learned.maps.column_maps import columns_in_order
from fglaudit.attacks.learned.maps.row_map import WIDE, Learned, RowMap, identity

TURNED = "rotation, of rows known in part"
_MOST_COLUMNS = 2048
_MOST_LEVELS = 32
"""Values beyond which an entry may be anything."""
_MOST_LISTED = 2**26
_TURNS = 600
_STARTS = 6
_MOST_WORK = 1e10
"""Turns times columns cubed."""
_TIGHT = 1e-4
"""Distance from possible values, relative to the entries' deviation, at which they are hit."""
_HIT = 0.99
"""Share of the entries that must be."""
_FLOOR = 1e-3
"""Least deviation of an entry, relative to that of all: that of a message which follows from known rows alone."""
_BETTER = 0.8
_GAP = 1e-5
_IMPOSSIBLE = 1.0
"""Weight of messages with impossible values, in units of the range of likelihoods."""
_MOST_COMPARED = 2**28
_AHEAD = 1.2
"""Of the largest of as many normal deviates as there are columns."""
_STILL = 1e-12
"""Change of a rotation's entries at which it has come to rest."""


@dataclass(frozen=True)
class PartlyKnown:
    """Messages as they were sent, and what is known of them.

    Attributes:
        sent: [n, D].
        mean: of every entry as the protocol makes it [n, D].
        variance: of every entry, never 0 [n, D].
        steps: values that an entry may have above ``low`` [n, L], filled up with the last one; None where they are too
            many.
        low: least value of every entry [n, D].
    """

    sent: Tensor
    mean: Tensor
    variance: Tensor
    steps: Tensor | None
    low: Tensor

    def part(self, rows: Tensor) -> PartlyKnown:
        """Return some of the messages."""
        steps = None if self.steps is None else self.steps[rows]
        return PartlyKnown(self.sent[rows], self.mean[rows], self.variance[rows], steps, self.low[rows])


def partly_known(made: Tensor, sent: Tensor) -> PartlyKnown | None:
    """Return what ``made`` [draws, n, D] tells of the messages ``sent`` [n, D]; None where it tells nothing."""
    spread = float(made.std().item())
    use = (made.abs().amax((0, 2)) > 0) & sent.isfinite().all(1)
    if not spread > 0 or not bool(use.any()) or sent.shape[1] > _MOST_COLUMNS:
        return None
    made, sent = made[:, use], sent[use]
    drawn = made.var(0)
    # Few draws tell little of one entry: what is unknown of a message and how a column varies are told apart.
    by_row, by_column = drawn.mean(1, keepdim=True), drawn.mean(0)
    variance = by_row * by_column / by_column.mean().clamp(min=1e-300)
    variance = variance.clamp(min=(_FLOOR * spread) ** 2)
    mean = made.mean(0)
    low = made.amin(0)
    return PartlyKnown(sent, mean, variance, _steps(made - low), low)


def _steps(above: Tensor) -> Tensor | None:
    """Return the distinct entries of each message [n, L] of ``above`` [draws, n, D], 0 among them."""
    if above.numel() > _MOST_LISTED:
        return None
    flat = above.movedim(0, 2).flatten(1).sort(dim=1).values
    gap = _GAP * flat.amax(1, keepdim=True).clamp(min=1e-30)
    new = torch.cat([torch.ones_like(flat[:, :1], dtype=torch.bool), flat.diff(dim=1) > gap], dim=1)
    count = new.sum(1)
    if int(count.amax().item()) > flat.shape[1] // 2 or int(count.median().item()) > _MOST_LEVELS:
        return None
    place = (new.cumsum(1) - 1).clamp(max=_MOST_LEVELS - 1)
    steps = torch.zeros(len(flat), _MOST_LEVELS, dtype=flat.dtype, device=flat.device)
    return steps.scatter_reduce(1, place, flat, "amax", include_self=False).cummax(dim=1).values


def signed_order(known: PartlyKnown) -> Learned | None:
    """Return the order of the columns and their signs with the largest likelihood, if it explains messages that it was
    not learned from better than none does."""
    n = len(known.sent)
    if n < 4 or known.sent.shape[1] < 2 or not may_be_ordered(known.mean, known.sent):
        return None
    held = torch.arange(n) % 4 == 0
    taught, asked = known.part(~held), known.part(held)
    order, sign = _assigned(taught)
    wrong = misfit(asked, columns_in_order(order, sign))
    if not wrong < _BETTER * misfit(asked, identity):
        return None
    found = columns_in_order(*_assigned(known))
    return Learned("order and signs, of rows known in part", 0.0 if confirmed(known, found) else wrong, found)


def may_be_told(made: Tensor, sent: Tensor) -> bool:
    """Whether anything here may learn from messages ``sent`` [n, D] of which some draws [draws, n, D] were ``made``:
    more draws of wide ones are dear."""
    return bool(sent.shape[1] ** 3 * _STARTS <= _MOST_WORK) or may_be_ordered(made.mean(0), sent)


def may_be_ordered(mean: Tensor, sent: Tensor) -> bool:
    """Whether a quarter of the columns of ``mean`` [n, D] is more like one that was ``sent`` [n, D] than the largest of
    so many would be by chance beside the others, all of which large messages make alike; of few columns that is not
    asked."""
    if sent.shape[1] <= WIDE:
        return True
    sent, mean = (t - t.mean(0) for t in (_finite(sent), mean))
    alike = (mean.T @ sent).abs() / sent.norm(dim=0).clamp(min=1e-300)
    most = alike.amax(1) / alike.square().mean(1).sqrt().clamp(min=1e-300)
    return bool(float(most.quantile(0.75).item()) > _AHEAD * (2 * math.log(sent.shape[1])) ** 0.5)


def _finite(rows: Tensor) -> Tensor:
    return rows.nan_to_num(0.0, 0.0, 0.0)


def misfit(known: PartlyKnown, map_: RowMap) -> float:
    """Return the mean square of what is wrong with entries after ``map_``, in deviations: about 1 where nothing is."""
    return float(((map_(known.sent) - known.mean).square() / known.variance).mean().item())


def _assigned(known: PartlyKnown) -> tuple[Tensor, Tensor]:
    """Return the column that was sent for each column [D], and its sign [D]."""
    weight = 1 / known.variance
    square = weight.T @ known.sent.square()
    product = (weight * known.mean).T @ known.sent
    cost = square - 2 * product.abs()
    if (off := _impossible(known, product < 0)) is not None:
        cost = cost + _IMPOSSIBLE * off * (cost.max() - cost.min())
    order = torch.from_numpy(linear_sum_assignment(cost.cpu().numpy())[1]).to(cost.device)
    sign = torch.where(product.gather(1, order[:, None]).squeeze(1) < 0, -1.0, 1.0).to(known.sent)
    return order, sign


def _impossible(known: PartlyKnown, negative: Tensor) -> Tensor | None:
    """Return the share of messages in which column c' as it was sent is no possible value of column c [D, D], by
    (c, c'), with the sign turned where ``negative`` [D, D]; None where that takes too long."""
    n, width = known.sent.shape
    if known.steps is None or n * width * width > _MOST_COMPARED:
        return None
    limit = tolerance(known)
    share = torch.zeros(width, width, dtype=known.sent.dtype, device=known.sent.device)
    for column in range(width):
        sent = torch.where(negative[column], -known.sent, known.sent)
        above = (sent - known.low[:, column : column + 1]).contiguous()
        share[column] = ((above - _nearest_step(known, above)).abs() > limit).double().mean(0)
    return share


def turned(known: PartlyKnown) -> Learned | None:
    """Return the rotation of rows, if the possible values of entries confirm it."""
    if known.steps is None or known.sent.shape[1] < 2:
        return None
    width = known.sent.shape[1]
    turns = int(min(_TURNS, _MOST_WORK / width**3))
    weight = 1 / known.variance.mean(1, keepdim=True)
    matrix = torch.eye(width, dtype=weight.dtype, device=weight.device)
    for start in range(_STARTS if turns >= _STARTS else 1):
        # Another start leaves out other messages.
        some = weight * (torch.arange(len(weight), device=weight.device) % _STARTS != start - 1)[:, None]
        matrix = _refined(known, _turn(known.sent, known.mean, some), turns // _STARTS)
        if confirmed(known, linear_map(matrix)):
            break
    if not confirmed(known, found := linear_map(matrix)):
        return None
    # Columns in another order may be possible values too: the likeliest order is taken.
    order, sign = _assigned(dataclasses.replace(known, sent=found(known.sent)))
    likely = matrix[:, order] * sign
    if confirmed(known, linear_map(likely)):
        matrix = likely
    cleaned = known.sent @ matrix
    near = possible(known, cleaned)
    sure = (cleaned - near).abs().amax(1) <= tolerance(known)
    if int(sure.sum()) >= width:
        matrix = _turn(known.sent[sure], near[sure], torch.ones_like(near[sure][:, :1]))
    off = known.sent[sure] @ matrix - near[sure]
    error = float(off.square().mean().item()) / _scale(known) ** 2
    return Learned(TURNED, error, linear_map(matrix))


def _refined(known: PartlyKnown, matrix: Tensor, turns: int) -> Tensor:
    """Return the rotation after at most ``turns`` turns."""
    for _ in range(turns):
        cleaned = known.sent @ matrix
        near = possible(known, cleaned)
        off = (cleaned - near).square().mean(1, keepdim=True)
        # Messages far from all possible values teach little.
        following = _turn(known.sent, near, 1 / (off + known.variance.amin()))
        change = float((following - matrix).abs().max().item())
        matrix = following
        if change <= _STILL:
            break
    return matrix


def confirmed(known: PartlyKnown, map_: RowMap) -> bool:
    """Whether ``map_`` takes nearly all entries of messages to possible values."""
    if known.steps is None:
        return False
    cleaned = map_(known.sent)
    off = (cleaned - possible(known, cleaned)).abs()
    return float((off <= tolerance(known)).double().mean().item()) >= _HIT


def tolerance(known: PartlyKnown) -> float:
    """Return how far from a possible value an entry may be that is one."""
    return _TIGHT * _scale(known)


def _scale(known: PartlyKnown) -> float:
    return float(known.mean.std().item())


def _turn(sent: Tensor, plain: Tensor, weight: Tensor) -> Tensor:
    """Return the orthogonal matrix [D, D] that takes ``sent`` closest to ``plain`` [n, D]."""
    u, _, v = torch.linalg.svd((weight * sent).T @ plain)
    matrix: Tensor = u @ v
    return matrix


def possible(known: PartlyKnown, cleaned: Tensor) -> Tensor:
    """Return the possible values nearest to the entries [n, D]."""
    return known.low + _nearest_step(known, (cleaned - known.low).contiguous())


def _nearest_step(known: PartlyKnown, above: Tensor) -> Tensor:
    assert known.steps is not None
    right = torch.searchsorted(known.steps, above).clamp(1, known.steps.shape[1] - 1)
    low, high = known.steps.gather(1, right - 1), known.steps.gather(1, right)
    return torch.where(above - low <= high - above, low, high)
