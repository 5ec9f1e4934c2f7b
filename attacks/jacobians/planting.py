"""Self-test problems for attacks on GFL-APPNP's messages: a run over random models in which everything can be read.

The observer sees a graph in which its own node has one neighbour and every other node is alone; rows of others are
drawn at random. Messages follow the protocol's formulas without noise; other public facts stay.

* With Jacobians every hidden unit turns by half a circle, evenly, over the rounds, so that every row crosses every unit
  once and mostly alone. Nodes have as many samples as the observer's own node, of which at most six are not zero; an
  observer without a node cannot know their number, and gets every other node with one sample and the rest with three.
* Without Jacobians the models are independent random draws and every node has one sample: a representation averaged
  over several fits no single row.

The messages are simulated, not rehearsed with the protocol. It refuses graphs that fall into components, without which
a client that does not know the edges cannot know its weights; its training moves no unit by half a circle; independent
models would need a rehearsal for each of hundreds of rounds; and the sums that a client receives after training on
planted labels often fail to name its neighbour's against label propagation. The test of this file compares the messages
with those that the protocol's own code makes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.adversary.planting import MemoryMessages, planted_graph, planted_rows
from fglaudit.attacks.jacobians.encoder import Shape, encoder_shape
from fglaudit.attacks.jacobians.known_propagation import propagation_row
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
from fglaudit.structure import Encoder, Propagation
from fglaudit.view import View

_ROUNDS = 48
_EQUATIONS = 4  # per feature, where the rows are to follow from hidden representations alone
_NODES = 64
_NODES_WITH_JACOBIANS = 32
_LEAST_NODES = 4
_MOST_NUMBERS = 1 << 27
_MOST_PRODUCTS = 1 << 31
_MOST_SAMPLES = 6
_SAMPLES_SEEN_BY_SERVER = 3
_FEW_FEATURES = 6


def plant_encoder_run(view: View, rng: torch.Generator, *, jacobians: bool = True) -> Planted:
    """Return the problem described in the module docstring.

    At most 64 nodes of others (32 with Jacobians) send rows, fewer where rows are so wide that they would take minutes.

    Args:
        jacobians: whether Jacobians are sent at all.
    """
    rng = split(rng, "plant")
    n = view.public.num_nodes
    own = torch.tensor(view.observer.clients, dtype=torch.long)
    others = torch.arange(n)[~torch.isin(torch.arange(n), own)]
    others = others[torch.randperm(len(others), generator=rng)][: most_nodes(view, jacobians)]
    receivers = own[: 0 if sees_deliveries(view) else len(others)]
    pairs = torch.stack([receivers, others[: len(receivers)]])
    targets = (others if len(receivers) == 0 else pairs[1]).sort().values
    shown, samples = _samples(view, len(targets)) if jacobians else (torch.ones_like(targets), torch.ones_like(targets))
    if _samples_alike(view):
        shown, samples = torch.ones_like(shown), torch.ones_like(samples)
    owners = torch.arange(len(targets)).repeat_interleave(shown)
    rows = _rows(view, targets[owners], rng)
    planted, edges = planted_graph(view, pairs, inner_edges=False)
    stated = view.public.structure.replace(Encoder, noise=0.0) if jacobians else view.public.structure
    messages = _messages(view, _Senders(targets, owners, rows, samples), pairs, edges, jacobians, rng)
    planted = dataclasses.replace(
        planted,
        messages=MemoryMessages(tuple(messages)),
        public=dataclasses.replace(planted.public, structure=stated),
    )
    return Planted(planted, rows, targets[owners])


def most_nodes(view: View, jacobians: bool) -> int:
    """Return how many nodes send rows: of Jacobians all numbers are read, from representations rows are solved."""
    shape = encoder_shape(view)
    assert shape is not None
    if jacobians:
        numbers = _ROUNDS * shape.classes * shape.hidden * (shape.features + shape.classes)
        return max(_LEAST_NODES, min(_NODES_WITH_JACOBIANS, _MOST_NUMBERS // numbers))
    products = _EQUATIONS * shape.features**3
    return max(_LEAST_NODES, min(_NODES, _MOST_PRODUCTS // products))


@dataclass(frozen=True)
class _Senders:
    """Nodes with rows that are sent.

    Attributes:
        nodes: ids, ascending [n].
        owners: position in ``nodes`` of every row's node, ascending [R].
        rows: the samples that are not zero [R, F].
        samples: number of samples of every node, zeros among them [n].
    """

    nodes: Tensor
    owners: Tensor
    rows: Tensor
    samples: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over each node's samples [n, ...] of ``values`` [R, ...]; zero samples contribute zero."""
        total = values.new_zeros(len(self.nodes), *values.shape[1:]).index_add_(0, self.owners, values)
        return total / self.samples.view(-1, *[1] * (values.dim() - 1))


def _samples(view: View, count: int) -> tuple[Tensor, Tensor]:
    """Return for ``count`` nodes how many samples that are not zero they have, and how many samples."""
    if not view.own:
        samples = torch.ones(count, dtype=torch.long)
        samples[1::2] = _SAMPLES_SEEN_BY_SERVER
        return samples, samples
    samples = torch.full((count,), view.own[0].x.shape[1] if view.own[0].x.dim() == 3 else 1)
    return samples.clamp(max=_MOST_SAMPLES), samples


def _samples_alike(view: View) -> bool:
    """Whether there are so few rows that samples drawn for one node often are one and the same, or parallel.

    Such samples are one row to whoever reads Jacobians; an observer without a node then gets one sample of each.
    """
    public = view.public
    few = 1 if public.features is FeatureKind.REAL else _FEW_FEATURES
    return not view.own and public.num_features <= few


def _rows(view: View, nodes: Tensor, rng: torch.Generator) -> Tensor:
    """Draw rows of ``nodes`` [R, F].

    Real-valued ones have random directions and the mean norm of the observer's own rows (1 without any).
    """
    if view.public.features is not FeatureKind.REAL:
        return planted_rows(view, nodes, rng)
    rows = torch.randn(len(nodes), view.public.num_features, generator=rng)
    known = torch.cat([torch.ones(0), *(c.x.float().flatten(0, -2).norm(dim=1) for c in view.own)])
    norm = float(known.mean().item()) if len(known) and bool((known > 0).any()) else 1.0
    scaled: Tensor = rows * (norm / view.public.num_features**0.5)
    return scaled


def _messages(
    view: View, senders: _Senders, pairs: Tensor, edges: Tensor, jacobians: bool, rng: torch.Generator
) -> list[MessageBatch]:
    """Return the messages that the observer sees.

    Args:
        senders: nodes with rows that are sent.
        pairs: (own node, remote node) of the planted edges [2, P].
        edges: all edges [2, E].
        jacobians: whether Jacobians are sent.
    """
    shape = encoder_shape(view)
    assert shape is not None
    propagation = torch.zeros(pairs.shape[1], len(senders.nodes))
    for index, (receiver, neighbour) in enumerate(pairs.T.tolist()):
        weights = propagation_row(view.public.structure.of(Propagation), edges, view.public.num_nodes, receiver)
        propagation[index, (senders.nodes == neighbour).nonzero().squeeze(1)] = weights[neighbour].float()
    everyone = torch.arange(view.public.num_clients)
    from_server = torch.full_like(everyone, SERVER)
    upwards = len(pairs[0]) == 0
    batches: list[MessageBatch] = []
    for round, (w1, w2) in enumerate(_models(shape, jacobians, rng)):
        vector = torch.cat([w1.flatten(), w2.flatten()])
        batches.append(MessageBatch(round, from_server, everyone, ModelUpdate(vector.expand(len(everyone), -1))))
        hidden = senders.mean((senders.rows @ w1).relu() @ w2)
        jacobian = [_jacobian(senders, w1, w2)] if jacobians else []
        sent: list[Payload] = [HiddenRepresentations(hidden), *(Jacobians(j) for j in jacobian)]
        source, target = senders.nodes, torch.full_like(senders.nodes, SERVER)
        if not upwards:
            down = [PropagatedJacobians(torch.einsum("kn,ncd->kcd", propagation, j)) for j in jacobian]
            sent = [PropagatedRepresentations(propagation @ hidden), *down]
            source, target = torch.full_like(pairs[0], SERVER), pairs[0]
        batches += [MessageBatch(round, source, target, payload) for payload in sent]
    return batches


def _models(shape: Shape, turning: bool, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the weights W1 [F, H] and W2 [H, C] of every round: ``turning`` units, or independent draws."""
    rounds = _ROUNDS if turning else -(-_EQUATIONS * shape.features // shape.classes)
    start, stop = torch.randn(2, shape.features, shape.hidden, generator=rng) / shape.features**0.5
    for round in range(rounds):
        angle = math.pi * round / (rounds - 1)
        w1 = start * math.cos(angle) + stop * math.sin(angle)
        if not turning:
            w1 = torch.randn(shape.features, shape.hidden, generator=rng) / shape.features**0.5
        yield w1, torch.randn(shape.hidden, shape.classes, generator=rng) / shape.hidden**0.5


def _jacobian(senders: _Senders, w1: Tensor, w2: Tensor) -> Tensor:
    """Return the full Jacobians [n, C, D] of the senders' hidden representations."""
    before = senders.rows @ w1
    units = senders.mean((before > 0).to(before)[:, None] * senders.rows[..., None])  # [n, F, H]
    first = torch.einsum("nfh,hc->ncfh", units, w2)
    second = torch.einsum("nh,cd->nchd", senders.mean(before.relu()), torch.eye(w2.shape[1]))
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
    if len(clients) == 0 or sees_deliveries(view):
        batches.append(MessageBatch(0, nodes, torch.full_like(nodes, SERVER), HiddenRepresentations(hidden)))
    else:  # the k-th observing client has one neighbour, the node whose sum it receives
        pairs = torch.stack(
            [torch.stack([c.nodes[0], c.remote_nodes[0]]) for c in plain.view.own if len(c.remote_nodes)]
        )
        sums = hidden[torch.searchsorted(nodes, pairs[:, 1].contiguous())]
        down = MessageBatch(0, torch.full_like(pairs[:, 0], SERVER), pairs[:, 0], PropagatedRepresentations(sums))
        batches.append(down)
    return Planted(dataclasses.replace(plain.view, messages=MemoryMessages(tuple(batches))), y, nodes)
