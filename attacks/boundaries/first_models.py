"""The models that the server sent in the first rounds, by round, as weights."""

from __future__ import annotations

from torch import Tensor

from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.view import View


def first_models(view: View, rounds: int) -> dict[int, dict[str, Tensor]]:
    """Return the weights of the models sent in rounds 0 to ``rounds - 1``, by round and by name."""
    models = dict[int, dict[str, Tensor]]()
    for sent in view.messages.of(ModelUpdate):
        if sent.round < rounds and bool((sent.senders == SERVER).any()):
            assert isinstance(sent.payload, ModelUpdate)
            place = int((sent.senders == SERVER).nonzero()[0].item())
            weights = unflatten(sent.payload.vector[place : place + 1], view.public.layout)
            models.setdefault(sent.round, {name: weight[0] for name, weight in weights.items()})
    return models
