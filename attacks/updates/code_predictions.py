"""Labels of all nodes from the last model of a classifier over public codes and reports.

The inputs of ``structure-only`` and ``private-reports`` are propagated codes and reports, which whoever knows the edges
computes (:class:`fglaudit.structure.Codes`, :class:`fglaudit.structure.Reports`), beside features that stay at home.
The model is linear, so that its weights on the former alone predict a label of every node, with a zero in place of what
is not known: nobody needs to ask the clients. What it was trained on names labels beside that: of training nodes
(:mod:`fglaudit.attacks.updates.code_gradients`, where its changes show them), and what label propagation makes of all
known labels over the edges. The two are multiplied (:mod:`fglaudit.adversary.predicted_labels`).

What is observed: every client receives the model. The server is sent all reports, a client those of its remote
neighbours.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import own_nodes, own_without_edges, sees_deliveries
from fglaudit.adversary.known_labels import known_labels, with_labels
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.predicted_labels import label_product, only_labels, prediction_power
from fglaudit.adversary.reported_classes import seen_reports
from fglaudit.attacks.updates.code_gradients import KEPT, code_gradients, code_inputs, propagated, unreadable_codes
from fglaudit.facts import EDGES, Fact, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, ClassReports, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Codes, Models, Reports
from fglaudit.view import View

_POWERS = (0.0, 0.5, 1.0, 2.0)
"""On the model's probabilities: it has trained to the end."""
_PLANTED = 64
"""Nodes of the self-test at most."""


@dataclass(frozen=True)
class CodePredictions(Attack):
    """Infer labels from what the last model predicts by inputs that are known."""

    name: ClassVar[str] = "code-predictions"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"
    first_rounds: ClassVar[int | None] = KEPT
    last_rounds: ClassVar[int | None] = 1

    @classmethod
    def last_round(cls, payload: type[Payload]) -> int | None:
        return None if payload is ClassReports else cls.first_rounds

    def models(self, fact: Fact) -> bool:
        """The model and the reports are read as they came, as the clients read them, over the edges of the graph."""
        return is_built_in(fact) and fact.target != EDGES

    def unsupported(self, view: View) -> str | None:
        stated, public = view.public.structure, view.public
        if missing := stated.missing(Models, Codes):
            return missing
        if not _columns(view):
            return "no public codes and no reports are among the inputs of the models"
        if view.topology is None:
            return "inputs are propagated over the whole graph, of which the observer does not know the edges"
        if [shape[1:] for shape in public.layout.values()] != [(public.num_classes,)]:
            return "models are no linear classifiers of their inputs"
        if stated.of(Models).upload != "weights":
            return "models are uploaded as changes"
        return None if _last_model(view) is not None else "the observer sees no model"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        logits = _logits(view, device)
        others = (~own_nodes(view)).nonzero().squeeze(1)
        power = prediction_power(view, logits, _POWERS, parts=2)
        return Inference(self.quantity, others, label_product(_with_found(view, device), logits, others, power))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant a model that knows the labels of some nodes, in a graph without an edge, where every node's input is
        its own code and report."""
        rng, public = split(rng, "plant"), view.public
        n, classes = public.num_nodes, public.num_classes
        bare = _without_edges(view)
        labelled, known = known_labels(view)
        y = torch.randint(classes, (n,), generator=rng)
        y[labelled] = known
        strange = ~own_nodes(view)
        strange[labelled] = False
        nodes = (strange if bool(strange.any()) else ~own_nodes(view)).nonzero().squeeze(1)
        most = min(_PLANTED, _most(view))
        nodes = nodes[torch.randperm(len(nodes), generator=rng)]
        if Reports not in _columns(view):
            # Labels that are known say how far to trust the model: it was taught those too, as in training.
            told = torch.unique(labelled[~torch.isin(labelled, nodes)])
            told = told[torch.randperm(len(told), generator=rng)[: most // 2]]
            bare = only_labels(bare, told, y[told])
        else:
            told = labelled[:0]
        nodes = nodes[: most - len(told)].sort().values
        (name, shape), columns = next(iter(public.layout.items())), _columns(view)
        model = torch.zeros(1, math.prod(shape))
        weight, batches = unflatten(model, public.layout)[name][0], list[MessageBatch]()
        receiver = torch.tensor([view.observer.clients[0] if view.observer.clients else 0])
        server, ends = torch.tensor([SERVER]), torch.tensor([0, n])
        if Reports in columns:
            each = len(public.structure.of(Reports).read_after)
            weight[columns[Reports]] = 20 * torch.eye(classes).repeat(each, 1)
            said = ClassReports(torch.arange(n), one_hot(y, classes).float())
            ways = (receiver, server) if sees_deliveries(view) else (server, receiver)
            batches.append(MessageBatch(0, *ways, said, ends))
        else:
            taught = torch.cat([nodes, told])
            codes = code_inputs(bare, torch.device("cpu"))[taught]
            wanted = 20 * one_hot(y[taught], classes).double()
            weight[columns[Codes]] = torch.linalg.lstsq(codes, wanted, driver="gelsd").solution.float()
        batches.append(MessageBatch(1, server, receiver, ModelUpdate(model)))
        planted = dataclasses.replace(bare, messages=MemoryMessages(tuple(batches)))
        return Planted(planted, y[nodes], nodes)


def _without_edges(view: View) -> View:
    """Return ``view`` without facts, of a graph that has no edge."""
    public, none = dataclasses.replace(view.public, facts=()), torch.empty(2, 0, dtype=torch.long)
    return dataclasses.replace(view, own=own_without_edges(view), topology=none, public=public)


def _columns(view: View) -> dict[type[Codes] | type[Reports], slice]:
    """Return which inputs of the models codes are and which reports, as far as any are."""
    codes, reports = view.public.structure.of(Codes), view.public.structure.get(Reports)
    found: dict[type[Codes] | type[Reports], slice] = {}
    if codes.width and codes.read_after:
        found[Codes] = slice(codes.inputs_from, codes.inputs_from + codes.width * len(codes.read_after))
    if reports is not None and reports.read_after:
        found[Reports] = slice(0, reports.classes * len(reports.read_after))
    return found


def _most(view: View) -> int:
    """Return of how many nodes a model can be planted that knows their labels: without edges all steps give one code a
    node."""
    return view.public.num_nodes if Reports in _columns(view) else view.public.structure.of(Codes).width


def _last_model(view: View) -> Tensor | None:
    """Return the last model [D] that the server sent, else the mean of the last ones that it was sent; None if the
    observer sees neither."""
    last = None
    for batch in view.messages.of(ModelUpdate):
        assert isinstance(batch.payload, ModelUpdate)
        sent = batch.senders == SERVER
        if bool(sent.any()):
            last = batch.payload.vector[sent][0]
        elif sees_deliveries(view):
            last = batch.payload.vector.mean(0)
    return last


def _logits(view: View, device: torch.device) -> Tensor:
    """Return what the last model makes of every node's known inputs [N, C]."""
    model, columns = _last_model(view), _columns(view)
    assert model is not None
    weight = unflatten(model.double().unsqueeze(0), view.public.layout)[next(iter(view.public.layout))][0].to(device)
    logits = weight.new_zeros(view.public.num_nodes, weight.shape[1])
    if Codes in columns:
        logits += code_inputs(view, device) @ weight[columns[Codes]]
    if Reports in columns:
        stated, seen = view.public.structure.of(Reports), seen_reports(view)
        rows = torch.zeros(view.public.num_nodes, stated.classes, dtype=torch.double)
        rows[seen.nodes] = one_hot(seen.reported, stated.classes).double() - 1 / stated.classes
        rows = propagated(view, rows.to(device), stated.read_after)
        logits += stated.weight * rows @ weight[columns[Reports]]
    return logits.cpu()


def _with_found(view: View, device: torch.device) -> View:
    """Return ``view`` with the labels known that changes of models show, where they can be read."""
    if unreadable_codes(view) is not None:
        return view
    return with_labels(view, *code_gradients(view, device).labels())
