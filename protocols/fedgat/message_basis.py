"""The few dimensions of feature space that a masked message lies in (:mod:`fglaudit.protocols.fedgat.received` says
why): found, and checked."""

from __future__ import annotations

import torch
from torch import Tensor

RESIDUAL = 100
"""Largest relative part outside the basis, in units of the type's precision."""
ROUNDING = 8
"""Largest part outside the basis, in units of the type's precision, relative to the factors of the product that the
columns are. In the vector variant mask4 takes masks away that are thousands of times larger than what they hide."""


def basis_of(rows: Tensor, rank: int) -> Tensor:
    """Return an orthonormal basis [P, F, rank] of the leading directions of ``rows`` [P, n, F], ``rank <= n < F``."""
    basis: Tensor
    basis, triangle = torch.linalg.qr(rows.transpose(1, 2))
    if rank < rows.shape[1]:
        basis = basis @ torch.linalg.svd(triangle).U[:, :, :rank]
    return basis


def spanned(basis: Tensor, columns: Tensor, size: Tensor | None = None) -> Tensor:
    """Return for which p the ``columns`` [P, F, c] lie in the span of ``basis`` [P, F, r] up to rounding [P].

    Args:
        size: the product of the norms of the factors that ``columns`` were computed from [P]; None: they were received.
    """
    outside = columns - basis @ (basis.transpose(1, 2) @ columns)
    bound = RESIDUAL * columns.flatten(1).norm(dim=1)
    if size is not None:
        bound = torch.maximum(bound, ROUNDING * size)
    inside: Tensor = outside.flatten(1).norm(dim=1) <= torch.finfo(columns.dtype).eps * bound
    return inside


def paired(mask4: Tensor) -> Tensor | None:
    """Return the matrices [P, 2b, 2b] that average over the pairs of coordinates that ``mask4`` [P, 2b, 2b] cannot tell
    apart; None unless all its columns are equal in pairs, bit for bit."""
    equal = torch.stack([(part.unsqueeze(2) == part.unsqueeze(1)).all(0) for part in mask4])
    return equal.to(mask4) / 2 if bool((equal.sum(2) == 2).all()) else None
