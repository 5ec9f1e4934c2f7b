"""Changes of the input layer's weights, as sums of gradients: what one client's uploads over several rounds add up to.

The gradient of the input layer's weights [F, H] (of a layer that reads other inputs too: of those that features meet)
is ``S' D``: S [R, F] are the rows that the layer reads, D [R, H] the
gradients at its outputs. After L steps of SGD with rate eta and weight decay lambda a weight W has become

    (1 - eta lambda)^L W - eta sum over steps l of (1 - eta lambda)^(L - l) S' D_l,

so that, the decay of W subtracted, every column of a change lies in the span of the rows of S: whatever the number of
steps, and with dropout after the layer too. S is the same in all rounds; the changes of several rounds, side by side,
are ``S' [D_1 ... D_T]``, a matrix of rank up to T H. The mean of several clients' models is of the same form, with the
rows of all of them.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import encoding_error, model_noise_std, sent_models
from fglaudit.adversary.uploads.means import EVERYBODY, ModelRound, others_means
from fglaudit.facts import GRADIENTS, Additive
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import ModelUpdate
from fglaudit.structure import Models, Training
from fglaudit.view import View

_ROUNDING = 2.0**-24
"""Largest relative error of one rounding to float32."""


@dataclass(frozen=True)
class InputChange:
    """What one client's uploads show of its input layer.

    Attributes:
        client: who it is, or :data:`EVERYBODY`.
        change: of the weights over T rounds, without weight decay [F, T H]: ``-eta S' D``, plus errors.
        error: standard deviation of these errors.
        rounds: models received and their changes, round by round [1, D].
    """

    client: int
    change: Tensor
    error: float
    rounds: tuple[ModelRound, ...]


class InputLayer(NamedTuple):
    """The first layer's weights and, of their rows, the first that reads a feature: from there on all F do."""

    name: str
    start: int


def input_layer(view: View) -> InputLayer | None:
    """Return the first layer, None where it is not known which of its weights read the features."""
    stated = view.public.structure.get(Models)
    start = 0 if stated is None else stated.features_from
    name, shape = next(iter(view.public.layout.items()), ("", ()))
    return InputLayer(name, start) if len(shape) == 2 and shape[0] == start + view.public.num_features else None


@once_per_view
def input_changes(view: View, most: int) -> tuple[InputChange, ...]:
    """Return what each client that uploads shows in its first ``most`` rounds; where the observer sees no upload of a
    single client, what the global models show of all others."""
    layer = input_layer(view)
    assert layer is not None
    return first_layer_changes(view, most, layer.start)


def first_layer_changes(view: View, most: int, low: int, high: int | None = None) -> tuple[InputChange, ...]:
    """Return :func:`input_changes` of the first layer's weights from row ``low`` up to ``high``, whatever they meet."""
    rounds: dict[int, list[ModelRound]] = {}
    for clients, models in sent_models(view, most):
        for place, client in enumerate(clients.tolist()):
            rounds.setdefault(client, []).append(models.one(place))
    if not rounds:
        rounds[EVERYBODY] = [models for _, models in others_means(view, most)]
    rows = slice(low, high)
    return tuple(_change(view, client, found, rows) for client, found in sorted(rounds.items()) if found)


def _change(view: View, client: int, rounds: list[ModelRound], rows: slice) -> InputChange:
    name = next(iter(view.public.layout))
    stated, parts, errors = view.public.structure.of(Training), [], []
    left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
    for models in rounds:
        weight = unflatten(models.received.double(), view.public.layout)[name][0][rows]
        change = unflatten(models.change.double(), view.public.layout)[name][0][rows]
        decay = left - 1
        if decay and _clipped(view):  # a clip scales the decay too: most words occur at no row, and show it
            shown = change[weight != 0] / weight[weight != 0]
            decay = float(shown.median().item())
        parts.append(change - decay * weight)
        rounding = (stated.local_steps + 1) ** 0.5 * _ROUNDING * float(weight.abs().max().item()) * models.spread
        errors.append(max(model_noise_std(view, models), rounding, encoding_error(view)))
    stacked = torch.cat(parts, 1)
    error = statistics.mean(errors)
    if any(isinstance(fact, Additive) and fact.target == GRADIENTS for fact in view.public.facts):
        # How many losses a client's noise is divided by is not known; rows of words that occur nowhere show it.
        error = max(error, float(stacked.square().mean(1).sqrt().quantile(0.2).item()))
    return InputChange(client, stacked, error, tuple(rounds))


def input_weights(view: View, model: Tensor) -> Tensor:
    """Return the weights [F, H] of ``model`` [1, D] that features meet in the first layer, in double precision."""
    layer = input_layer(view)
    assert layer is not None
    return unflatten(model.double(), view.public.layout)[layer.name][0][layer.start :]


def _clipped(view: View) -> bool:
    return UploadClip.of(view, ModelUpdate).length is not None


def unreadable_layer(view: View) -> str | None:
    """Return why changes of the input layer are no sums of gradients, or None."""
    if input_layer(view) is None:
        return "it is not stated which of the first weights of this protocol's models read the features"
    return unreadable_steps(view)


def unreadable_steps(view: View) -> str | None:
    """Return why changes of models are no sums of gradients, or None."""
    stated = view.public.structure.get(Training)
    if stated is None:
        return Training.missing()
    if stated.optimizer != "sgd":
        return f"updates are read as sums of gradients; these clients step with {stated.optimizer}"
    if stated.local_steps == 0 and stated.weight_decay:
        return "weight decay is subtracted step by step; how many steps a client takes is not stated"
    for field, value in (("momentum", stated.momentum), ("proximal", stated.proximal)):
        if value and stated.weight_decay:
            return f"weight decay is subtracted as of plain steps; these have {field} {value:g}"
    if stated.feature_dropout:
        return "clients drop features afresh in every step, so that steps read different rows"
    return None
