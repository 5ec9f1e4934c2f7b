"""Sparse equations over single bits, and the bounds that they put on each bit.

Rows of a sum are sparse, and an entry of zero settles the word for every node of the row; only bits that no such entry
settles become variables. A variable is one word of one unknown node; a constraint is one entry of one equation.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.sums.bits.numbering import numbered
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations

_FEATURES_AT_ONCE = 256


@dataclass(frozen=True)
class BinarySystem:
    """``sum of coefficients x bits = targets`` within ``tolerance``, or at most that where not ``exact``.

    Attributes:
        variables: flat index (unknown x F + feature) of each variable [V]; every other bit is 0.
        bits: value of each variable, -1 where open [V], int8.
        constraint, variable, coefficient: the terms [T].
        targets, tolerance: [C], float64.
        exact: whether a constraint has no hidden terms [C].
        fresh: whether a constraint has changed since it was last decoded by weight [C].
    """

    variables: Tensor
    bits: Tensor
    constraint: Tensor
    variable: Tensor
    coefficient: Tensor
    targets: Tensor
    tolerance: Tensor
    exact: Tensor
    fresh: Tensor

    def sums(self, weights: Tensor) -> Tensor:
        """Add ``weights`` [T] over the terms of every constraint [C]."""
        return torch.zeros_like(self.targets).index_add_(0, self.constraint, weights)


def binary_system(equations: NeighborEquations) -> BinarySystem:
    """Return the constraints on the bits that are not zero outright, as bits with a coefficient above an entry are."""
    device = equations.values.device
    features = equations.values.shape[1]
    room = equations.values + equations.tolerance
    needed = torch.nan_to_num(equations.coefficients, nan=0.0)
    blind = equations.coefficients.isnan()
    clear = (equations.std == 0)[equations.rows, None]  # of a coefficient nobody knows, noise may hide a small one
    terms: list[tuple[Tensor, Tensor]] = []
    for start in range(0, features, _FEATURES_AT_ONCE):
        columns = slice(start, start + _FEATURES_AT_ONCE)
        entry = equations.values[equations.rows, columns]
        slack = equations.tolerance[equations.rows, columns]
        excluded = torch.where(
            blind[:, None], clear & (entry <= slack), needed[:, None] > room[equations.rows, columns]
        )
        excluded &= entry >= -slack  # no bits add up to less than zero: such an entry proves nothing
        zero = torch.zeros(equations.num_unknowns, excluded.shape[1], dtype=torch.int32, device=device)
        zero.index_add_(0, equations.columns, excluded.to(torch.int32))
        term, feature = (zero[equations.columns] == 0).nonzero(as_tuple=True)
        terms.append((term, feature + start))
    term = torch.cat([t for t, _ in terms])
    feature = torch.cat([f for _, f in terms])
    variables, variable = numbered(
        equations.columns[term].mul_(features).add_(feature), equations.num_unknowns * features
    )
    usable = ~blind[term]
    if bool(usable.all()):
        known, word = term, feature
    else:
        known, word = term[usable], feature[usable]
    entries, constraint = numbered(equations.rows[known].mul_(features).add_(word), equations.num_rows * features)
    row = torch.div(entries, features, rounding_mode="floor")
    return BinarySystem(
        variables=variables,
        bits=torch.full((len(variables),), -1, dtype=torch.int8, device=device),
        constraint=constraint,
        variable=variable if known is term else variable[usable],
        coefficient=equations.coefficients[known],
        targets=equations.values.reshape(-1)[entries],
        tolerance=equations.tolerance.reshape(-1)[entries],
        exact=equations.hidden[row] == 0,
        fresh=torch.ones_like(row, dtype=torch.bool),
    )


def propagate(system: BinarySystem) -> BinarySystem:
    """Settle bits by their constraints' bounds until nothing changes, and drop settled bits from the constraints."""
    bits = system.bits.clone()
    c, v, w = system.constraint, system.variable, system.coefficient
    while True:
        value = bits[v]
        unsettled = value < 0
        left = system.targets - system.sums(w * (value == 1))
        slack = system.sums(w * unsettled) - left
        zero = unsettled & (w > left[c] + system.tolerance[c])
        one = unsettled & system.exact[c] & (w > slack[c] + system.tolerance[c])
        if not bool((zero | one).any()):
            break
        bits[v[one]] = 1
        bits[v[zero]] = 0
    value = bits[v]
    unsettled = value < 0
    kept, constraint = numbered(c[unsettled], len(system.targets))
    return BinarySystem(
        variables=system.variables,
        bits=bits,
        constraint=constraint,
        variable=v[unsettled],
        coefficient=w[unsettled],
        targets=(system.targets - system.sums(w * (value == 1)))[kept],
        tolerance=system.tolerance[kept],
        exact=system.exact[kept],
        fresh=(system.fresh | (system.sums((~unsettled).double()) > 0))[kept],
    )


def settle(system: BinarySystem, variable: Tensor, bits: Tensor) -> BinarySystem:
    """Return ``system`` with ``variable`` [n] set to ``bits`` [n]."""
    settled = system.bits.clone()
    settled[variable] = bits.to(torch.int8)
    return dataclasses.replace(system, bits=settled)


def restrict(system: BinarySystem, chosen: Tensor) -> BinarySystem:
    """Return ``system`` with only the terms of the ``chosen`` variables [V]; whole components must be chosen."""
    term = chosen[system.variable]
    kept, constraint = numbered(system.constraint[term], len(system.targets))
    return dataclasses.replace(
        system,
        constraint=constraint,
        variable=system.variable[term],
        coefficient=system.coefficient[term],
        targets=system.targets[kept],
        tolerance=system.tolerance[kept],
        exact=system.exact[kept],
        fresh=system.fresh[kept],
    )
