"""What a report says of a node's class."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import known_edges, own_without_edges, sees_deliveries
from fglaudit.adversary.known_labels import known_labels
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.modelled import about
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.public_rules import stated
from fglaudit.adversary.reported_classes import Seen
from fglaudit.facts import EDGES, GRADIENTS, K_ARY, ROWS, Fact, Memoised, Randomised, is_built_in
from fglaudit.payloads import SERVER, ClassReports, MessageBatch
from fglaudit.structure import Reports
from fglaudit.view import View

_PRIOR = 2.0
"""How many reports per class the assumed behaviour counts for."""
_ENCODER = 0.9
"""Share of nodes whose own row is assumed to predict their label, before any report is compared with a label."""


def models_reports(fact: Fact) -> bool:
    """Whether an attack on reports allows for ``fact``: k-ary responses, and what changes nodes before they report."""
    response = type(fact) is Randomised and fact.kind == K_ARY and about(fact, ClassReports)
    same = type(fact) is Memoised and about(fact, ClassReports)
    return response or same or (fact.target in (ROWS, EDGES, GRADIENTS) and is_built_in(fact))


def reporting(view: View, seen: Seen) -> Tensor:
    """Return how likely a node of class y reports r [C, C], y by row, as known labels and neighbours show it."""
    classes = view.public.num_classes
    response = next((f for f in stated(view, ClassReports) if isinstance(f, Randomised)), None)
    own = view.public.structure.get(Reports)
    keep = 1.0 if own is None else own.keep
    keep = float(response.parameter("keep")) if response is not None and response.kind == K_ARY else keep
    eye = torch.eye(classes, dtype=torch.double)
    encoder = _ENCODER * eye + (1 - _ENCODER) / classes
    assumed = encoder @ (keep * eye + (1 - keep) / max(1, classes - 1) * (1 - eye))
    found = _learned(view, seen, assumed)
    known = own is not None and own.of == "label"  # then only the stated response makes a report wrong
    spoken = None if known else _by_neighbours(view, seen, found)
    return found if spoken is None else _learned(view, seen, spoken)


def _learned(view: View, seen: Seen, assumed: Tensor) -> Tensor:
    """Return how likely a node of class y reports r [C, C], by known labels and :data:`_PRIOR` ``assumed`` reports."""
    classes = len(assumed)
    nodes, y = known_labels(view)
    reported = torch.full((view.public.num_nodes,), -1)
    reported[seen.nodes] = seen.reported
    use = reported[nodes] >= 0
    counts = one_hot(y[use] * classes + reported[nodes[use]], classes * classes).sum(0).view(classes, classes)
    total = counts + _PRIOR * assumed
    return total / total.sum(1, keepdim=True)


def _by_neighbours(view: View, seen: Seen, behaviour: Tensor) -> Tensor | None:
    """Return ``behaviour`` [C, C] as it shows without a known label, by the classes that neighbours speak for; None if
    no edge is known.

    One step of expectation maximisation (Dawid and Skene 1979), in which a node's own report says nothing of its class;
    further ones drift to whatever class is most frequent.
    """
    row, column = known_edges(view)
    row, column = row[row != column], column[row != column]
    if not len(row):
        return None
    classes = propagate_labels(view, torch.arange(view.public.num_nodes), _evidence(view, seen, behaviour))
    spoken = torch.zeros_like(classes).index_add_(0, row, classes[column])[seen.nodes]
    spoken = spoken / spoken.sum(1, keepdim=True).clamp(min=torch.finfo(spoken.dtype).tiny)
    total = behaviour + spoken.T @ one_hot(seen.reported, len(behaviour)).to(spoken)
    return total / total.sum(1, keepdim=True)


def evidence(view: View, seen: Seen) -> Tensor:
    """Return how likely each class makes the report of every node [N, C]; zeros where none was seen."""
    return _evidence(view, seen, reporting(view, seen))


def _evidence(view: View, seen: Seen, behaviour: Tensor) -> Tensor:
    found = torch.zeros(view.public.num_nodes, view.public.num_classes, dtype=torch.double)
    found[seen.nodes] = behaviour[:, seen.reported].T
    return found


def sent_reports(view: View, nodes: Tensor, values: Tensor) -> MessageBatch:
    """Return a message in which the observer sees ``values`` [R, C] of ``nodes`` [R]."""
    payload, splits = ClassReports(nodes, values.float()), torch.tensor([0, len(nodes)])
    client = torch.tensor([next((k for k in range(view.public.num_clients) if k not in view.observer.clients), 0)])
    if sees_deliveries(view):
        return MessageBatch(0, client, torch.tensor([SERVER]), payload, splits)
    return MessageBatch(0, torch.tensor([SERVER]), torch.tensor([view.observer.clients[0]]), payload, splits)


def without_edges(view: View, messages: MemoryMessages) -> View:
    """Return ``view`` with other ``messages``, no facts, and no edge that the observer knows."""
    public = dataclasses.replace(view.public, facts=())
    return dataclasses.replace(view, messages=messages, own=own_without_edges(view), public=public, topology=None)
