"""Equal inputs are computed once; inputs that differ in one number, in shape or type are not equal."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.running.once_per_input import KEPT, once_per_input


def test_inputs_count_by_content() -> None:
    calls: list[int] = []

    @once_per_input
    def total(rows: Tensor, factor: float) -> Tensor:
        calls.append(len(rows))
        return factor * rows.sum(0)

    rows = torch.arange(6.0).view(3, 2)
    first = total(rows, 2.0)
    assert total(rows.clone(), 2.0) is first and total(rows.T.contiguous().T, 2.0) is first and len(calls) == 1
    other = rows.clone()
    other[2, 1] += 1e-6
    for changed in (other, rows.view(6, 1), rows.double()):
        assert torch.equal(total(changed, 2.0), 2.0 * changed.sum(0))
    assert torch.equal(total(rows, 3.0), 3.0 * rows.sum(0)) and len(calls) == 5
    assert torch.equal(total(rows, factor=5.0), 5.0 * rows.sum(0)) and len(calls) == 6
    assert torch.equal(total(rows=rows, factor=7.0), 7.0 * rows.sum(0)) and len(calls) == 7


def test_the_oldest_results_are_forgotten_and_a_change_of_the_input_is_seen() -> None:
    calls: list[float] = []

    @once_per_input
    def double(rows: Tensor) -> Tensor:
        calls.append(float(rows[0].item()))
        return 2 * rows

    for value in range(KEPT + 1):
        double(torch.tensor([float(value)]))
    double(torch.tensor([0.0]))
    assert calls == [*map(float, range(KEPT + 1)), 0.0]
    rows = torch.tensor([7.0])
    double(rows)
    rows[0] = 8.0
    assert double(rows).item() == 16.0
