"""The empirical epsilon of a defense of local gradients: canary gradients go through all steps of a training run.

One node's losses, as many as it really reaches in the graph that the defense left, have the gradients u or -u, a
thousand times longer than one; all other gradients are zero. The defense's own step is run as often as training goes
through its losses, for thousands of independent clients at once; the adversary sees every noisy sum and adds up what
points along u.

The guarantee is about any gradients, so it must hold for these, which a network need not be able to give. How many
losses the node reaches is counted here, from the edges that are left: a defense that takes a node for one loss, or
drops too few edges, is found out. A defense that draws samples of losses says so by its parameter ``sampling_rate``.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglaudit.context import Examples
from fglaudit.empirical.bound import Bound
from fglaudit.empirical.clopper_pearson import clopper_pearson
from fglaudit.empirical.gdp import gdp
from fglaudit.facts import GRADIENTS, Sampled, first
from fglaudit.federated.problem import pooled
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import DefenseSession, Guarantee
from fglaudit.rng import derive

RUNS = 4000
"""Clients with u, and as many with -u."""
WIDTH = 4
LENGTH = 1000.0


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


def audit_updates(
    examples: Examples,
    graph: FederatedGraph,
    session: DefenseSession,
    promise: Guarantee,
    *,
    seed: int,
    confidence: float,
) -> Bound | str:
    """Return a lower bound on the epsilon of ``session`` for a node in local training, or why there is none."""
    if not promise.delta:
        return "a Gaussian mechanism has no epsilon at delta 0"
    if examples.across:
        return "which losses one node reaches at other clients is not known before training"
    clients = [pooled(graph)] if examples.pooled else [graph.client(k) for k in range(graph.num_clients)]
    edges = derive(seed, "empirical", "edges")
    losses = max(
        examples.per_node, *(reached_losses(session.prepare(client, edges), examples.hops) for client in clients)
    )
    rng = derive(seed, "empirical", "updates")
    along = torch.zeros(WIDTH)
    along[0] = LENGTH

    def scores(canary: Tensor) -> Tensor:
        gradients = canary.expand(losses, RUNS, WIDTH)
        total = torch.zeros(RUNS)
        for _ in range(examples.passes):
            total += session.local_update(gradients, rng)[:, 0]
        return total

    # A sum over a random sample is no Gaussian mechanism, and the bound for those would say too much.
    estimate = gdp if first(session.facts(), Sampled, GRADIENTS) is None else clopper_pearson
    split = derive(seed, "empirical", "split")
    return estimate(scores(along), scores(-along), delta=promise.delta, confidence=confidence, rng=split)
