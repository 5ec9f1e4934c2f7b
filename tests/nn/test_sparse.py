"""Sparse products equal dense ones, forwards and backwards, whatever order the entries come in."""

from __future__ import annotations

import subprocess
import sys

import torch

from fglaudit.nn.sparse import SparseMatrix, product
from fglaudit.sparse_tensors import csr


def test_entries_in_any_order_and_their_gradient() -> None:
    rows, columns = torch.tensor([2, 0, 3, 0, 2]), torch.tensor([1, 2, 0, 0, 1])  # one entry twice, one row empty
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    dense = torch.zeros(4, 3).index_put_((rows, columns), values, accumulate=True)
    matrix, x = SparseMatrix.from_entries(rows, columns, values, (4, 3)), torch.arange(6.0).view(3, 2)
    assert torch.equal(matrix @ x, dense @ x)
    assert torch.equal(matrix.T @ torch.ones(4, 2), dense.T @ torch.ones(4, 2))
    assert torch.equal(matrix.T.T.forward.to_dense(), dense)
    leaf, weight = x.clone().requires_grad_(), torch.arange(8.0).view(4, 2)
    (gradient,) = torch.autograd.grad(((matrix @ leaf) * weight).sum(), leaf)
    assert torch.equal(gradient, dense.T @ weight)


def test_a_matrix_made_in_the_product_serves_gradients_of_single_examples() -> None:
    made = []

    def entries() -> torch.Tensor:
        made.append(1)
        return csr(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), torch.tensor([2.0, -1.0, 3.0]), 3)

    matrix, x = SparseMatrix(entries), torch.arange(6.0).view(3, 2)
    dense = torch.tensor([[2.0, 0.0, -1.0], [0.0, 3.0, 0.0]])
    assert not made
    values, backward = torch.func.vjp(lambda rows: (matrix @ rows).sum(1), x)  # type: ignore[misc]
    gradients = torch.func.vmap(lambda direction: backward(direction)[0])(torch.eye(2))
    assert torch.equal(values, (dense @ x).sum(1))
    assert torch.equal(gradients, dense.unsqueeze(2).expand(2, 3, 2)) and made == [1]


def test_a_product_does_not_read_the_memory_that_it_is_written_to() -> None:
    matrix = csr(torch.tensor([0, 1, 1]), torch.tensor([1]), torch.tensor([2.0]), 3)

    class Stained(torch.Tensor):
        def new_empty(self, *shape: int) -> torch.Tensor:  # type: ignore[override]
            return torch.full(shape, torch.nan)

    stained = torch.ones(3, 4).as_subclass(Stained)
    assert torch.equal(product(matrix, stained).as_subclass(torch.Tensor), torch.tensor([[2.0] * 4, [0.0] * 4]))


def test_the_first_sparse_tensors_come_without_a_warning() -> None:
    """In a process of its own: torch gives each of its warnings once."""
    made = "csr(one - 1, one[:1] - 1, one[:1], 1); coo(one.view(2, 1) - 1, one[:1].float(), (1, 1))"
    begin = "import warnings, torch; from fglaudit.sparse_tensors import coo, csr; warnings.simplefilter('error')"
    code = f"{begin}; one = torch.ones(2, dtype=torch.long); {made}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
