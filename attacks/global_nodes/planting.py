"""Self-test problems for attacks on FedGT's global nodes: one round in which every upload shows the answer directly."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.upload_planting import without_defense
from fglaudit.adversary.uploads import codebooks
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.payloads import SERVER, GlobalNodes, MessageBatch, ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View

Move = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From models [K, D] and global nodes [K, g, d], as received, to the global nodes uploaded and the answer."""


def planted_rounds(
    view: View, rng: torch.Generator, move: Move, changes: Callable[[Tensor], Tensor] = torch.zeros_like
) -> tuple[View, Tensor]:
    """Return a view of one round, and the answer.

    Args:
        changes: makes the clients' model updates [K, D] of the models they received; none by default.
    """
    seen = codebooks(view, 1)
    clients, (_, count, width) = seen.clients, seen.uploaded.shape[1:]
    first = initial_model(view.public.layout, split(rng, "model")).expand(len(clients), -1)
    centers = torch.randn(count, width, generator=split(rng, "centers")).expand(len(clients), -1, -1)
    uploaded, answer = move(first, centers)
    server = torch.full_like(clients, SERVER)
    batches = (
        MessageBatch(0, server, clients, ModelUpdate(first)),
        MessageBatch(0, server, clients, GlobalNodes(centers)),
        MessageBatch(1, clients, server, ModelUpdate(changes(first))),
        MessageBatch(1, clients, server, GlobalNodes(uploaded)),
    )
    return without_defense(view, MemoryMessages(batches)), answer
