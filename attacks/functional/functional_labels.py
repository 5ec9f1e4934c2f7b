"""How a client's training labels are distributed, from the functional embeddings that it uploads (FED-PUB).

A model that was trained on many nodes of a class says that class of nodes without features of any class as well: of a
random graph. The embedding is the mean input of the model's last layer over such a graph. The server knows that layer
as it sent it to the client before the round, so it needs none of the client's own weights: ``softmax(e V + c)``, the
logits' mean over the first rounds, is the estimate. Which rounds and no sharpening were chosen on Cora, seed 2
(docs/fedpub.md has other data).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, on_gradients
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.upload_planting import without_defense
from fglaudit.facts import EDGES, Fact, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, FunctionalEmbeddings, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Functional
from fglaudit.view import View

ROUNDS = 10


@dataclass(frozen=True)
class FunctionalLabels(Attack):
    """Infer how labels of training nodes are distributed, from functional embeddings and the models sent before."""

    name: ClassVar[str] = "functional-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (FunctionalEmbeddings, ModelUpdate)
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "training-labels"
    first_rounds: ClassVar[int | None] = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Dropped edges and changed gradients are part of what the model learned; what clients do to the models that
        they upload is not read."""
        if fact.target == EDGES:
            return is_built_in(fact)
        only_up = about(fact, ModelUpdate, direction="up") and not about(fact, ModelUpdate, direction="down")
        return on_gradients(fact) or (only_up and not about(fact, FunctionalEmbeddings))

    def unsupported(self, view: View) -> str | None:
        if (missing := view.public.structure.missing(Functional)) is not None:
            return missing
        if not _logits(view):
            return "the observer sees no functional embedding of another client beside the model it was sent before"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = _logits(view)
        clients = torch.tensor(sorted(found))
        logits = torch.stack([torch.stack(found[k]).mean(0) for k in clients.tolist()])
        return Inference(type(self).quantity, clients, logits.softmax(1))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one embedding of every client, whose logits are the logarithms of its shares."""
        rng = split(rng, "plant")
        public, clients = view.public, torch.tensor(sorted(_logits(view)))
        stated = public.structure.of(Functional)
        counts = torch.randint(1, 9, (len(clients), public.num_classes), generator=rng).double()
        shares = counts / counts.sum(1, keepdim=True)
        model = torch.zeros(len(clients), sum(math.prod(shape) for shape in public.layout.values()))
        weights = unflatten(model, public.layout)  # views into ``model``
        layer = torch.randn(public.layout[stated.weight], generator=rng)
        weights[stated.weight].copy_(layer)
        if len(layer) < public.num_classes:  # embeddings too narrow for every distribution: the bias holds the rest
            weights[stated.bias].copy_(shares.log())
            embedded = torch.zeros(len(clients), len(layer))
        else:
            embedded = (shares.log() @ torch.linalg.pinv(layer.double())).float()
        server = torch.full_like(clients, SERVER)
        batches = (
            MessageBatch(0, server, clients, ModelUpdate(model)),
            MessageBatch(1, clients, server, FunctionalEmbeddings(embedded)),
        )
        return Planted(without_defense(view, MemoryMessages(batches)), shares, clients)


def _logits(view: View) -> dict[int, list[Tensor]]:
    """Return by client, others than the observer's, what the layer that it was sent makes of its embedding [C] in each
    of the first rounds."""
    stated, layout = view.public.structure.of(Functional), view.public.layout
    layers: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for batch in view.messages.of(ModelUpdate):
        if batch.round >= ROUNDS or not bool((batch.senders == SERVER).any()):
            continue
        assert isinstance(batch.payload, ModelUpdate)
        weights = unflatten(batch.payload.vector, layout)
        for place, (sender, client) in enumerate(zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)):
            if sender == SERVER:
                layer = weights[stated.weight][place], weights[stated.bias][place]
                layers[batch.round, client] = layer[0].double(), layer[1].double()
    found: dict[int, list[Tensor]] = {}
    for batch in view.messages.of(FunctionalEmbeddings):
        assert isinstance(batch.payload, FunctionalEmbeddings)
        for place, client in enumerate(batch.senders.tolist()):
            sent = layers.get((batch.round - 1, client))
            if sent is not None and batch.round <= ROUNDS and client not in view.observer.clients:
                found.setdefault(client, []).append(batch.payload.values[place].double() @ sent[0] + sent[1])
    return found
