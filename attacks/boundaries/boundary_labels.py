"""Labels of other clients' training nodes from the gradients that they send back about hidden states.

A node j of the observer has neighbours i at client k. Where i is a training node, its loss pushes j's hidden state by

    g_j = sum over i of A_ij W (p_i - y_i)

up to a positive factor, W the second layer [D, C], p_i the prediction, y_i the label as one-hot. The observer has W. A
unit that the holder dropped has gradient 0 and says nothing; the others give ``sum over i of A_ij (p_i - y_i)`` by
least squares, and all its nodes together, with the edges it knows, every neighbour's ``p_i - y_i``: negative at the
label and nowhere else, 0 where i is no training node. Means over the first rounds are taken; which client a neighbour
belongs to is told by who sends its hidden states. Other nodes get the labels that label propagation gives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, own_nodes
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.modelled import about, known_noise, on_gradients
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.boundaries.first_models import first_models
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, HiddenGradients, HiddenStates, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import BoundaryRows
from fglaudit.view import View

ROUNDS = 10
_RIDGE = 1e-3
"""Of the mean diagonal, on both least squares."""
_TELLING = 0.2
"""Share of the largest residual above which a node counts as trained on."""


@dataclass(frozen=True)
class BoundaryLabels(Attack):
    """Read labels off the gradients of hidden states."""

    name: ClassVar[str] = "boundary-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HiddenGradients, HiddenStates, ModelUpdate)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"
    first_rounds: ClassVar[int | None] = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Noise on gradients averages out; what clients do to models they upload, and to rows, is not read."""
        only_up = about(fact, ModelUpdate, direction="up") and not about(fact, ModelUpdate, direction="down")
        return only_up or on_gradients(fact) or known_noise(fact, HiddenGradients)

    def unsupported(self, view: View) -> str | None:
        if (missing := view.public.structure.missing(BoundaryRows)) is not None:
            return missing
        _, classes = tuple(view.public.layout.values())[-1]
        if next(_pushes(view), None) is None:
            return "the observer sees no gradient of another client beside the model that it was computed with"
        if not len(_neighbours(view)[0]):
            return "the observer knows no edge between a node that a gradient is about and one of its sender's"
        if _width(view) < classes:
            return f"{_width(view)} hidden units do not tell {classes} classes apart"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        nodes = (~own_nodes(view)).nonzero().squeeze(1)
        scores = propagate_labels(view, nodes)
        residuals = _residuals(view, device)
        known = -residuals[nodes]
        told = known.amax(1) > _TELLING * known.abs().max().clamp(min=1e-30)
        scores[told] += 2 * torch.nn.functional.one_hot(known[told].argmax(1), known.shape[1])
        return Inference(type(self).quantity, nodes, scores.float())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one training node among the neighbours of each of the observer's nodes, and its gradient."""
        rng = split(rng, "plant")
        width, classes = _width(view), view.public.num_classes
        center, neighbour, weight, client = _neighbours(view)
        taken, subjects = torch.zeros(view.public.num_nodes, dtype=torch.bool), []
        for node in torch.unique(neighbour).tolist():
            around = center[neighbour == node]
            if not bool(taken[around].any()) and not bool(own_nodes(view)[node]):
                subjects.append(node)
                taken[around] = True
        chosen = torch.tensor(subjects)
        labels = torch.zeros(view.public.num_nodes, dtype=torch.long)
        labels[chosen] = torch.randint(classes, (len(chosen),), generator=rng)
        second = torch.randn(width, classes, generator=rng)
        vector = torch.zeros(1, sum(math.prod(shape) for shape in view.public.layout.values()))
        unflatten(vector, view.public.layout)[list(view.public.layout)[-1]].copy_(second)
        residual = 1 / classes - torch.nn.functional.one_hot(labels, classes).float()
        kept = torch.isin(neighbour, chosen)
        center, neighbour, weight, client = center[kept], neighbour[kept], weight[kept], client[kept]
        values = weight.float().unsqueeze(1) * (residual[neighbour] @ second.T)
        reader, receivers = next(_pushes(view))[3], torch.arange(len(center) + 1)
        batches = (
            MessageBatch(0, torch.tensor([SERVER]), torch.tensor([reader]), ModelUpdate(vector)),
            MessageBatch(1, client, torch.full_like(client, reader), HiddenStates(neighbour, values), receivers),
            MessageBatch(1, client, torch.full_like(client, reader), HiddenGradients(center, values), receivers),
        )
        return Planted(without_defense(view, MemoryMessages(batches)), labels[chosen], chosen)


def _width(view: View) -> int:
    return tuple(view.public.layout.values())[-1][0]


def _pushes(view: View) -> Iterator[tuple[int, Tensor, Tensor, int, Tensor]]:
    """Yield sender, nodes [n], gradients [n, D], receiver and the second layer [D, C], message by message."""
    name, models = list(view.public.layout)[-1], first_models(view, ROUNDS)
    for batch, payload in view.sent(HiddenGradients):
        assert batch.splits is not None
        if batch.round > ROUNDS or batch.round - 1 not in models:
            continue
        parts = zip(batch.senders.tolist(), batch.receivers.tolist(), batch.splits[:-1], batch.splits[1:], strict=True)
        for sender, receiver, low, high in parts:
            if sender not in view.observer.clients:
                rows = slice(int(low), int(high))
                second = models[batch.round - 1][name]
                yield sender, payload.nodes[rows], payload.values[rows], receiver, second


def _owners(view: View) -> Tensor:
    """Return the client of every node [N] as far as who sends its hidden states tells, else -1."""
    owner = torch.full((view.public.num_nodes,), -1)
    for batch, payload in view.sent(HiddenStates):
        owner[payload.nodes] = batch.senders[batch.entry_messages()]
    return owner


def _neighbours(view: View) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the edges between nodes that gradients are about and nodes of their senders: node, neighbour, weight of
    the edge, client of the neighbour [e]."""
    about_them = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    for _, nodes, _, _, _ in _pushes(view):
        about_them[nodes] = True
    owner, scale = _owners(view), (known_degrees(view).clamp(min=0).double() + 1).rsqrt()
    row, column = known_edges(view)
    used = about_them[row] & (owner[column] >= 0) & ~own_nodes(view)[column] & (row != column)
    row, column = row[used], column[used]
    return row, column, scale[row] * scale[column], owner[column]


def _residuals(view: View, device: torch.device) -> Tensor:
    """Return the mean of ``p_i - y_i`` over the first rounds [N, C], up to a factor; 0 where nothing is known."""
    count, classes = view.public.num_nodes, view.public.num_classes
    total = dict[int, Tensor]()
    seen = dict[int, Tensor]()
    for sender, nodes, values, _, second in _pushes(view):
        sums = total.setdefault(sender, torch.zeros(count, classes, dtype=torch.double))
        sums.index_add_(0, nodes, _shares(second.double().to(device), values.double().to(device)).cpu())
        seen.setdefault(sender, torch.zeros(count)).index_add_(0, nodes, torch.ones(len(nodes)))
    center, neighbour, weight, client = _neighbours(view)
    found = torch.zeros(count, classes, dtype=torch.double)
    for sender, sums in total.items():
        mine = (client == sender) & (seen[sender][center] > 0)
        rows, row = torch.unique(center[mine], return_inverse=True)
        columns, column = torch.unique(neighbour[mine], return_inverse=True)
        if not len(rows):
            continue
        matrix = torch.zeros(len(rows), len(columns), dtype=torch.double, device=device)
        matrix[row.to(device), column.to(device)] = weight[mine].to(device)
        pushed = (sums[rows] / seen[sender][rows].unsqueeze(1)).to(device)
        gram = matrix @ matrix.T
        gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
        found[columns] = (matrix.T @ torch.linalg.solve(gram, pushed)).cpu()
    return found


def _shares(second: Tensor, values: Tensor) -> Tensor:
    """Return what gradients [n, D] push the logits by [n, C], by least squares over the units that are not 0."""
    kept = (values != 0).double()
    gram = torch.einsum("nd,dc,de->nce", kept, second, second)
    ridge = _RIDGE * gram.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-30)
    gram.diagonal(dim1=1, dim2=2).add_(ridge.unsqueeze(1))
    shares: Tensor = torch.linalg.solve(gram, (values @ second).unsqueeze(2)).squeeze(2)
    return shares
