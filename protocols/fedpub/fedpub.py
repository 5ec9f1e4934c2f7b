"""FED-PUB (Baek et al. 2023, arXiv:2206.10206): each client gets an average of the models that act like its own.

Clients train two graph convolutions and a linear layer on their own subgraphs, with masks on the weights that stay at
home. Each round a client uploads its weights and its *functional embedding*: what its model, masks and all, makes of a
public random graph, mean over the graph's nodes. The server returns to each client an average of all models, weighted
by ``softmax(tau S)``, S the cosines of functional embeddings (equations (4) and (5)).

What is observed: the server sees every client's weights and functional embedding in every round, and how the two
differ is the masks; a client sees averages, and all clients but one have the one's weights from theirs
(:mod:`fglaudit.adversary.uploads.personal_averages`). Masks never leave their client.

Facts from the authors' code (``JinheonBaek/FED-PUB``): 128 units, Adam at 0.01 with L2 penalty 1e-6, one full-batch
step a round, 100 rounds, dropout 0.5, tau 3 on Cora and 5 where clients overlap (10 by default), a random graph of 5
communities of 100 nodes with edges of probability 0.1 inside them and rows from N(0, 1), masks that start at 1. It
uploads the weights, not their products with the masks, and so does this protocol. Its two penalties (each 0.001) are
taken of detached copies (``state_dict``), so that they have no gradient: with ``sparsity: 0`` and ``proximal: 0``
training is as there, but for tests, which leave out entries of masks near 0. Its accuracies are those of the clients'
models after local training; the round with the best validation accuracy counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Release, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.fedavg import return_models, upload_models
from fglaudit.federated.sending import to_server
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.federated.subgraph_progress import Progress
from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.federated.subgraph_training import SubgraphModels
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.graph_transformer import Dropout, initial_model
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import Layout, unflatten
from fglaudit.payloads import FunctionalEmbeddings, ModelUpdate, Payload
from fglaudit.protocols.fedpub.full_graph import FullGraph, hidden, propagated, propagation, with_propagated_rows
from fglaudit.protocols.fedpub.personal_masks import PersonalMasks, with_masks
from fglaudit.rng import derive, split
from fglaudit.structure import Functional, Models, PersonalAverages, Structure, Training

COMMUNITIES, COMMUNITY_NODES, EDGE_PROBABILITY = 5, 100, 0.1
"""Of the random graph."""


@dataclass(frozen=True)
class FedPub(SubgraphProtocol):
    """FED-PUB; other fields are those of :class:`fglaudit.federated.subgraph_protocol.SubgraphProtocol`.

    Attributes:
        tau: sharpness of the personal weights.
        sparsity, proximal: weights of the two penalties, see :mod:`fglaudit.protocols.fedpub.personal_masks`.
        random_graph: seed of the public random graph; ``seed`` is taken for it.
    """

    name: ClassVar[str] = "fedpub"
    shown: ClassVar[tuple[str, ...]] = ("tau",)
    also: ClassVar[Mapping[str, str]] = {"seed": "random_graph"}
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, FunctionalEmbeddings)

    batch_size: int = 1_000_000
    learning_rate: float = 0.01
    weight_decay: float = 1e-6
    tau: float = 3.0
    sparsity: float = 1e-3
    proximal: float = 2e-3
    random_graph: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, hidden=1)
        if self.layers != 2:
            raise FglauditError(f"fedpub's network has two graph convolutions; got layers {self.layers}; leave it at 2")
        for field in ("tau", "sparsity", "proximal"):
            if not 0 <= getattr(self, field) < math.inf:
                raise FglauditError(
                    f"fedpub needs a finite {field} that is not negative; got {getattr(self, field):g}; the authors"
                    " use 3, 0.001 and 0.002"
                )

    def shared(self, num_inputs: int, num_classes: int) -> Layout:
        return {
            "input.weight": (num_inputs, self.hidden),
            "input.bias": (self.hidden,),
            "hidden.weight": (self.hidden, self.hidden),
            "hidden.bias": (self.hidden,),
            "classes.weight": (self.hidden, num_classes),
            "classes.bias": (num_classes,),
        }

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return with_masks(self.shared(num_inputs, num_classes))

    def completed(
        self, clients: Sequence[ClientGraph], channel: Channel, rng: torch.Generator, device: torch.device
    ) -> Sequence[ClientGraph]:
        return [with_propagated_rows(client) for client in clients]

    def surroundings(self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator) -> FullGraph:
        return FullGraph.of(clients, inputs.present)

    def examples(self, graph: FederatedGraph) -> str:
        return f"{self.name}'s losses have penalties that belong to no node"

    def structure(self, graph: FederatedGraph) -> Structure:
        common = super().structure(graph).replace(Models, upload="weights")
        stated = common.replace(Training, proximal=self.proximal).statements
        averages = PersonalAverages(self.tau, "functional-embeddings")
        functional = Functional("classes.weight", "classes.bias", ("input", "hidden"))
        return Structure((averages, functional, *stated))

    def uploads(self, graph: FederatedGraph) -> Uploads:
        """Weights; every client gets an average of its own."""
        return Uploads(graph.num_clients, graph.num_clients, 1.0, mean=False)

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        why = "no bound is known on what a node's features do to what a trained model makes of a random graph"
        more = Release(
            FunctionalEmbeddings, self.rounds, None, "client", covers_training=False, why=why, one_message=True
        )
        return (*super().releases(graph), more)

    def readers(self) -> Mapping[type[Payload], str]:
        return {
            FunctionalEmbeddings: "the server compares them by their cosines",
            ModelUpdate: "the server averages them with weights of its own for every client in every round",
        }

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        start, near, training = split(rng, "weights"), split(rng, "surroundings"), split(rng, "training")
        models = self.clients(graph, channel, near, training, device)
        layout = self.shared(graph.num_features, graph.num_classes)
        masks = self.masking(graph.num_features, graph.num_classes)
        model = initial_model(layout, start).to(device)
        probe = Probe.of(self.random_graph, graph.num_features, device)
        everyone = torch.arange(graph.num_clients)
        progress, own = Progress(models), []
        models.load(masks.first(model, models.vectors.shape[1]).expand(graph.num_clients, -1))
        models.take_up(return_models(channel, 0, model.expand(graph.num_clients, -1)))
        for round in range(1, self.rounds + 1):
            models.train_round()
            progress.test()
            received = upload_models(channel, round, everyone, models.vectors[:, : len(model)])
            embedded = FunctionalEmbeddings(probe.embeddings(models, masks))
            arrived = to_server(channel, round, everyone, embedded)
            unit = torch.nn.functional.normalize(arrived.values, dim=1)
            weights = (self.tau * unit @ unit.T).softmax(1).to(received)
            own.append(weights.diagonal().mean())
            models.take_up(return_models(channel, round, weights @ received))
            channel.round_done(round, self.rounds)
        return replace(progress.finish(), layout=layout, series={"own_weight": torch.stack(own).cpu()})

    def masking(self, num_inputs: int, num_classes: int) -> PersonalMasks:
        return PersonalMasks.of(self.shared(num_inputs, num_classes), self.sparsity, self.proximal)


@dataclass(frozen=True)
class Probe:
    """The public random graph.

    Attributes:
        rows: ``A x`` [n, F].
        adjacency: A [n, n].
    """

    rows: Tensor
    adjacency: SparseMatrix

    @staticmethod
    def of(seed: int, features: int, device: torch.device) -> Probe:
        """Draw it: everybody who knows the seed has the same one."""
        rng = derive(seed, "random graph")
        count = COMMUNITIES * COMMUNITY_NODES
        first, second = torch.triu_indices(count, count, offset=1)
        inside = torch.div(first, COMMUNITY_NODES, rounding_mode="floor") == torch.div(
            second, COMMUNITY_NODES, rounding_mode="floor"
        )
        drawn = inside & (torch.rand(len(first), generator=rng) < EDGE_PROBABILITY)
        edges = torch.stack([torch.cat([first[drawn], second[drawn]]), torch.cat([second[drawn], first[drawn]])])
        x = torch.randn(count, features, generator=rng)
        row, column, values = (part.to(device) for part in propagation(edges, count))
        return Probe(propagated(edges, x).to(device), SparseMatrix.from_entries(row, column, values, (count, count)))

    @torch.no_grad()
    def embeddings(self, models: SubgraphModels, masks: PersonalMasks) -> Tensor:
        """Return the functional embedding of every client's model [K, d]."""
        found = []
        for vector in models.vectors:  # one client's hidden rows at a time
            weights = masks.effective(unflatten(vector.unsqueeze(0), models.layout), testing=True)
            inputs = self.rows.unsqueeze(0) @ weights["input.weight"] + weights["input.bias"].unsqueeze(1)
            found.append(hidden(weights, inputs, self.adjacency, Dropout(0, None)).mean(1))
        return torch.cat(found)
