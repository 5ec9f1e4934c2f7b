"""Scores of reconstructed rows against the truth, one value per target so that intervals can be formed by cluster.

A missing row is a miss: it counts as a row of zeros and is never exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor

from fglaudit.graph import FeatureKind

RELATIVE_TOLERANCE = 1e-3
"""Largest error of an exact real-valued row, relative to the row's largest entry."""
_ENTRIES_AT_FIRST = 4
_PAIRS_AT_ONCE = 2**24
_ZERO = 2**15
"""Rank of 0 among the numbers of half precision."""


@dataclass(frozen=True)
class RowScores:
    """Scores of T targets, each [T]."""

    exact_rate: Tensor
    cosine: Tensor
    f1: Tensor
    relative_error: Tensor

    @staticmethod
    def pool(parts: Sequence[RowScores]) -> RowScores:
        """Concatenate the targets of several views."""
        return RowScores(*(torch.cat([getattr(p, name) for p in parts]) for name in RowScores.__dataclass_fields__))


def support(rows: Tensor, kind: FeatureKind) -> Tensor:
    """Return which entries of ``rows`` [T, F] count as non-zero: binary rows are rounded at one half, scaled-binary
    rows at half their largest entry, real-valued rows at the relative tolerance."""
    if kind is FeatureKind.BINARY:
        return rows >= 0.5
    top = rows.abs().amax(1, keepdim=True)
    level = 0.5 if kind is FeatureKind.SCALED_BINARY else RELATIVE_TOLERANCE
    return (rows.abs() > level * top) & (top > 0)


def exact(rows: Tensor, truth: Tensor, kind: FeatureKind) -> Tensor:
    """Return [T]: binary rows equal after rounding; others within their tolerance everywhere."""
    if kind is FeatureKind.BINARY:
        return ((rows >= 0.5) == (truth >= 0.5)).all(1)
    return (rows - truth).abs().amax(1) <= tolerances(truth)


def tolerances(truth: Tensor) -> Tensor:
    """Return how far an exact row's entries may be off [T]: relative to the row's largest entry; of a row of zeros,
    which nothing that is computed hits to the last bit, relative to what other rows' largest entries usually are."""
    top = truth.abs().amax(1)
    usual = top[top > 0].median() if bool((top > 0).any()) else top.new_tensor(1.0)
    return RELATIVE_TOLERANCE * torch.where(top > 0, top, usual)


def directions(rows: Tensor) -> Tensor:
    """Return ``rows`` [R, F] at length 1, however short or long they are; rows of zeros stay as they are."""
    top = rows.abs().amax(1, keepdim=True)  # squares of small or large numbers are no numbers of float32
    scaled = rows / torch.where(top > 0, top, 1.0)
    unit: Tensor = scaled / scaled.norm(dim=1, keepdim=True).clamp(min=1)
    return unit


def score_rows(rows: Tensor, present: Tensor, truth: Tensor, kind: FeatureKind) -> RowScores:
    """Score ``rows`` [T, F] against ``truth`` [T, F]; ``present`` [T] is False where the attack has no row.

    F1 is per target over non-zero entries (1 where both rows are empty), so its mean weighs every node alike.
    """
    guess, real = support(rows, kind), support(truth, kind)
    common, claimed, true = (_counted(part) for part in (guess & real, guess, real))
    hits, size = common.float(), (claimed + true).float()
    same = (common == claimed) & (common == true)  # what exact() says of binary rows
    whole = same if kind is FeatureKind.BINARY else exact(rows, truth, kind)
    norm = truth.norm(dim=1)
    error = (rows - truth).norm(dim=1)
    return RowScores(
        exact_rate=(whole & present).float(),
        cosine=(directions(rows) * directions(truth)).sum(1).clamp(-1, 1),
        f1=torch.where(size > 0, 2 * hits / size.clamp(min=1), present.float()),
        relative_error=torch.where(norm > 0, error / norm.clamp(min=1e-30), error),
    )


def _counted(mask: Tensor) -> Tensor:
    """Return how many entries of each row of ``mask`` [T, F] are true [T]; torch's own sum of booleans takes ten times
    as long."""
    return torch.from_numpy(np.count_nonzero(mask.cpu().numpy(), axis=1))


def auc_of_entries(rows: Sequence[Tensor], truths: Sequence[Tensor], kind: FeatureKind) -> float | None:
    """Return the area under the ROC curve of ``rows`` as scores for "this entry is non-zero", over all entries of all
    views.

    Scores are rounded to half precision, whose 65536 values make the ranks a histogram: exact for the rounded scores.
    """
    positive = torch.zeros(65536, dtype=torch.float64)
    negative = torch.zeros(65536, dtype=torch.float64)
    for scores, truth in zip(rows, truths, strict=True):
        bits = scores.half().contiguous().view(torch.int16)
        # Negative numbers of IEEE 754 count downwards: flip them so that the integer order is the numeric order.
        rank = (bits ^ ((bits >> 15) | -32768)).int().bitwise_and_(65535).flatten()
        ones = torch.bincount(rank[support(truth, kind).flatten().nonzero().squeeze(1)], minlength=65536)
        positive += ones
        negative += torch.bincount(rank, minlength=65536) - ones
    for counts in (positive, negative):  # -0 stands before 0, and is the same: which of them rounding leaves is chance
        counts[_ZERO] += counts[_ZERO - 1]
        counts[_ZERO - 1] = 0
    pairs = positive.sum() * negative.sum()
    if pairs == 0:
        return None
    below = negative.cumsum(0) - negative
    return float(((positive * (below + negative / 2)).sum() / pairs).item())


def matched_exact(rows: Tensor, truth: Tensor, kind: FeatureKind) -> int:
    """Return how many targets are exact under the best assignment of ``rows`` [R, F] to ``truth`` [T, F] (an upper
    figure).

    For discrete features equality is an equivalence, so the best assignment takes, for each distinct row, the smaller
    of its two counts; real-valued rows are matched by a largest matching on "within tolerance".
    """
    if len(rows) == 0 or len(truth) == 0:
        return 0
    if kind is FeatureKind.REAL:
        row, column = _close_pairs(rows, truth)
        pairs = csr_array((np.ones(len(row), dtype=np.int8), (row, column)), shape=(len(rows), len(truth)))
        return int((maximum_bipartite_matching(pairs) >= 0).sum())
    guess, real = Counter(_row_keys(rows, kind)), Counter(_row_keys(truth, kind))
    return sum(min(count, real[key]) for key, count in guess.items())


def _close_pairs(rows: Tensor, truth: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of all pairs of ``rows`` [R, F] and ``truth`` [T, F] within tolerance: among those that agree
    in the largest entries of the truth, as comparing all in all takes hours on twenty thousand rows."""
    largest = truth.abs().topk(min(_ENTRIES_AT_FIRST, truth.shape[1]), 1).indices
    by_column = rows.T.contiguous()
    allowed, found = tolerances(truth), [np.empty((2, 0), dtype=np.int64)]
    step = max(1, _PAIRS_AT_ONCE // max(1, len(rows)))
    for low in range(0, len(truth), step):
        part = slice(low, low + step)
        near = torch.ones(len(largest[part]), len(rows), dtype=torch.bool)
        for column in largest[part].T:
            entry = truth[part].gather(1, column[:, None])
            near &= (by_column[column] - entry).abs_() <= allowed[part, None]
        for at in torch.split(near.nonzero(), max(1, _PAIRS_AT_ONCE // max(1, rows.shape[1]))):
            target, row = at[:, 0] + low, at[:, 1]
            close = (rows[row] - truth[target]).abs().amax(1) <= allowed[target]
            found.append(torch.stack([row[close], target[close]]).numpy())
    pairs = np.concatenate(found, axis=1)
    return pairs[0], pairs[1]


def _row_keys(rows: Tensor, kind: FeatureKind) -> list[bytes]:
    """Return one hashable key per discrete row: its support (the scale of a scaled-binary row follows from the support
    where rows are normalised, and exactness by assignment checks it where they are not)."""
    packed = support(rows, kind).to(torch.uint8).numpy()
    return [row.tobytes() for row in packed]
