"""All rows in mixtures of switched rows, with their signs.

Flips between rounds (:mod:`fglaudit.attacks.jacobians.switched_sums`) show every row that ever flips, up to sign. Two
things follow from the sums themselves, for rows v_r in the mixture ``G[h] = sum over r of 1[w_h . x_r > 0] v_r`` of
hidden unit h:

* The residual of G in the last round, without the found rows, differs between two units h and h' by the rows that never
  flip: the same problem again, with pairs of units in place of pairs of rounds.
* A row taken with the wrong sign leaves a constant: with p_r = 1 for those, ``G[h] - sum of 1[w_h . v_r > 0] v_r = -
  sum of p_r v_r`` for every h. F equations determine up to about 2 F bits: box-constrained least squares settles most
  mixtures at once, an integer program the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from fglaudit.attacks.jacobians.encoder import rounding
from fglaudit.attacks.jacobians.lone_rows import Population, companions, lone
from fglaudit.attacks.jacobians.switched_sums import Mixtures, SeparatedRows, box_least_squares, places, separate

_NODES_SEARCHED = 200
"""Limit on one integer program: branches, not seconds, so that two machines find the same."""
_SURE_CELLS = 2
_SURE_SHARE = 0.5
_PRECISE = 0.02
_SOLVED = 0.95
"""Share of explained cells from which a single explained cell of a row suffices for a claim."""


@dataclass(frozen=True)
class MixtureRows:
    """Rows found in B mixtures, sorted by mixture.

    Attributes:
        mixture: [R].
        rows: v_r [R, F].
        claimed: whether the row is asserted to be one row (up to sign) and not a sum [R].
        signed: whether its sign follows from the sums [R].
    """

    mixture: Tensor
    rows: Tensor
    claimed: Tensor
    signed: Tensor


def norm_error(sums: Tensor, noise: Tensor) -> Tensor:
    """Return a bound on the norm of the error of ``sums`` [..., F].

    Args:
        noise: standard deviation of the noise on their entries [...].
    """
    root: float = sums.shape[-1] ** 0.5
    return 2 * root * rounding(sums) + (root + 4) * noise


def recover_rows(sums: Tensor, noise: Tensor, weights: Tensor, population: Population) -> MixtureRows:
    """Return the rows behind mixtures.

    Args:
        sums: G [B, T, H, F] of T rounds.
        noise: standard deviation of the noise on every entry of a sum [B, T, H].
        weights: first-layer weights [T, F, H] of these rounds.
        population: what is known of the rows.
    """
    count, rounds, hidden, features = sums.shape
    error = norm_error(sums, noise)
    first = torch.arange((rounds - 1) * hidden, device=sums.device)
    directions = weights.transpose(0, 1).reshape(features, -1)
    over_rounds = Mixtures(sums.flatten(1, 2), error.flatten(1, 2), directions, first, first + hidden)
    found = separate(over_rounds)
    rest = _unexplained(sums[:, -1], found, weights[-1])
    pairs = torch.triu_indices(hidden, hidden, 1, device=sums.device)
    slack = error[:, -1] + _total_error(found, count)[:, None]
    still = separate(Mixtures(rest, slack, weights[-1], pairs[0], pairs[1]))
    size = torch.bincount(torch.cat([found.mixture, still.mixture]), minlength=count)
    # Of rows that never flip one round is seen, in which any others may be on in the same units.
    changed = over_rounds.changed()
    hidden_in = [
        companions(found.rows, found.mixture, over_rounds, over_rounds.differences()[1], changed, population),
        population.total_of(size)[still.mixture].double(),
    ]
    order = torch.argsort(torch.cat([found.mixture, still.mixture]), stable=True)
    together, expected = _concatenate(found, still, order), torch.cat(hidden_in)[order]
    rest = _unexplained(sums[:, -1], together, weights[-1])
    wrong, certain = _wrong_signs(together, rest, slack.amax(1))
    if population.discrete:
        wrong, certain = together.rows.sum(1) < 0, torch.ones_like(wrong)
    rows = torch.where(wrong[:, None], -together.rows, together.rows)
    complete = population.complete(size)[together.mixture]
    claimed = _fitting(together) & lone(rows, together.error, expected, complete, population)
    return MixtureRows(together.mixture, rows, claimed, certain)


def _concatenate(found: SeparatedRows, still: SeparatedRows, order: Tensor) -> SeparatedRows:
    fields = SeparatedRows.__dataclass_fields__
    return SeparatedRows(*(torch.cat([getattr(found, name), getattr(still, name)])[order] for name in fields))


def _fitting(found: SeparatedRows) -> Tensor:
    """Return which rows fit well enough for a claim, be they one row or a sum [R].

    It needs half of the row's flips explained exactly, two of them unless nearly the whole mixture is explained,
    and a row far above the noise: otherwise rows fit by chance, and the direction is not right.
    """
    precise = found.error <= _PRECISE * found.rows.norm(dim=1)
    enough = (found.explained >= _SURE_CELLS) | ((found.explained >= 1) & (found.share >= _SOLVED))
    claimed: Tensor = precise & enough & (found.explained >= _SURE_SHARE * found.flips)
    return claimed


def _total_error(found: SeparatedRows, count: int) -> Tensor:
    squares = torch.zeros(count, device=found.error.device).index_add_(0, found.mixture, found.error.square())
    return squares.sqrt()


def _unexplained(sums: Tensor, found: SeparatedRows, weights: Tensor) -> Tensor:
    """Return ``sums`` [B, H, F] of one round with ``weights`` [F, H] without the rows ``found``, as they are signed."""
    rows, place, width = found.rows, places(found.mixture), 1
    if len(rows):
        width = int(place.max().item()) + 1
    padded = sums.new_zeros(len(sums), width, sums.shape[2])
    padded[found.mixture, place] = rows
    rest: Tensor = sums - (padded @ weights > 0).to(sums).mT @ padded
    return rest


def _wrong_signs(found: SeparatedRows, rest: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows are to be negated [R] and for which this is certain [R].

    Args:
        found: rows of B mixtures.
        rest: residual of the mixtures [B, H, F].
        slack: bound on its error [B].
    """
    count, _, features = rest.shape
    mixture, place = found.mixture, places(found.mixture)
    if len(mixture) == 0:
        return mixture.bool(), mixture.bool()
    rows = rest.new_zeros(count, int(place.max().item()) + 1, features, dtype=torch.double)
    rows[mixture, place] = found.rows.double()
    target = -rest.double().mean(1)
    constant = (rest - rest.mean(1, keepdim=True)).norm(dim=2).amax(1) <= 2 * slack
    # With errors as large as rows any choice of signs would fit.
    constant &= slack <= _PRECISE * rows.norm(dim=2).amax(1)
    share = box_least_squares(rows @ rows.mT, (rows @ target[..., None]).squeeze(2))
    negative = share > 0.5

    def fits(chosen: Tensor) -> Tensor:
        left: Tensor = (chosen.to(rows)[:, None] @ rows).squeeze(1) - target
        close: Tensor = left.norm(dim=1) <= 2 * slack
        return close

    solved = constant & fits(negative)
    for b in (constant & ~solved).nonzero().squeeze(1).tolist():
        negative[b] = _integer_signs(rows[b], target[b], float(slack[b].item()), negative[b])
    solved |= constant & fits(negative)
    return negative[mixture, place], solved[mixture]


def _integer_signs(rows: Tensor, target: Tensor, slack: float, guess: Tensor) -> Tensor:
    """Return p [n] in {0, 1} with ``p' rows = target`` within ``slack``.

    ``guess`` [n] if the solver finds none within its limit, or if there are more bits than the equations can determine.

    Args:
        rows: [n, F].
        target: [F].
    """
    if len(rows) > 2 * rows.shape[1]:
        return guess
    unit = float(rows.norm(dim=1).max().item())
    matrix, value = (rows.mT / unit).cpu().numpy(), (target / unit).cpu().numpy()
    margin = max(slack / unit, 1e-7)
    result = milp(
        np.zeros(len(rows)),
        constraints=LinearConstraint(matrix, value - margin, value + margin),
        integrality=np.ones(len(rows), dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"node_limit": _NODES_SEARCHED},
    )
    return guess if result.x is None else torch.from_numpy(result.x > 0.5).to(guess.device)
