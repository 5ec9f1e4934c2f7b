"""Is noise somewhere other noise under a rotation? Inner products over draws show it, whatever the rotation.

Independent standard normal blocks a, b of D draws each have inner products over pairs of draws K(d, e) = <a_d, a_e>
that have nothing to do with each other. If b is a under a rotation that everybody knows, they are the same, whatever
the rotation; if b is made of a and others, they are alike. Given b's, the sum of their products over d != e is a
quadratic form of a, whose tail is bounded by Laurent and Massart (2000, lemma 1): no threshold is fitted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def alike(first: Tensor, second: Tensor, loose: float = 0.0) -> Tensor:
    """Return how unlikely it is that inner products of ``first`` [B, D, m] and ``second`` [C, D, k] are as alike as
    they are, if all are independent standard normal: a bound [B, C] on ``-ln`` of the p-value.

    Args:
        loose: what arithmetic may have added to a number.
    """
    count, width = first.shape[1:]
    gram, other = (_products(blocks) for blocks in (first, second))
    flat = other.flatten(1)
    size, largest = torch.linalg.vector_norm(flat, dim=1), _largest(second, other)
    seen = gram.flatten(1) @ flat.T - 6 * loose * count * width * largest
    # seen > 2 sqrt(width x) size + 2 x largest has a chance of exp(-x) at most: solved for x.
    reach = (width * size.square() + 2 * largest * seen.clamp(min=0)).sqrt() - math.sqrt(width) * size
    found: Tensor = (reach / (2 * largest.clamp(min=1e-300))).square()
    return found


def _products(blocks: Tensor) -> Tensor:
    """Return the inner products [B, D, D] over pairs of different draws."""
    products = blocks @ blocks.mT
    products.diagonal(dim1=1, dim2=2).zero_()
    return products


def _largest(blocks: Tensor, products: Tensor) -> Tensor:
    """Return a bound [B] on the eigenvalues of ``products``, in size."""
    if blocks.shape[1] <= blocks.shape[2]:
        values: Tensor = torch.linalg.eigvalsh(products).abs()
    else:  # taking the diagonal away makes the largest eigenvalue smaller, and the others negative at most by it
        values = torch.linalg.eigvalsh(blocks.mT @ blocks)
    return values.amax(1)
