"""How many losses of local training one node reaches: counted from the edges that a defense left."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fglaudit.graph import ClientGraph


def reached_losses(client: ClientGraph, hops: int) -> int:
    """Return the largest number of the client's training nodes within ``hops`` hops of one node."""
    count = len(client.nodes)
    row, column = client.edge_index.numpy()
    step = sp.csr_array((np.ones(len(row)), (row, column)), shape=(count, count)) + sp.eye_array(count)
    reach = sp.csr_array(sp.eye_array(count))
    for _ in range(hops):
        reach = sp.csr_array(reach @ step)
        reach.data[:] = 1
    return int((reach @ client.train.numpy().astype(float)).max()) if count else 0
