"""Label inference from GFL-APPNP's messages: predictions are visible, and local updates show the training label.

* The server holds every h_j and computes every C_k, so it has the logits ``z_k = A_kk h_k + C_k`` of all nodes, the
  predictions of the model, whose accuracy is the attack's. Where it does not know the edges, A_kk is taken to be the
  teleport probability alpha, its lower bound.
* A client that trains uploads its weights. Its gradient for the second layer is ``sum over steps of a (softmax(z) -
  onehot(y))'`` with non-negative a (activations, its own and its neighbours'), so the sum of each column of the update
  is positive for the label and negative for every other class (Zhao, Mopuri and Bilen 2020, for one label per client).
  This holds for any model and needs no accuracy.
* A client receives only ``C_k``: the prediction for its own neighbourhood. It is used for another node in proportion to
  the node's share A_kj, and is added in log odds to label propagation from the known labels.

Where a defense adds noise or rounds, predictions are averaged over the later rounds and their log odds shrunk by the
share of noise in them; updates count as far as they exceed the noise on them, and all of it is added to label
propagation. Scaling a change of the weights down changes no sign. Where a defense scales representations down to a
norm, predictions are averaged over the lengths that they may have had
(:mod:`fglaudit.attacks.jacobians.clipped_predictions`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.clipping import added_std
from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.adversary.known_labels import with_labels
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.modelled import about, fewer_edges, known_noise, sealed
from fglaudit.adversary.predicted_labels import label_product, prediction_power
from fglaudit.adversary.public_rules import noise_std
from fglaudit.attacks.jacobians.clipped_predictions import maybe_clipped, mean_prediction, scaling_clip
from fglaudit.attacks.jacobians.encoder import (
    common_model,
    encoder_shape,
    finite_batches,
    foreign_batches,
    global_models,
    misfit,
    never_sent,
)
from fglaudit.attacks.jacobians.hidden_history import grid_step
from fglaudit.attacks.jacobians.known_propagation import known_propagation, propagation_of
from fglaudit.attacks.jacobians.planting import plant_labels
from fglaudit.facts import GRADIENTS, ROWS, Additive, Clipped, Fact, KeptColumns, Randomised, Rounded, Sampled
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, HiddenRepresentations, ModelUpdate, Payload, PropagatedRepresentations
from fglaudit.structure import Models, Propagation
from fglaudit.view import View

_UNMOVED = 1e-6
"""Relative change of a client's second layer below which it did not train."""
_ABOVE_NOISE = 3.0
"""Standard deviations of the noise that an update's column must exceed to count."""
_PLAIN = 10.0
"""Standard deviations that a typical column counts where updates are as clients made them: above any prediction."""
_LATE = 0.5
"""Share of the rounds, the last ones, over which predictions with noise are averaged."""


@dataclass(frozen=True)
class LabelReading(Attack):
    """Infer labels from hidden representations, their propagated sums, and local updates."""

    name: ClassVar[str] = "label-reading"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HiddenRepresentations, PropagatedRepresentations, ModelUpdate)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"

    def models(self, fact: Fact) -> bool:
        """Noise, rounding and seals; clips of changes and of gradients, which keep signs; and whatever is done to rows,
        which are not read: the model that predicts was trained on what became of them. Clips of representations to a
        norm, which keep directions; not of single entries.
        """
        if fact.target == ROWS:
            return type(fact) in (Additive, Clipped, KeptColumns, Randomised)
        if fact.target == GRADIENTS:
            return type(fact) in (Clipped, Sampled)
        payloads = (HiddenRepresentations, PropagatedRepresentations, ModelUpdate)
        changes = isinstance(fact, Clipped) and fact.around == "received" and fact.norm != "elementwise"
        rounded = isinstance(fact, Rounded) and not about(fact, PropagatedRepresentations)
        down = about(fact, ModelUpdate) and not about(fact, ModelUpdate, direction="up") and common_model(fact)
        return (
            fewer_edges(fact)
            or sealed(fact, *payloads)
            or known_noise(fact, HiddenRepresentations, ModelUpdate)
            or never_sent(fact, ModelUpdate)
            or scaling_clip(fact)
            or down
            or (changes and about(fact, ModelUpdate))
            or (rounded and about(fact, *payloads))
        )

    def unsupported(self, view: View) -> str | None:
        sent = HiddenRepresentations if sees_deliveries(view) else PropagatedRepresentations
        return misfit(view, sent) or view.public.structure.missing(Propagation, Models)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        own = torch.tensor(view.observer.clients, dtype=torch.long)
        nodes = torch.arange(view.public.num_nodes)
        nodes = nodes[~torch.isin(nodes, own)]
        if not sees_deliveries(view):
            logits = _from_sums(view).log()
            scores = label_product(view, logits, nodes, prediction_power(view, logits))
        elif _hidden_error(view) > 0 or _update_error(view) > 0:
            scores = _through_noise(view)[nodes] + _propagated(view, nodes)
        else:
            clipped = maybe_clipped(view, _last_rounds(view, HiddenRepresentations), 0.0)
            own_part, sums = _parts(view)
            logits = own_part + sums
            if bool(clipped.any()):
                logits = mean_prediction(own_part, sums, clipped).log()
            trained, columns, _ = _update_columns(view)
            named = trained.nonzero().squeeze(1)
            told = with_labels(view, named, columns[named].argmax(1))
            scores = label_product(told, logits, torch.arange(len(logits)), prediction_power(told, logits))
            # A label that an update names outranks a prediction.
            scores[named] = 1 + columns[named].softmax(1)
            scores = scores[nodes]
        return Inference(self.quantity, nodes, scores.float())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_labels(view, rng)


def _hidden_error(view: View) -> float:
    """Return the standard deviation of the noise and rounding of an entry of a representation.

    The grid of a message follows from its range: a client knows that of its own ones.
    """
    noise = noise_std(view, HiddenRepresentations)
    for batch in finite_batches(view, HiddenRepresentations):
        (values,) = batch.payload.tensors().values()
        step = grid_step(view, values.double()[:, None])
        return math.hypot(noise, float((step.square().mean() / 6).sqrt().item()))
    return noise


def _update_error(view: View) -> float:
    """Return the standard deviation of the noise and rounding of an entry of an uploaded model."""
    for batch, vectors in foreign_batches(view, ModelUpdate):
        if not bool((batch.senders == SERVER).any()):
            return added_std(view, ModelUpdate, vectors, direction="up")
    return 0.0


def _propagated(view: View, nodes: Tensor) -> Tensor:
    """Return label propagation for ``nodes`` [n], from known labels alone, as log odds [n, C] up to a constant."""
    return propagate_labels(view, nodes).clamp(min=1e-6).log()


def _last_rounds(view: View, payload: type[Payload], share: float = 0.0) -> set[int]:
    """Return the last ``share`` of the rounds with messages of ``payload``, at least one of them."""
    rounds = sorted({batch.round for batch in finite_batches(view, payload)})
    return set(rounds[-max(1, round(share * len(rounds))) :])


def _late_means(
    view: View, payload: type[HiddenRepresentations] | type[PropagatedRepresentations], classes: int, share: float = 0.0
) -> tuple[Tensor, int]:
    """Return every node's mean values [N, C] in the last rounds, and the number of these rounds.

    Nodes without values get zeros.

    Args:
        share: of the rounds that are used; at least the last one.
    """
    values = torch.zeros(view.public.num_nodes, classes, dtype=torch.double)
    used = _last_rounds(view, payload, share)
    for batch in finite_batches(view, payload):
        if batch.round in used:
            body = batch.payload
            assert isinstance(body, HiddenRepresentations | PropagatedRepresentations)
            who = batch.senders if payload is HiddenRepresentations else batch.receivers
            values[who] += body.values.double()
    return values / max(1, len(used)), len(used)


def _through_noise(view: View) -> Tensor:
    """Return log odds [N, C] of labels, up to a constant, from predictions and updates with noise."""
    own_part, sums = _parts(view, _LATE)
    logits = own_part + sums
    spread = logits.var(1).mean()
    rounds = len({batch.round for batch in finite_batches(view, HiddenRepresentations)})
    error = _hidden_error(view) ** 2 / max(1.0, _LATE * rounds)
    shrunk = (spread - error).clamp(min=0) / spread.clamp(min=1e-30)
    clipped = maybe_clipped(view, _last_rounds(view, HiddenRepresentations, _LATE), _hidden_error(view))
    if bool(clipped.any()):
        scores = mean_prediction(shrunk * own_part, shrunk * sums, clipped).log()
    else:
        scores = (logits * shrunk).log_softmax(1)
    trained, columns, count = _update_columns(view)
    noise = _update_error(view)
    shape = encoder_shape(view)
    assert shape is not None
    size = (
        noise * (count[trained, None] * shape.hidden).sqrt()
        if noise > 0
        else columns[trained].square().mean().sqrt() / _PLAIN
    )
    signal = columns[trained] / torch.as_tensor(size).clamp(min=1e-30)
    scores[trained] += torch.where(signal.abs() > _ABOVE_NOISE, signal, 0.0)
    return scores


def _parts(view: View, share: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return every node's own part and its neighbours' of z [N, C] in the last round, or their means over the last
    ``share`` of the rounds."""
    shape = encoder_shape(view)
    assert shape is not None
    rule = view.public.structure.of(Propagation)
    own_weight = torch.full((view.public.num_nodes,), rule.alpha, dtype=torch.double)
    if view.topology is not None:
        own_weight = propagation_of(rule, view.topology, view.public.num_nodes).diagonal().double()
    hidden, _ = _late_means(view, HiddenRepresentations, shape.classes, share)
    return own_weight[:, None] * hidden, _late_means(view, PropagatedRepresentations, shape.classes, share)[0]


def _update_columns(view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Return which clients trained [N], sums of their updates' columns [N, C], and the number of updates [N].

    The sums are those of the second layer's changes, added over rounds.
    """
    shape = encoder_shape(view)
    assert shape is not None
    models = global_models(view)
    start = {round: torch.cat([m.w1.flatten(), m.w2.flatten()]) for round, m in models.items()}
    total = torch.zeros(view.public.num_nodes, shape.classes, dtype=torch.double)
    moved, count = torch.zeros(2, view.public.num_nodes, dtype=torch.double)
    first = shape.features * shape.hidden
    whole = view.public.structure.of(Models).upload == "weights"
    for batch, vectors in foreign_batches(view, ModelUpdate):
        if bool((batch.senders == SERVER).any()) or batch.round - 1 not in start:
            continue
        change = vectors[:, first:].double() - (start[batch.round - 1][first:] if whole else 0.0)
        total[batch.senders] += change.reshape(-1, shape.hidden, shape.classes).sum(1)
        count[batch.senders] += 1
        size = change.norm(dim=1) / start[batch.round - 1][first:].norm().clamp(min=1e-30)
        moved[batch.senders] = torch.maximum(moved[batch.senders], size)
    return moved > _UNMOVED, total, count


def _from_sums(view: View) -> Tensor:
    """Return class scores [N, C] from the sums that the observing clients received; even ones where they say nothing,
    since what is known beforehand is added later."""
    shape = encoder_shape(view)
    assert shape is not None
    even = torch.full((shape.classes,), 1 / shape.classes, dtype=torch.double)
    scores = even.repeat(view.public.num_nodes, 1)
    noise = _hidden_error(view)
    late = _LATE if noise > 0 else 0.0
    sums, count = _late_means(view, PropagatedRepresentations, shape.classes, late)
    if noise > 0:  # of a sum of messages whose weights add up to one at most
        sums = sums / (1 + noise**2 / count)
    # Others' messages are not seen: they count as clipped where the receiver's own ones may have been.
    clipped = maybe_clipped(view, _last_rounds(view, HiddenRepresentations, late), noise)
    strongest = torch.zeros(view.public.num_nodes, dtype=torch.double)
    for client in view.own:
        weights = known_propagation(view, client)
        if weights is None:
            weights = torch.zeros(view.public.num_nodes)
            weights[client.remote_nodes] = 1.0
        share = weights.double() / weights.max().clamp(min=1e-30)
        closer = share > strongest
        here = sums[client.client]
        if bool(clipped[client.nodes].any()):
            predicted = mean_prediction(torch.zeros_like(here)[None], here[None], clipped[client.nodes][:1])[0]
        else:
            predicted = here.softmax(0)
        mixed = share[:, None] * predicted + (1 - share[:, None]) * even
        scores = torch.where(closer[:, None], mixed, scores)
        strongest = torch.maximum(strongest, share)
    return scores
