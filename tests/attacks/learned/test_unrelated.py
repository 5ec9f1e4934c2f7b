"""What shows that learners of linear maps have nothing to learn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fglaudit.attacks.learned.maps.unrelated import changing, unrelated
from fglaudit.rng import derive

COLUMNS = 90


def drawn(count: int, columns: int, purpose: str) -> Tensor:
    return torch.randn(count, columns, generator=derive(0, purpose), dtype=torch.double)


def binary(count: int, columns: int) -> Tensor:
    return (torch.rand(count, columns, generator=derive(1, "words")) < 0.05).double()


@pytest.mark.parametrize("plain", [drawn(200, COLUMNS, "rows"), binary(200, COLUMNS)], ids=["normal", "binary"])
def test_a_pad_is_unrelated(plain: Tensor) -> None:
    assert unrelated(plain, drawn(200, COLUMNS, "pad"))
    assert unrelated(plain, 1e6 * drawn(200, 2 * COLUMNS, "wide pad"))


@pytest.mark.parametrize("count", [70, 400])
def test_linear_maps_are_not(count: int) -> None:
    plain = drawn(count, COLUMNS, "rows")
    order = torch.randperm(COLUMNS, generator=derive(2, "order"))
    turn = torch.linalg.qr(drawn(COLUMNS, COLUMNS, "turn"))[0]
    for sent in (plain[:, order], -3 * plain + 7, plain @ turn, plain @ turn + drawn(count, COLUMNS, "noise")):
        assert not unrelated(plain, sent)


def test_few_rows_say_nothing() -> None:
    assert not unrelated(drawn(40, COLUMNS, "rows"), drawn(40, COLUMNS, "pad"))


WIDE = 400


def turn(purpose: str) -> Tensor:
    turned: Tensor = torch.linalg.qr(drawn(WIDE, WIDE, purpose))[0]
    return turned


@pytest.mark.parametrize("count", [100, 600])
def test_secrets_that_are_drawn_anew_leave_nothing_to_learn(count: int) -> None:
    plain, held = drawn(count, WIDE, "rows"), drawn(WIDE, WIDE, "held rows")
    assert changing(plain, plain @ turn("one"), held, held @ turn("other"))
    order, other = (torch.randperm(WIDE, generator=derive(3, name)) for name in ("order", "other order"))
    assert changing(plain, plain[:, order], held, held[:, other])


@pytest.mark.parametrize("count", [100, 600])
def test_what_is_the_same_in_both_is_there_to_learn(count: int) -> None:
    plain, held = drawn(count, WIDE, "rows"), drawn(WIDE, WIDE, "held rows")
    tenth = torch.arange(WIDE) % 10 == 0
    linear = turn("one")
    for sent, held_sent in ((plain @ linear, held @ linear), (plain.cumsum(1), held.cumsum(1)), (5 - plain, 5 - held)):
        assert not changing(plain, sent, held, held_sent)
    noise = drawn(count, WIDE, "noise"), drawn(WIDE, WIDE, "held noise")
    sent, held_sent = (torch.where(tenth, rows, 3 * off) for rows, off in zip((plain, held), noise, strict=True))
    assert not changing(plain, sent, held, held_sent)
