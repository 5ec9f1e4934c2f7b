"""Gradients of every example's loss for K clients at once, and their mean after a defense.

``torch.func.vjp`` runs the model forward once for all clients and examples; ``torch.func.vmap`` over the examples then
computes the gradient of each. No loss depends on another client's weights, so one backward pass serves one example of
every client.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.interfaces import LocalUpdate

NUMBERS_AT_ONCE = 2**21
"""Entries of gradients computed together: more do not fit a processor's cache and are several times slower."""


def example_gradients(losses: Callable[[Tensor], Tensor], models: Tensor) -> Tensor:
    """Return the gradients of all examples' losses [E, K, D].

    Args:
        losses: maps models [K, D] to losses [K, E], row k of model k alone.
        models: [K, D].
    """
    values, backward = torch.func.vjp(losses, models.detach())  # type: ignore[misc]
    examples = values.shape[1]
    each = torch.eye(examples, dtype=values.dtype, device=values.device).unsqueeze(1).expand(-1, len(values), -1)
    size = max(1, NUMBERS_AT_ONCE // models.numel())
    gradients: Tensor = torch.func.vmap(lambda direction: backward(direction)[0], chunk_size=size)(each)
    return gradients


def private_mean(losses: Callable[[Tensor], Tensor], models: Tensor, present: Tensor, update: LocalUpdate) -> Tensor:
    """Return each client's mean gradient [K, D] after the defense's ``update``; 0 for a client without examples.

    Args:
        losses: maps models [K, D] to losses [K, E], row k of model k alone.
        models: [K, D].
        present: which examples are real [K, E]. How many a client has is public.
    """
    gradients = example_gradients(lambda vectors: losses(vectors) * present, models)
    count = present.sum(1).unsqueeze(1)
    return torch.where(count > 0, update(gradients) / count.clamp(min=1), 0.0)
