"""Self-test problems for attacks on FedGT's uploads: one round in which every upload shows the answer directly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads import sending_clients
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.rng import split
from fglaudit.structure import Models
from fglaudit.view import View


def without_defense(view: View, messages: MemoryMessages) -> View:
    """Return ``view`` with these messages, all of them in the clear."""
    structure = view.public.structure.replace(Models, upload="changes")
    public = dataclasses.replace(view.public, defense="none", defense_parameters={}, noise={}, structure=structure)
    return dataclasses.replace(view, messages=messages, public=public)


def planted_updates(view: View, rng: torch.Generator, changes: Callable[[Tensor], Tensor]) -> View:
    """Return a view of one round of model updates, which ``changes`` computes from the received models [K, D]."""
    clients = sending_clients(view, ModelUpdate)
    first = initial_model(view.public.layout, split(rng, "model")).expand(len(clients), -1)
    server = torch.full_like(clients, SERVER)
    down = MessageBatch(0, server, clients, ModelUpdate(first))
    up = MessageBatch(1, clients, server, ModelUpdate(changes(first)))
    return without_defense(view, MemoryMessages((down, up)))
