"""Maps of rows that are learned from pairs, against maps that were written down by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fglaudit.attacks.learned.maps.row_maps import best_map
from fglaudit.attacks.learned.place_maps import best_place_map
from fglaudit.rng import derive

WIDTH = 6


def rows(count: int, name: str) -> Tensor:
    """Return made-up rows [count, 6] in float64."""
    return torch.randn(count, WIDTH, generator=derive(0, name), dtype=torch.double)


def turned(x: Tensor) -> Tensor:
    """Turn every row in the plane of its first two entries, and swap two others."""
    cos, sin = 0.6, 0.8
    return torch.stack([cos * x[:, 0] - sin * x[:, 1], sin * x[:, 0] + cos * x[:, 1], *x[:, [3, 2, 4, 5]].T], dim=1)


@pytest.mark.parametrize(
    ("hidden", "error"),
    [
        (lambda x: -x, 1e-12),
        (lambda x: 3 * x - 2, 1e-12),
        (lambda x: x[:, [5, 3, 1, 0, 2, 4]], 1e-12),
        (turned, 1e-12),
        (lambda x: x.sign() * x.abs().sqrt(), 1e-2),
        (lambda x: x.cumsum(1) + torch.arange(WIDTH), 1e-12),
        (lambda x: x + 64 * (x.abs() * 1000).round() % 640, 1e-12),
    ],
)
def test_fixed_maps_are_undone_on_rows_that_were_not_learned_from(
    hidden: Callable[[Tensor], Tensor], error: float
) -> None:
    train, held, new = rows(400, "train"), rows(100, "held"), rows(50, "new")
    learned = best_map(train, hidden(train), held, hidden(held))
    assert learned.error <= error
    assert (learned.apply(hidden(new)) - new).square().mean() <= 10 * error


def test_fewer_rows_than_a_rotation_has_columns_do_not_suffice() -> None:
    """Four rows span four of six dimensions, with the mean one fewer; forty span all."""
    held = rows(100, "held")
    few, many = (best_map(rows(n, "train"), turned(rows(n, "train")), held, turned(held)) for n in (4, 40))
    assert few.error > 0.1 > 1e-12 > many.error


def test_pads_that_are_used_once_are_not_undone() -> None:
    train, held = rows(400, "train"), rows(100, "held")
    learned = best_map(train, train + 50 * rows(400, "pad"), held, held + 50 * rows(100, "another pad"))
    assert learned.error > 0.9


def test_maps_by_place_are_learned_from_made_up_values_in_the_same_places() -> None:
    """A shift for every place, and a mixture of each row with the one before it."""
    shift = 9 * rows(8, "shift")
    places = torch.zeros(8, dtype=torch.long)
    probes = [rows(8, f"probe {i}") for i in range(4)]
    held = rows(8, "held")
    both: tuple[Callable[[Tensor], Tensor], ...] = (lambda x: x + shift, lambda x: x + 0.5 * x.roll(1, 0))
    for hidden in both:
        learned = best_place_map([(x, hidden(x)) for x in probes], (held, hidden(held)), places, 1.0)
        assert learned is not None and learned.error < 1e-10


def test_a_table_stands_for_the_middle_of_what_it_rounds_and_for_zeros_as_they_are() -> None:
    step = 2.0**-6

    def hidden(x: Tensor) -> Tensor:
        return (((x.clamp(-4, 3.9) + 4) / step).round().long() ^ 0b10110101).double() * step

    train, held, new = (rows(n, name).clamp(-3, 3) for n, name in ((5000, "train"), (100, "held"), (50, "new")))
    train[::2, ::3], new[::5] = 0.0, 0.0
    learned = best_map(train, hidden(train), held, hidden(held), simple=True)
    cleaned = learned.apply(hidden(new))
    assert bool((cleaned[::5] == 0).all())
    assert float((cleaned - new).abs().quantile(0.99)) <= 0.6 * step  # a value that was seen next to it: up to a step
