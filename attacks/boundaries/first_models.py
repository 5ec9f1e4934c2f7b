"""The models that the server sent in the first rounds, by round, as weights."""

from __future__ import annotations

from torch import Tensor

from fglaudit.adversary.server_models import server_models
from fglaudit.nn.weights import unflatten
from fglaudit.view import View


def first_models(view: View, rounds: int) -> dict[int, dict[str, Tensor]]:
    """Return the weights of the models sent in rounds 0 to ``rounds - 1``, by round and by name."""
    models = dict[int, dict[str, Tensor]]()
    for round, model in server_models(view):
        if round < rounds:
            weights = unflatten(model.unsqueeze(0), view.public.layout)
            models.setdefault(round, {name: weight[0] for name, weight in weights.items()})
    return models
