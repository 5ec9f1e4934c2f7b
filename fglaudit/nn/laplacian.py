"""Laplacian positional encoding (Dwivedi and Bresson 2020; FedGT, section 4.1).

``L = I - D^-1/2 A D^-1/2``; a node without edges has a row of zeros in ``A``. As is typical, the encoding consists of
the eigenvectors of the 2nd to the (k+1)-th smallest eigenvalue, each with norm 1 and with the sign that makes its
largest entry positive. Where eigenvalues coincide (a disconnected graph) any basis of their space is possible; the same
graph gives the same one.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

DENSE_UP_TO = 512
"""Nodes up to which all eigenvectors are computed; above, Lanczos finds the wanted ones."""


def laplacian_encoding(edge_index: Tensor, num_nodes: int, dimensions: int) -> Tensor:
    """Return the encoding [n, dimensions], float32; a graph with too few nodes has zeros in the last columns."""
    encoding = torch.zeros(num_nodes, dimensions)
    wanted = min(dimensions, num_nodes - 1)
    if wanted <= 0:
        return encoding
    row, column = edge_index.numpy()
    scale = 1 / np.sqrt(np.maximum(np.bincount(row, minlength=num_nodes), 1))
    adjacency = sp.csr_array((scale[row] * scale[column], (row, column)), shape=(num_nodes, num_nodes))
    if num_nodes <= max(DENSE_UP_TO, wanted + 2):
        vectors = np.linalg.eigh(np.eye(num_nodes) - adjacency.toarray())[1][:, 1 : wanted + 1]
    else:
        # The largest eigenvalues of the adjacency are the smallest of L. A fixed start makes the result repeatable.
        start = np.random.default_rng(0).standard_normal(num_nodes)
        values, found = eigsh(adjacency, k=wanted + 1, which="LA", v0=start, tol=0)
        vectors = found[:, np.argsort(-values)][:, 1:]
    largest = vectors[np.abs(vectors).argmax(0), np.arange(wanted)]
    signs = np.where(largest < 0, -1.0, 1.0)
    encoding[:, :wanted] = torch.from_numpy(vectors * signs).float()
    return encoding
