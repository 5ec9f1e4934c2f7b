"""Posterior of entries under noise, on drawn parts whose rows and levels the test knows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.attacks.sums.noisy_parts import noisy_entries


def drawn(std: float, rows: int = 200, columns: int = 400, density: float = 0.05) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, their parts at the level 1 over a degree from 1 to 6, and the noise's standard deviations."""
    rng = torch.Generator().manual_seed(5)
    bits = (torch.rand(rows, columns, generator=rng) < density).float()
    degree = torch.randint(1, 7, (rows, 1), generator=rng)
    return bits, bits / degree + std * torch.randn(rows, columns, generator=rng), torch.full((rows,), std)


def f1(rows: Tensor, truth: Tensor) -> float:
    return float((2 * (rows * truth).sum(1) / (rows.sum(1) + truth.sum(1)).clamp(min=1)).mean())


@pytest.mark.parametrize("known", [False, True])
def test_rows_come_back_where_noise_vanishes(known: bool) -> None:
    bits, parts, std = drawn(0.01)
    chance, evidence = noisy_entries(parts, std, torch.full((1, 400), 0.05) if known else None)
    assert torch.equal((chance > 0.5).float(), bits)
    assert float(evidence.min()) > 100


def test_nothing_is_moved_by_noise_that_hides_everything() -> None:
    _, parts, std = drawn(1000.0)
    chance, evidence = noisy_entries(parts, std, torch.full((1, 400), 0.05))
    assert float((chance - 0.05).abs().max()) < 1e-3
    assert float(evidence.abs().max()) < 0.5


@pytest.mark.parametrize("std", [0.05, 0.1, 0.2])
def test_posterior_finds_more_than_a_threshold(std: float) -> None:
    bits, parts, deviations = drawn(std)
    chance, _ = noisy_entries(parts, deviations, None)
    threshold = max(f1((parts > times * std).float(), bits) for times in (1.5, 2.5, 3.5))
    assert f1(best_f1_bits(chance), bits) > threshold + 0.01


def test_parts_that_hold_a_row_are_told_from_empty_ones() -> None:
    bits, parts, std = drawn(0.1)
    noise = 0.1 * torch.randn(bits.shape, generator=torch.Generator().manual_seed(6))
    _, full = noisy_entries(parts, std, torch.full((1, 400), 0.05))
    _, empty = noisy_entries(noise, std, torch.full((1, 400), 0.05))
    assert float(full.median()) > float(empty.max())


def test_no_part_at_all() -> None:
    chance, evidence = noisy_entries(torch.zeros(0, 7), torch.zeros(0), torch.full((1, 7), 0.1))
    assert chance.shape == (0, 7) and evidence.shape == (0,)
