"""Maps of the bits and bytes of numbers, against maps that were written down by hand; a network beside formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fglaudit.attacks.learned.maps.bit_maps import bits, byte_tables, mixed_bits, numbers
from fglaudit.attacks.learned.maps.network_map import network
from fglaudit.attacks.learned.maps.row_map import relative_error
from fglaudit.attacks.learned.maps.row_maps import best_map
from fglaudit.rng import derive


def rows(count: int, name: str) -> Tensor:
    """Return made-up rows [count, 4] of float32 values in float64."""
    return torch.randn(count, 4, generator=derive(0, name)).double()


def masked(x: Tensor) -> Tensor:
    return (x.float().view(torch.int32) ^ 0x2A5F13).view(torch.float32).double()


def gray(x: Tensor) -> Tensor:
    """Each bit of the fraction added to the one above it."""
    whole = x.float().view(torch.int32)
    return (whole ^ ((whole >> 1) & 0x3FFFFF)).view(torch.float32).double()


def reversed_bytes(x: Tensor) -> Tensor:
    parts = x.float().contiguous().view(torch.uint8).reshape(len(x), -1, 4)
    turned: Tensor = parts.flip(-1).contiguous().flatten(1).view(torch.float32).double()
    return turned


def substituted(x: Tensor) -> Tensor:
    """The two lower bytes by a table."""
    parts = x.float().contiguous().view(torch.uint8).reshape(len(x), -1, 4).long()
    parts[..., :2] = torch.randperm(256, generator=derive(0, "table"))[parts[..., :2]]
    replaced: Tensor = parts.to(torch.uint8).flatten(1).view(torch.float32).double()
    return replaced


def test_numbers_have_the_bits_that_the_standard_gives_them() -> None:
    """-1.5 is 1 01111111 1000...: sign, exponent 127, half."""
    found = bits(torch.tensor([-1.5]), wide=False)
    assert found[0].nonzero().squeeze(1).tolist() == [22, *range(23, 30), 31]
    for wide in (False, True):
        x = rows(5, "any").reshape(-1)
        assert torch.equal(numbers(bits(x, wide), wide), x)


@pytest.mark.parametrize("hidden", [masked, gray, reversed_bytes, substituted])
def test_maps_of_bits_are_undone_to_the_last_bit(hidden: Callable[[Tensor], Tensor]) -> None:
    train, held, new = rows(800, "train"), rows(100, "held"), rows(50, "new")
    learned = best_map(train, hidden(train), held, hidden(held))
    whole = hidden(new).isfinite()
    assert whole.float().mean() > 0.9
    assert torch.equal(learned.apply(hidden(new))[whole], new[whole])


def test_fresh_masks_of_bits_teach_nothing() -> None:
    train = rows(400, "train")
    mask = torch.randint(2**23, train.shape, generator=derive(0, "masks"), dtype=torch.int32)
    sent = (train.float().view(torch.int32) ^ mask).view(torch.float32).double()
    assert mixed_bits(train, sent) is None and byte_tables(train, sent) is None


def test_a_network_beats_lines_on_a_curve_that_no_formula_here_undoes() -> None:
    def bent(x: Tensor) -> Tensor:
        return x + 0.8 * x.roll(1, 1).cos() * x.roll(1, 1).abs()

    train, new = rows(3000, "train"), rows(500, "new")
    found = network(train, bent(train))
    assert found is not None
    line = best_map(train[:300], bent(train[:300]), new, bent(new), simple=True)
    assert relative_error(new, found(bent(new))) < 0.7 * line.error


def test_few_rows_tell_an_order_of_columns_in_which_each_is_used_once() -> None:
    """Two columns are 0 in all rows: of those nothing is known but that they are two."""
    train = (rows(12, "train") > 0).double().repeat(1, 2)
    train[:, 5:7] = 0
    train[:, 7] = 1 - train[:, 0]
    order = torch.tensor([6, 3, 7, 0, 2, 5, 4, 1])
    learned = best_map(train[:9], -train[:9, order], train[9:], -train[9:, order])
    assert learned.error == 0 and "order" in learned.name
