"""Label inference from GFL-APPNP's messages: predictions lie in the open, and local updates name the label they were trained on.

* The server holds every h_j and computes every C_k, so it has the logits ``z_k = A_kk h_k + C_k`` of all nodes: what the model
  predicts, whose accuracy is the attack's. Where it does not know the edges, A_kk is the teleport probability alpha, its lower
  bound.
* A client that trains uploads its weights. Its gradient for the second layer is ``sum over steps of a (softmax(z) -
  onehot(y))'`` with non-negative a (activations, its own and its neighbours'), so the sum of each column of the update is
  positive for the label and negative for every other class (Zhao, Mopuri and Bilen 2020, for one label per client). This holds
  for any model and needs no accuracy.
* A client receives only ``C_k``: the prediction for its own surroundings. It stands for other nodes as far as their share A_kj
  in it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks._encoder import encoder_shape, foreign_batches, global_models, misfit
from fglaudit.attacks._encoder_planting import plant_labels
from fglaudit.attacks._propagation import known_propagation
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.node_clients import personalised_propagation
from fglaudit.payloads import SERVER, HiddenRepresentations, ModelUpdate, Payload, PropagatedRepresentations
from fglaudit.view import View

_UNMOVED = 1e-6
"""Relative change of a client's second layer below which it did not train."""


@dataclass(frozen=True)
class LabelReading(Attack):
    """Infer labels from hidden representations, their propagated sums, and local updates."""

    name: ClassVar[str] = "label-reading"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HiddenRepresentations, PropagatedRepresentations, ModelUpdate)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"

    def unsupported(self, view: View) -> str | None:
        return misfit(view, HiddenRepresentations if _sees_uploads(view) else PropagatedRepresentations)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        own = torch.tensor(view.observer.clients, dtype=torch.long)
        if not _sees_uploads(view):
            scores = _from_sums(view)
        else:
            scores = _logits(view).softmax(1)
            trained, columns = _update_columns(view)
            # A label that an update names outranks a prediction.
            scores[trained] = 1 + columns[trained].softmax(1)
        nodes = torch.arange(view.public.num_nodes)
        nodes = nodes[~torch.isin(nodes, own)]
        return Inference(self.quantity, nodes, scores[nodes].float())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_labels(view, rng)


def _sees_uploads(view: View) -> bool:
    return view.observer.wire or SERVER in view.observer.parties


def _last(view: View, payload: type[HiddenRepresentations] | type[PropagatedRepresentations], classes: int) -> Tensor:
    """Return every node's values [N, C] in the last round in which any came; zeros for nodes without."""
    values = torch.zeros(view.public.num_nodes, classes, dtype=torch.double)
    last = max((batch.round for batch in view.messages.of(payload)), default=None)
    for batch in view.messages.of(payload):
        if batch.round == last:
            body = batch.payload
            assert isinstance(body, HiddenRepresentations | PropagatedRepresentations)
            who = batch.senders if payload is HiddenRepresentations else batch.receivers
            values[who] = body.values.double()
    return values


def _logits(view: View) -> Tensor:
    """Return z [N, C] of the last round."""
    shape = encoder_shape(view)
    assert shape is not None
    facts = view.public.hyperparameters
    alpha, steps = float(facts["alpha"]), int(facts["propagation_steps"])
    own_weight = torch.full((view.public.num_nodes,), alpha, dtype=torch.double)
    if view.topology is not None:
        own_weight = personalised_propagation(view.topology, view.public.num_nodes, alpha, steps).diagonal().double()
    hidden = _last(view, HiddenRepresentations, shape.classes)
    return own_weight[:, None] * hidden + _last(view, PropagatedRepresentations, shape.classes)


def _update_columns(view: View) -> tuple[Tensor, Tensor]:
    """Return which clients trained [N] and the column sums of their second layers' changes, added over rounds [N, C]."""
    shape = encoder_shape(view)
    assert shape is not None
    models = global_models(view)
    start = {round: torch.cat([m.w1.flatten(), m.w2.flatten()]) for round, m in models.items()}
    total = torch.zeros(view.public.num_nodes, shape.classes, dtype=torch.double)
    moved = torch.zeros(view.public.num_nodes, dtype=torch.double)
    cut = shape.features * shape.hidden
    for batch, vectors in foreign_batches(view, ModelUpdate):
        if bool((batch.senders == SERVER).any()) or batch.round - 1 not in start:
            continue
        change = vectors[:, cut:].double() - start[batch.round - 1][cut:]
        total[batch.senders] += change.reshape(-1, shape.hidden, shape.classes).sum(1)
        size = change.norm(dim=1) / start[batch.round - 1][cut:].norm().clamp(min=1e-30)
        moved[batch.senders] = torch.maximum(moved[batch.senders], size)
    return moved > _UNMOVED, total


def _from_sums(view: View) -> Tensor:
    """Return class scores [N, C] from the sums that the observing clients received."""
    shape = encoder_shape(view)
    assert shape is not None
    known = view.known_rows()
    y = known.y.flatten()
    prior = torch.bincount(y[y >= 0], minlength=shape.classes).double() + 1
    scores = (prior / prior.sum()).repeat(view.public.num_nodes, 1)
    sums = _last(view, PropagatedRepresentations, shape.classes)
    strongest = torch.zeros(view.public.num_nodes, dtype=torch.double)
    for client in view.own:
        weights = known_propagation(view, client)
        if weights is None:
            weights = torch.zeros(view.public.num_nodes)
            weights[client.remote_nodes] = 1.0
        share = weights.double() / weights.max().clamp(min=1e-30)
        closer = share > strongest
        mixed = share[:, None] * sums[client.client].softmax(0) + (1 - share[:, None]) * (prior / prior.sum())
        scores = torch.where(closer[:, None], mixed, scores)
        strongest = torch.maximum(strongest, share)
    return scores
