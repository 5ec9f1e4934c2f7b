"""Self-test problems for attacks on GFL-APPNP's messages: a run over random models in which everything can be read.

The observer sees a graph in which its own node has one neighbour and every other node is alone; rows of others are drawn
afresh, one sample each; the models of the rounds are independent random draws, so that hidden units switch often. Messages
follow the protocol's formulas without noise; public facts stay otherwise.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.attacks._encoder import encoder_shape
from fglaudit.attacks._planting import MemoryMessages, planted_client, planted_rows
from fglaudit.attacks._propagation import propagation_row
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Planted
from fglaudit.payloads import (
    SERVER,
    HiddenRepresentations,
    Jacobians,
    MessageBatch,
    ModelUpdate,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
)
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

_ROUNDS = 24
_EQUATIONS = 4  # per feature, where the rows are to follow from hidden representations alone
_NODES = 64


def plant_encoder_run(view: View, rng: torch.Generator, *, jacobians: bool = True) -> Planted:
    """Return the problem described in the module docstring; at most 64 nodes of others have rows that are sent.

    Args:
        jacobians: whether Jacobians are sent at all.
    """
    rng = split(rng, "plant")
    public, n = view.public, view.public.num_nodes
    own = torch.tensor(view.observer.clients, dtype=torch.long)
    others = torch.arange(n)[~torch.isin(torch.arange(n), own)]
    others = others[torch.randperm(len(others), generator=rng)][:_NODES]
    receivers = own[: len(others)]
    pairs = torch.stack([receivers, others[: len(receivers)]])
    targets = (others if len(own) == 0 else pairs[1]).sort().values
    x = torch.zeros(n, public.num_features)
    x[targets] = rows = _rows(view, targets, rng)
    edges = torch.cat([pairs, pairs.flip(0)], dim=1)
    degrees = torch.bincount(edges[0], minlength=n)
    none = torch.empty(2, 0, dtype=torch.long)
    clients = tuple(dataclasses.replace(planted_client(c, pairs, degrees), edge_index=none) for c in view.own)
    if view.observer.degrees is False:
        clients = tuple(dataclasses.replace(c, remote_degrees=None) for c in clients)
    facts = {**public.hyperparameters, **({"variant": "full"} if jacobians else {})}
    known = torch.empty(0, dtype=torch.long)
    planted = dataclasses.replace(
        view,
        messages=MemoryMessages(tuple(_messages(view, x, targets, pairs, edges, jacobians, rng))),
        own=clients,
        auxiliary=Auxiliary(known, view.auxiliary.x[:0], known),
        public=dataclasses.replace(public, defense="none", defense_parameters={}, noise={}, hyperparameters=facts),
        topology=None if view.topology is None else edges[:, (edges[0] * n + edges[1]).argsort()],
        degrees=None if view.degrees is None else degrees,
    )
    return Planted(planted, rows, targets)


def _rows(view: View, nodes: Tensor, rng: torch.Generator) -> Tensor:
    """Draw rows; real-valued ones have directions at random and the mean norm of the observer's own rows (1 without any)."""
    if view.public.features is not FeatureKind.REAL:
        return planted_rows(view, nodes, rng)
    rows = torch.randn(len(nodes), view.public.num_features, generator=rng)
    known = torch.cat([torch.ones(0), *(c.x.float().flatten(0, -2).norm(dim=1) for c in view.own)])
    norm = float(known.mean().item()) if len(known) and bool((known > 0).any()) else 1.0
    scaled: Tensor = rows * (norm / view.public.num_features**0.5)
    return scaled


def _messages(
    view: View, x: Tensor, targets: Tensor, pairs: Tensor, edges: Tensor, jacobians: bool, rng: torch.Generator
) -> list[MessageBatch]:
    shape = encoder_shape(view)
    assert shape is not None
    propagation = torch.zeros(pairs.shape[1], len(targets))
    for index, (receiver, neighbour) in enumerate(pairs.T.tolist()):
        weights = propagation_row(view.public.hyperparameters, edges, view.public.num_nodes, receiver)
        propagation[index, (targets == neighbour).nonzero().squeeze(1)] = weights[neighbour].float()
    everyone = torch.arange(view.public.num_clients)
    from_server = torch.full_like(everyone, SERVER)
    server = torch.full_like(targets, SERVER)
    upwards = len(pairs[0]) == 0
    batches: list[MessageBatch] = []
    for round in range(_ROUNDS if jacobians else -(-_EQUATIONS * shape.features // shape.classes)):
        w1 = torch.randn(shape.features, shape.hidden, generator=rng) / shape.features**0.5
        w2 = torch.randn(shape.hidden, shape.classes, generator=rng) / shape.hidden**0.5
        vector = torch.cat([w1.flatten(), w2.flatten()])
        batches.append(MessageBatch(round, from_server, everyone, ModelUpdate(vector.expand(len(everyone), -1))))
        hidden = (x[targets] @ w1).relu() @ w2
        jacobian = [_jacobian(x[targets], w1, w2)] if jacobians else []
        sent: list[Payload] = [HiddenRepresentations(hidden), *(Jacobians(j) for j in jacobian)]
        senders, receivers = targets, server
        if not upwards:
            down = [PropagatedJacobians(torch.einsum("kn,ncd->kcd", propagation, j)) for j in jacobian]
            sent = [PropagatedRepresentations(propagation @ hidden), *down]
            senders, receivers = torch.full_like(pairs[0], SERVER), pairs[0]
        batches += [MessageBatch(round, senders, receivers, payload) for payload in sent]
    return batches


def _jacobian(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """Return the full Jacobians [n, C, D] of the hidden representations of one sample per node ``x`` [n, F]."""
    before = x @ w1
    first = torch.einsum("nf,nh,hc->ncfh", x, (before > 0).to(x), w2)
    second = torch.einsum("nh,cd->nchd", before.relu(), torch.eye(w2.shape[1]))
    return torch.cat([first.flatten(2), second.flatten(2)], 2)


def plant_labels(view: View, rng: torch.Generator) -> Planted:
    """Return a run without learning in which every representation shows its node's label plainly."""
    shape = encoder_shape(view)
    assert shape is not None
    plain = plant_encoder_run(view, rng, jacobians=False)
    nodes = plain.nodes
    y = torch.randint(shape.classes, (len(nodes),), generator=rng)
    hidden = 8 * one_hot(y, shape.classes).float()
    everyone = torch.arange(view.public.num_clients)
    model = torch.ones(1, shape.parameters).expand(len(everyone), -1)
    server = torch.full_like(everyone, SERVER)
    batches = [MessageBatch(0, server, everyone, ModelUpdate(model))]
    clients = torch.tensor(view.observer.clients, dtype=torch.long)
    if len(clients) == 0:
        batches.append(MessageBatch(0, nodes, torch.full_like(nodes, SERVER), HiddenRepresentations(hidden)))
    else:  # the k-th observing client has one neighbour, the node whose sum it receives
        pairs = torch.stack([torch.stack([c.nodes[0], c.remote_nodes[0]]) for c in plain.view.own if len(c.remote_nodes)])
        sums = hidden[torch.searchsorted(nodes, pairs[:, 1])]
        down = MessageBatch(0, torch.full_like(pairs[:, 0], SERVER), pairs[:, 0], PropagatedRepresentations(sums))
        batches.append(down)
    return Planted(dataclasses.replace(plain.view, messages=MemoryMessages(tuple(batches))), y, nodes)
