"""Constant sparse matrices with a differentiable product, on CPU and GPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fglaudit.sparse_tensors import csr


def row_starts(rows: Tensor, num_rows: int) -> Tensor:
    """Return offsets [num_rows + 1] of the rows of a list of row indices."""
    start = torch.zeros(num_rows + 1, dtype=torch.long, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=num_rows), 0, out=start[1:])
    return start


def product(matrix: Tensor, dense: Tensor) -> Tensor:
    """Return the product [R, d] of a CSR ``matrix`` [R, C] and ``dense`` [C, d].

    ``@`` fills the result with zeros, copies it and only then multiplies.
    """
    result = dense.new_empty(matrix.shape[0], dense.shape[1])
    return torch.addmm(result, matrix, dense, beta=0, out=result)


class SparseMatrix:
    """A constant matrix [R, C] and its transpose, both stored by rows, so that no product has to transpose."""

    def __init__(self, forward: Tensor | Callable[[], Tensor], transposed: Tensor | None = None) -> None:
        """Set up from a CSR matrix [R, C]; its transpose [C, R] is made where a gradient first needs it.

        Args:
            forward: the matrix, or a function that makes it in the first product: ``torch.func`` knows no sparse
                tensors but within an autograd function.
        """
        self._forward, self._transposed = forward, transposed

    @property
    def forward(self) -> Tensor:
        """The matrix [R, C], by rows."""
        if not isinstance(self._forward, Tensor):
            self._forward = self._forward()
        return self._forward

    @property
    def transposed(self) -> Tensor:
        """The transpose [C, R], by rows."""
        if self._transposed is None:  # without a question to the host: batches on a GPU have matrices of their own
            start, columns = self.forward.crow_indices().long(), self.forward.col_indices().long()
            count, width = self.forward.shape
            rows = torch.arange(count, device=start.device).repeat_interleave(start.diff(), output_size=len(columns))
            order = torch.argsort(columns, stable=True)
            ends = torch.searchsorted(columns[order], torch.arange(width + 1, device=start.device))
            self._transposed = csr(ends, rows[order], self.forward.values()[order], count)
        return self._transposed

    @property
    def T(self) -> SparseMatrix:  # noqa: N802 (as of a tensor)
        """The transposed matrix."""
        return SparseMatrix(self.transposed, self.forward)

    @staticmethod
    def from_entries(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        """Build from coordinates [e] in any order; an entry given twice counts twice."""
        return SparseMatrix(_sorted_csr(rows, columns, values, shape))

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Return the product with ``dense`` [C, d] as [R, d]; gradients flow to ``dense``."""
        product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
        return product


def _sorted_csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    codes = rows * shape[1] + columns
    if bool((codes[1:] < codes[:-1]).any()):
        order = torch.argsort(codes)
        columns, values = columns[order], values[order]
    return csr(row_starts(rows, shape[0]), columns, values, shape[1])


class _Product(torch.autograd.Function):
    """Takes the matrix as an object: functorch cannot wrap CSR tensors."""

    @staticmethod
    def forward(matrix: SparseMatrix, dense: Tensor) -> Tensor:
        return product(matrix.forward, dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SparseMatrix, Tensor], output: Tensor) -> None:
        ctx.matrix = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix.T @ grads[0]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[None, int], matrix: SparseMatrix, dense: Tensor) -> tuple[Tensor, int]:
        """Multiply a batch of dense matrices as one with more columns."""
        stacked = dense.movedim(in_dims[1], 1)
        return (matrix @ stacked.flatten(1)).view(-1, *stacked.shape[1:]), 1


# Torch asks for the signature in every call, and would find it out anew.
_Product.forward.__signature__ = inspect.signature(_Product.forward)  # type: ignore[attr-defined]
