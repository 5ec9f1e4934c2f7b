"""Posteriors of bits against sums over all patterns, on constraints small enough for that."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from fglaudit.attacks.sums import maximum_a_posteriori
from fglaudit.attacks.sums.bits.belief_propagation import bit_log_odds
from fglaudit.attacks.sums.bits.binary_system import BinarySystem, binary_system
from fglaudit.attacks.sums.bits.hidden_terms import HIDDEN, hidden
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations
from fglaudit.rng import derive

SIZE = 9
"""Bits of a constraint: too many for the enumeration of small ones."""


def one_constraint(weight: Tensor, target: float, *, exact: bool = True) -> BinarySystem:
    """Return one constraint on as many bits as it has weights."""
    count = len(weight)
    return BinarySystem(
        variables=torch.arange(count),
        bits=torch.full((count,), -1, dtype=torch.int8),
        constraint=torch.zeros(count, dtype=torch.long),
        variable=torch.arange(count),
        coefficient=weight,
        targets=torch.tensor([target], dtype=torch.double),
        tolerance=torch.tensor([1.0], dtype=torch.double),
        exact=torch.tensor([exact]),
        fresh=torch.tensor([True]),
    )


def by_patterns(weight: Tensor, target: float, std: float, log_odds: Tensor, *, exact: bool = True) -> Tensor:
    """Return the posterior log odds from a sum over all patterns."""
    count = len(weight)
    patterns = ((torch.arange(2**count)[:, None] >> torch.arange(count)) & 1).double()
    error = patterns @ weight - target
    error = error if exact else error.clamp(min=0)
    chance = torch.softmax(patterns @ log_odds - 0.5 * (error / std) ** 2, 0)
    return (chance @ patterns).logit()


def drawn(scale: float) -> tuple[Tensor, Tensor]:
    rng = derive(0, "belief")
    weight = scale * (0.5 + 0.5 * torch.rand(SIZE, generator=rng, dtype=torch.double))
    return weight, 2 * torch.randn(SIZE, generator=rng, dtype=torch.double) - 1


@pytest.mark.parametrize("target", [-1.0, 0.3, 2.0])
@pytest.mark.parametrize("scale", [0.25, 0.1, 0.01])
def test_hidden_terms(scale: float, target: float) -> None:
    """Where noise of deviation 1 hides every term the closed form moves every bit as the sum over patterns does."""
    weight, log_odds = drawn(scale)
    assert bool(hidden(weight.max()[None], torch.ones(1), torch.tensor([True])).all())
    found = bit_log_odds(one_constraint(weight, target), log_odds, std=torch.ones(1, dtype=torch.double), damping=0.0)
    expected = by_patterns(weight, target, 1.0, log_odds)
    assert float((expected - log_odds).abs().max()) > scale / 10, "there is something to find"
    assert (
        float((found - expected).abs().max()) < 0.05 * float((expected - log_odds).abs().max()) * scale / HIDDEN + 1e-9
    )


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("equal", [True, False])
def test_visible_terms(exact: bool, equal: bool) -> None:
    """Terms that noise does not hide, on the grid; counts are exact there."""
    weight, log_odds = drawn(1.0)
    weight = torch.ones_like(weight) if equal else weight
    system = one_constraint(weight, 3.0, exact=exact)
    found = bit_log_odds(system, log_odds, std=torch.full((1,), 0.5, dtype=torch.double), damping=0.0)
    expected = by_patterns(weight, 3.0, 0.5, log_odds, exact=exact)
    assert float((found - expected).abs().max()) < (
        1e-3 if equal else 0.35
    )  # the grid rounds coefficients to half of the deviation


def test_one_and_few_bits() -> None:
    """Constraints of one bit and of five are summed exactly."""
    for count in (1, 5):
        weight, log_odds = (part[:count] for part in drawn(1.0))
        found = bit_log_odds(
            one_constraint(weight, 0.7), log_odds, std=torch.full((1,), 0.4, dtype=torch.double), damping=0.0
        )
        assert torch.allclose(found, by_patterns(weight, 0.7, 0.4, log_odds), atol=1e-9)


def test_what_only_bounds_a_sum_is_not_gaussian() -> None:
    assert not bool(hidden(torch.tensor([0.1]), torch.ones(1), torch.tensor([False])).any())


def noisy_equations(rows: int = 12, unknowns: int = 15, features: int = 40, std: float = 0.1) -> NeighborEquations:
    """Return sums of four drawn binary rows each, with noise."""
    rng = derive(0, "noisy equations")
    bits = (torch.rand(unknowns, features, generator=rng) < 0.2).double()
    columns = torch.stack([torch.randperm(unknowns, generator=rng)[:4] for _ in range(rows)])
    weight = 0.3 + 0.5 * torch.rand(rows, 4, generator=rng, dtype=torch.double)
    values = torch.einsum("re,ref->rf", weight, bits[columns])
    values += std * torch.randn(values.shape, generator=rng, dtype=torch.double)
    return NeighborEquations(
        nodes=torch.arange(unknowns),
        rows=torch.arange(rows).repeat_interleave(4),
        columns=columns.flatten(),
        coefficients=weight.flatten(),
        values=values,
        tolerance=torch.full_like(values, 1e-6),
        std=torch.full((rows,), std, dtype=torch.double),
        hidden=torch.zeros(rows, dtype=torch.double),
        about=torch.arange(rows),
        uploader=torch.full((rows,), -1),
    )


def test_columns_in_blocks_have_the_posterior_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    equations = noisy_equations()
    odds = torch.full((15, 40), 0.2, dtype=torch.double).logit()
    whole = maximum_a_posteriori._decode_noisy(equations, odds, 50).probability
    widths: list[int] = []

    def counted(part: NeighborEquations) -> BinarySystem:
        widths.append(part.values.shape[1])
        return binary_system(part)

    monkeypatch.setattr(maximum_a_posteriori, "binary_system", counted)
    monkeypatch.setattr(maximum_a_posteriori, "_TERMS_AT_ONCE", 7 * len(equations.rows))
    parts = maximum_a_posteriori._decode_noisy(equations, odds, 50).probability
    assert widths == [7, 7, 7, 7, 7, 5]
    assert float((parts - whole).abs().max()) < 2e-3  # where messages stand still to 1e-3
    assert float((whole - 0.2).abs().max()) > 0.5, "there is something to find"


def test_noise_proves_no_zero_of_a_node_whose_coefficient_is_unknown() -> None:
    """An entry within the noise was taken for none: such nodes were claimed to have no entry at all."""
    equations = noisy_equations(std=0.5)
    blind = torch.where(equations.columns == 3, float("nan"), equations.coefficients)
    odds = torch.full((15, 40), 0.2, dtype=torch.double).logit()
    found = maximum_a_posteriori._decode_noisy(dataclasses.replace(equations, coefficients=blind), odds, 50)
    assert torch.allclose(found.probability[3], torch.full((40,), 0.2), atol=1e-6)
    clear = dataclasses.replace(equations, coefficients=blind, values=torch.zeros(12, 40), std=torch.zeros(12))
    assert len(binary_system(clear).variables) == 0  # without noise a sum of nothing is one
