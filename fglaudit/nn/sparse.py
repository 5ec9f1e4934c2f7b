"""Constant sparse matrices with a differentiable product, on CPU and GPU."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def csr(start: Tensor, columns: Tensor, values: Tensor, num_columns: int) -> Tensor:
    """Return a torch CSR tensor [R, num_columns] from row offsets [R + 1], columns [e] and values [e]."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(start, columns, values, (len(start) - 1, num_columns), check_invariants=False)


def row_starts(rows: Tensor, num_rows: int) -> Tensor:
    """Return offsets [num_rows + 1] of the rows of a list of row indices."""
    start = torch.zeros(num_rows + 1, dtype=torch.long, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=num_rows), 0, out=start[1:])
    return start


@dataclass(frozen=True)
class SparseMatrix:
    """A constant matrix [R, C] and its transpose, both stored by rows, so that no product has to transpose."""

    forward: Tensor
    transposed: Tensor

    @staticmethod
    def from_entries(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        """Build from coordinates [e] in any order; an entry given twice counts twice."""
        return SparseMatrix(
            _sorted_csr(rows, columns, values, shape), _sorted_csr(columns, rows, values, (shape[1], shape[0]))
        )

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Return the product with ``dense`` [C, d] as [R, d]; gradients flow to ``dense``."""
        product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
        return product


def _sorted_csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    order = torch.argsort(rows * shape[1] + columns)
    return csr(row_starts(rows, shape[0]), columns[order], values[order], shape[1])


class _Product(torch.autograd.Function):
    """Takes the matrix as an object: functorch cannot wrap CSR tensors."""

    @staticmethod
    def forward(matrix: SparseMatrix, dense: Tensor) -> Tensor:
        return matrix.forward @ dense

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SparseMatrix, Tensor], output: Tensor) -> None:
        ctx.transposed = SparseMatrix(inputs[0].transposed, inputs[0].forward)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.transposed @ grads[0]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[None, int], matrix: SparseMatrix, dense: Tensor) -> tuple[Tensor, int]:
        """Multiply a batch of dense matrices as one with more columns."""
        stacked = dense.movedim(in_dims[1], 1)
        return (matrix @ stacked.flatten(1)).view(-1, *stacked.shape[1:]), 1
