"""Torch's sparse tensors, made without a warning: a leaf module, for every layer of the package."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

_NOT_NEWS = "Sparse (CSR tensor support is in beta|invariant checks are implicitly disabled)"
"""What torch says of every first one; the second, in some of its versions, although no check is what was asked for."""


def csr(start: Tensor, columns: Tensor, values: Tensor, num_columns: int) -> Tensor:
    """Return a torch CSR tensor [R, num_columns] from row offsets [R + 1], columns [e] and values [e]."""
    if max(num_columns, len(columns)) < 2**31:  # the libraries' own type: others are converted in every product
        start, columns = start.int(), columns.int()
    with _quiet():
        return torch.sparse_csr_tensor(start, columns, values, (len(start) - 1, num_columns), check_invariants=False)


def coo(indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a torch COO tensor of ``shape`` from ``indices`` [2, e], which may repeat, and ``values`` [e]."""
    with _quiet():
        return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NOT_NEWS)
        yield
