"""GFL-APPNP's encoder ``h(x) = relu(x W1) W2``, its Jacobian, and the mixtures of rows in the Jacobian.

With ``G[h] = mean over samples s of 1[x_s W1[:, h] > 0] x_s`` the Jacobian of a node's representation is (section 3.3
of the paper; the layout of the parameter vector is public)

    dh[c] / dW1[f, h] = W2[h, c] G[h, f],        dh[c] / dW2[h, c'] = 1[c = c'] mean_s relu(x_s W1)[h].

Everybody receives the weights with every round's model, so G can be solved for: the classes are C measurements of it
with weights W2[h, .]. dC_k is the same linear map of ``sum over j of A_kj G_j``. Rounding, a stated noise (V1's, a
defense's) and clipping carry over to G.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, fewer_edges
from fglaudit.adversary.public_rules import noise_std, sealing_on, unused_columns
from fglaudit.adversary.server_models import server_models
from fglaudit.facts import (
    GRADIENTS,
    Absent,
    Additive,
    Clipped,
    Correlated,
    Fact,
    Field,
    Memoised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
)
from fglaudit.payloads import (
    SERVER,
    HiddenRepresentations,
    Jacobians,
    MessageBatch,
    ModelUpdate,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
    is_repeated,
)
from fglaudit.structure import Encoder
from fglaudit.view import View

_Values = HiddenRepresentations | Jacobians | PropagatedRepresentations | PropagatedJacobians | ModelUpdate
P = TypeVar("P", bound=_Values)
_OF_TRAINING = (Absent, Additive, Clipped, Correlated, Memoised, Rounded, Sampled, Scaled, Sealed)
_ROUNDING = 4 * torch.finfo(torch.float32).eps
"""Rounding error of an entry of G, relative to the largest entry of its row: sums of some hundred terms stay below."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the encoder: features F, hidden units H, classes C."""

    features: int
    hidden: int
    classes: int

    @property
    def parameters(self) -> int:
        return self.hidden * (self.features + self.classes)


@dataclass(frozen=True)
class Model:
    """Weights of one round, float64.

    Attributes:
        w1: [F, H].
        w2: [H, C].
    """

    w1: Tensor
    w2: Tensor


def sealing_error(view: View, payload: type[Payload]) -> float:
    """Return the standard deviation of what opening a sealed message of ``payload`` adds: flooding, and an error of
    encoding that lies anywhere below its bound."""
    sealing = sealing_on(view, payload)
    return 0.0 if sealing is None else math.hypot(sealing.flooding, sealing.rounding / math.sqrt(3))


def untouched(fact: Fact) -> bool:
    """Whether ``fact`` cannot touch what a node sends of its encoder, given the model that it received.

    The encoder reads the node's own row alone, and the server adds with weights of the whole graph, whatever edges
    clients drop. What is done to gradients and to uploaded models matters only by the next model, which is known.
    """
    uploads = isinstance(fact.target, Field) and fact.target == Field(ModelUpdate.__name__, fact.target.name, "up")
    return fewer_edges(fact) or (type(fact) in _OF_TRAINING and (uploads or fact.target == GRADIENTS))


def never_sent(fact: Fact, *payloads: type[Payload]) -> bool:
    """Whether ``fact`` says that some clients never send messages of ``payloads``."""
    return isinstance(fact, Absent) and fact.share == 0 and about(fact, *payloads)


def common_model(fact: Fact) -> bool:
    """Whether ``fact`` is about the server's models and leaves every client with the model that the observer sees; for
    observers of all messages, :func:`misfit` has seen that clients receive the same."""
    return about(fact, ModelUpdate) and type(fact) in (Sealed, Additive, Rounded, Clipped)


def encoder_shape(view: View) -> Shape | None:
    """Return the sizes of the encoder, or None if the public layout is not a two-layer one without biases."""
    shapes = list(view.public.layout.values())
    if len(shapes) != 2 or any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][0]:
        return None
    return Shape(shapes[0][0], shapes[0][1], shapes[1][1])


def misfit(view: View, *needed: type[_Values]) -> str | None:
    """Return why messages of the kinds ``needed`` do not fit the public encoder, or None.

    The first message of each kind from another party is checked; the model must come with it.
    """
    shape = encoder_shape(view)
    if shape is None:
        found = ", ".join(f"{name} {tuple(sizes)}" for name, sizes in view.public.layout.items()) or "nothing"
        return (
            f"needs an encoder of two layers without biases (shapes [F, H] and [H, C]); the public layout has {found}"
        )
    if shape.features != view.public.num_features:
        return (
            f"the encoder reads {shape.features} features, the data have {view.public.num_features}: not a transcript"
            " of this run"
        )
    stated = view.public.structure.get(Encoder)
    if stated is not None and stated.samples != "all":
        return "representations are means over training samples alone, and which samples these are is not known"
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    expected: dict[type[Payload], tuple[int, ...]] = {ModelUpdate: (shape.parameters,)}
    for kind in needed:
        matrix = kind in (Jacobians, PropagatedJacobians)
        expected[kind] = (shape.classes, shape.parameters) if matrix else (shape.classes,)
    for payload, sizes in expected.items():
        batch = next((b for b in view.messages.of(payload) if bool((~torch.isin(b.senders, mine)).any())), None)
        if batch is None:
            return f"the observer received no {payload.__name__} from another party"
        values = next(iter(batch.payload.tensors().values()))
        if tuple(values.shape[1:]) != sizes:
            return (
                f"messages of {payload.__name__} have shape {tuple(values.shape[1:])}, the public layout of the encoder"
                f" makes it {sizes}; attack them with the layout they were recorded with"
            )
    stated = view.public.structure.get(Encoder)
    if stated is None:
        return Encoder.missing()
    if stated.activation != "relu":
        return f"an encoder with {stated.activation} is not modelled, and no sign of protection"
    return _unequal_models(view)


def _unequal_models(view: View) -> str | None:
    """Return that clients receive different models in a round, as far as the observer sees, or None."""
    for batch, vectors in foreign_batches(view, ModelUpdate):
        sent = vectors if is_repeated(vectors) else vectors[batch.senders == SERVER]
        if not is_repeated(sent) and len(sent) and not torch.equal(sent, sent[:1].expand_as(sent)):
            return (
                f"in round {batch.round} the server sends clients different models; the encoder is read with one that"
                " all of them have"
            )
    return None


def global_models(view: View, device: torch.device | None = None) -> dict[int, Model]:
    """Return the model that the server broadcast in each round, on ``device``."""
    shape = encoder_shape(view)
    assert shape is not None
    models: dict[int, Model] = {}
    unused = unused_columns(view)
    for round, model in server_models(view):
        if round in models:
            continue
        first, second = torch.split(model.double(), [shape.features * shape.hidden, shape.hidden * shape.classes])
        w1, w2 = first.view(shape.features, shape.hidden), second.view(shape.hidden, shape.classes)
        w1 = w1.masked_fill(unused[:, None], 0.0)  # entries that are zero in every row cannot matter
        models[round] = Model(w1.to(device), w2.to(device))
    return models


def finite_batches(view: View, payload: type[Payload]) -> Iterator[MessageBatch]:
    """Yield the batches of ``payload`` until one holds what is no number: from there the training has diverged."""
    for batch in view.messages.of(payload):
        if not all(bool(value.isfinite().all()) for value in batch.payload.tensors().values()):
            return
        yield batch


def foreign_batches(view: View, payload: type[P]) -> Iterator[tuple[MessageBatch, Tensor]]:
    """Yield the batches of ``payload`` with its values, without what the observing clients sent themselves."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    for batch in finite_batches(view, payload):
        kept = ~torch.isin(batch.senders, mine)
        if bool(kept.any()):
            part = batch.select(kept)
            body = part.payload
            assert isinstance(body, payload)
            yield part, body.vector if isinstance(body, ModelUpdate) else body.values


def jacobian_noise(view: View) -> float:
    """Return the standard deviation of the public noise on an entry of an uploaded Jacobian (V1's, a defense's)."""
    return math.hypot(view.public.structure.of(Encoder).noise, noise_std(view, Jacobians))


def unit_rows(jacobians: Tensor, model: Model) -> tuple[Tensor, Tensor]:
    """Return G [P, H, F] from ``jacobians`` [P, C, D], and its precision [H], computed in the Jacobians' data type.

    The noise on an entry of G has variance ``variance on the Jacobian / precision``.
    """
    features, hidden = model.w1.shape
    w2 = model.w2.to(jacobians)
    power = w2.square().sum(1)
    first = jacobians[:, :, : features * hidden].reshape(*jacobians.shape[:2], features, hidden)
    rows = torch.einsum("pcfh,hc->phf", first, w2 / power.clamp(min=1e-30)[:, None])
    return rows, power


def activations(jacobians: Tensor, model: Model) -> Tensor:
    """Return mean_s relu(x_s W1) [P, H], the diagonal of the second layer's block of ``jacobians`` [P, C, D]."""
    features, hidden = model.w1.shape
    second = jacobians[:, :, features * hidden :].reshape(*jacobians.shape[:2], hidden, -1)
    means: Tensor = second.diagonal(dim1=1, dim2=3).mean(2)
    return means


def rounding(rows: Tensor) -> Tensor:
    """Return the rounding error of an entry of every row of ``rows`` [..., F] -> [...]."""
    return _ROUNDING * rows.abs().amax(-1)
