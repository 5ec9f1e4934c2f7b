"""How a client's training labels are distributed, from the functional embeddings that it uploads (FED-PUB).

A model that was trained on many nodes of a class says that class of nodes without features of any class as well: of a
random graph. The embedding is the mean input of the model's last layer over such a graph. The server knows that layer
as it sent it to the client before the round, so it needs none of the client's own weights: ``softmax(e V + c)``, the
logits' mean over the first rounds, is the estimate. Which rounds and no sharpening were chosen on Cora, seed 2
(docs/fedpub.md has other data).

All clients but one see no embedding of the one, but have its weights
(:mod:`fglaudit.adversary.uploads.personal_averages`), and make the embedding themselves, of a random graph of their own
and without the masks, which stay at home; the uploaded layer then reads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, on_gradients
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.public_rules import stated as stated_facts
from fglaudit.adversary.uploads.held import others_upload, sending_clients, sent_models
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.functional.random_graph import functional_embeddings
from fglaudit.facts import EDGES, Fact, is_built_in
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, FunctionalEmbeddings, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import copied, split
from fglaudit.structure import Functional, Models
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
        if not _clients(view):
            return "the observer sees no functional embedding of another client beside the model it was sent before"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = _logits(view) or _logits_of_models(view, split(rng, "random graph"))
        clients = torch.tensor(sorted(found))
        logits = torch.stack([torch.stack(found[k]).mean(0) for k in clients.tolist()])
        return Inference(type(self).quantity, clients, logits.softmax(1))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one embedding of every client, whose logits are the logarithms of its shares; where none is seen, a
        model that makes this embedding of every graph."""
        rng = split(rng, "plant")
        public, clients = view.public, torch.tensor(_clients(view))
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
        answer: Payload = FunctionalEmbeddings(embedded)
        if not _logits(view):
            after = model.clone()
            unflatten(after, public.layout)[stated.convolutions[-1] + ".bias"].copy_(embedded)
            answer = ModelUpdate(after if public.structure.of(Models).upload == "weights" else after - model)
        batches = MessageBatch(0, server, clients, ModelUpdate(model)), MessageBatch(1, clients, server, answer)
        return Planted(without_defense(view, MemoryMessages(batches)), shares, clients)


def _clients(view: View) -> list[int]:
    """Return the clients whose embedding is seen, or else can be made, as what they upload follows from averages."""
    seen = sorted(_logits(view))
    made = view.public.structure.of(Functional).convolutions and not stated_facts(view, ModelUpdate)
    if seen or not made or not others_upload(view, ModelUpdate):
        return seen
    clients: list[int] = sending_clients(view, ModelUpdate).tolist()
    return clients


def _logits_of_models(view: View, rng: torch.Generator) -> dict[int, list[Tensor]]:
    """Return by client what its own last layer makes of the embedding of a random graph [C] in each round."""
    stated, layout = view.public.structure.of(Functional), view.public.layout
    found: dict[int, list[Tensor]] = {}
    for clients, models in sent_models(view, ROUNDS):
        whole = models.received + models.change
        embedded = functional_embeddings(whole, layout, stated.convolutions, split(copied(rng), "graph")).unsqueeze(1)
        weights = unflatten(whole, layout)
        logits = (embedded @ weights[stated.weight]).squeeze(1) + weights[stated.bias]
        for client, each in zip(clients.tolist(), logits.double(), strict=True):
            found.setdefault(client, []).append(each)
    return found


def _logits(view: View) -> dict[int, list[Tensor]]:
    """Return by client, others than the observer's, what the layer that it was sent makes of its embedding [C] in each
    of the first rounds."""
    stated, layout = view.public.structure.of(Functional), view.public.layout
    layers: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for batch, models in view.sent(ModelUpdate):
        if batch.round >= ROUNDS or not bool((batch.senders == SERVER).any()):
            continue
        weights = unflatten(models.vector, layout)
        for place, (sender, client) in enumerate(zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)):
            if sender == SERVER:
                layer = weights[stated.weight][place], weights[stated.bias][place]
                layers[batch.round, client] = layer[0].double(), layer[1].double()
    found: dict[int, list[Tensor]] = {}
    for batch, embeddings in view.sent(FunctionalEmbeddings):
        for place, client in enumerate(batch.senders.tolist()):
            sent = layers.get((batch.round - 1, client))
            if sent is not None and batch.round <= ROUNDS and client not in view.observer.clients:
                found.setdefault(client, []).append(embeddings.values[place].double() @ sent[0] + sent[1])
    return found
