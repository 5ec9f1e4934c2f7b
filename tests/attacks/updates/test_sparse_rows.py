"""Few rows of a dictionary from what they add up to: exactly, though rows are much alike; none where all is error."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.attacks.updates.sparse_rows import sparse_rows
from fglaudit.rng import derive


def alike(count: int, width: int, rng: torch.Generator) -> Tensor:
    """Return rows [count, width] in groups of five that differ by a tenth of what they share."""
    shared = torch.randn((count + 4) // 5, width, generator=rng, dtype=torch.double).repeat_interleave(5, 0)[:count]
    return shared + 0.1 * torch.randn(count, width, generator=rng, dtype=torch.double)


def problem(used: int, columns: int, error: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the dictionary, which rows are used, their coefficients, and the sum with errors."""
    rng = derive(0, "sparse rows")
    known = alike(600, 200, rng)
    index = torch.randperm(600, generator=rng)[:used].sort().values
    rows = torch.randn(used, columns, generator=rng, dtype=torch.double)
    errors = error * torch.randn(200, columns, generator=rng, dtype=torch.double)
    return known, index, rows, known[index].T @ rows + errors


def test_with_full_rank_the_column_space_tells_and_coefficients_are_exact() -> None:
    known, index, rows, measured = problem(12, 20, 1e-9)
    found = sparse_rows(known, measured, 1e-9)
    order = found.nodes.argsort()
    assert torch.equal(found.nodes[order], index)
    assert torch.allclose(found.rows[order], rows, atol=1e-5)


def test_more_rows_than_columns_are_found_though_others_are_much_alike() -> None:
    known, index, rows, measured = problem(40, 8, 1e-8)
    found = sparse_rows(known, measured, 1e-8)
    top = found.nodes[found.power.argsort(descending=True)[:40]]
    assert torch.isin(top, index).sum() >= 39
    place = {int(node): at for at, node in enumerate(found.nodes.tolist())}
    right = [torch.allclose(found.rows[place[int(n)]], row, atol=1e-2) for n, row in zip(index, rows, strict=True)]
    assert sum(right) >= 38


def test_errors_alone_have_no_rows() -> None:
    known, _, _, measured = problem(0, 8, 1e-3)
    assert len(sparse_rows(known, measured, 1e-3).nodes) == 0


def test_a_row_of_zeros_is_never_among_them() -> None:
    known, index, _, measured = problem(12, 20, 1e-9)
    known[(torch.arange(600)[~torch.isin(torch.arange(600), index)])[:50]] = 0
    found = sparse_rows(known, measured, 1e-9)
    assert bool((known[found.nodes].abs().amax(1) > 0).all()) and bool(found.power.isfinite().all())
