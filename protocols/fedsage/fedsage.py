"""FedSage+ (Zhang et al. 2021, arXiv:2106.13430): clients generate the neighbours that they lack, then FedAvg.

Section 4: every client hides some of its nodes and trains a generator (NeighGen) to say, from a node's embedding, how
many neighbours are hidden and what their rows are. So that generators make rows as other clients hold them, a client
sends its generator's weights and embeddings with noise to every other client, each of which answers with a gradient:
how the generator must change for its rows to come nearer to the nearest of its own. Every client then attaches
generated rows to its own graph, and all train one GraphSAGE on these graphs as in ``fedavg-sage``.

What is observed: another client sees generators, embeddings and the number of hidden neighbours behind each, and can
make the rows itself; a client sees the gradients that answer it, which are made of others' feature rows (the attack
``generator-targets``). The server sees models alone, as in ``fedavg-sage``.

``generator: simulated`` is what FedGCN's authors compare with in place of the generator: a client is sent the rows of
its nodes' neighbours at other clients with noise of ``noise`` on every entry, from their owners, and attaches them.

Facts from the authors' code (``zkhku/fedsage``): at most 5 rows per node, N(0, 1) on embeddings of 128 numbers, tanh
outputs, 20 steps of generators at home and 20 with the others, Adam at 0.001; the encoder is not trained on in the
latter. Differences:

* Half of a client's nodes are hidden; their 0.5 is a share of the nodes that neither train nor are tested, a tenth of
  all. Where more is hidden, more rows are attached.
* Losses are over all nodes that are left, and rows count up to the true number of hidden neighbours; theirs are over
  training nodes, up to the predicted number, and a row of zeros is among the targets. Predictions are rounded, theirs
  cut off.
* Their generator has hidden layers of 256 and 2048, at 58 MB a message on Cora, this one has one of
  ``generator_hidden`` (FederatedScope: 64). They train a classifier along with it, and drop half of hidden units.
* Others' rows are, as in the paper, all rows of a client, where their code draws five of them for every row.

Messages go from client to client; FederatedScope sends them through the server, which adds up the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Examples, Release
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.sending import send
from fglaudit.graph import ClientGraph, FederatedGraph, last_places
from fglaudit.interfaces import Channel
from fglaudit.nn.neighbor_generator import FeatureGenerator
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import (
    GeneratorGradients,
    GeneratorInputs,
    ModelUpdate,
    NeighborGenerators,
    Payload,
    RawFeatures,
)
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.fedsage.impaired_graphs import Impaired, Surfaces
from fglaudit.protocols.fedsage.mended_graphs import mended
from fglaudit.protocols.fedsage.neighbor_models import Asked, NeighborModels
from fglaudit.rng import moved, split
from fglaudit.structure import Generators, NoisyRows, Structure
from fglaudit.view import Observer

Generator = Literal["trained", "simulated"]


@dataclass(frozen=True)
class FedSage(FedAvgSage):
    """FedSage+; other fields are those of :class:`fglaudit.protocols.baselines.fedavg_sage.FedAvgSage`.

    Attributes:
        generator: "trained" or "simulated", see the module docstring.
        hidden_share: share of a client's nodes that is hidden to train its generator.
        slots: most rows that are attached to a node.
        embedding, generator_hidden: widths of embeddings and of the generator's hidden layer.
        generator_epochs, generator_rounds: steps of generators at home, and with the others.
        exchanged: most nodes that a client asks about in a round.
        noise: standard deviation with ``generator: simulated``.
    """

    name: ClassVar[str] = "fedsage"
    shown: ClassVar[tuple[str, ...]] = ("generator",)
    emits: ClassVar[tuple[type[Payload], ...]] = (
        ModelUpdate,
        NeighborGenerators,
        GeneratorInputs,
        GeneratorGradients,
        RawFeatures,
    )

    generator: Generator = "trained"
    hidden_share: float = 0.5
    slots: int = 5
    embedding: int = 128
    generator_hidden: int = 128
    generator_epochs: int = 20
    generator_rounds: int = 20
    exchanged: int = 64
    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(
            self, slots=1, embedding=1, generator_hidden=1, generator_epochs=0, generator_rounds=0, exchanged=1
        )
        if not 0 < self.hidden_share < 1:
            raise FglauditError(f"hidden_share is a share in (0, 1); got {self.hidden_share:g}; use e.g. 0.5")
        if not 0 <= self.noise < float("inf"):
            raise FglauditError(f"noise must be finite and not negative; got {self.noise:g}; use for example 0.1")

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Simulated neighbours are those at other clients; generators are trained on a client's own edges."""
        return self.generator == "simulated"

    def examples(self, graph: FederatedGraph) -> Examples | str:
        return f"{self.name} attaches rows to a client's graph that were made of features beforehand"

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        if self.generator == "simulated":
            words = "rows with noise of the protocol's own"
            return (*super().releases(graph), Release(RawFeatures, 1, None, "client", covers_training=False, why=words))
        words = "no bound is known on what a node's features do to a generator or to gradients of one"
        kinds = (NeighborGenerators, GeneratorInputs, GeneratorGradients) if self.generator_rounds else ()
        more = (Release(k, self.generator_rounds, None, "client", covers_training=False, why=words) for k in kinds)
        return (*super().releases(graph), *more)

    def readers(self) -> Mapping[type[Payload], str]:
        why = "it goes to other clients, who compute with it"
        return {kind: why for kind in type(self).emits if kind is not ModelUpdate}

    def structure(self, graph: FederatedGraph) -> Structure:
        shape = Generators(self.embedding, self.generator_hidden, self.slots)
        stated = super().structure(graph).statements
        return Structure((shape if self.generator == "trained" else NoisyRows(self.noise), *stated))

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Generators' answers are made of everybody's rows; of simulated neighbours a client gets its own nodes'."""
        if self.generator == "trained":
            return super().exposed(graph, observer)
        readers = range(graph.num_clients) if observer.wire else observer.clients
        none = torch.empty(0, dtype=torch.long)
        sent: Tensor = torch.cat([none, *(graph.client(k).remote_nodes for k in readers)])
        foreign = torch.isin(sent, super().exposed(graph, observer))
        found: Tensor = torch.unique(sent[foreign])
        return found

    def completed(
        self, clients: Sequence[ClientGraph], channel: Channel, rng: torch.Generator, device: torch.device
    ) -> Sequence[ClientGraph]:
        if self.generator == "simulated":
            return _with_noisy_neighbors(clients, self.noise, channel, split(rng, "noise"))
        hiding, start = split(rng, "hidden nodes"), split(rng, "generators")
        draws = moved(split(rng, "embeddings"), device)
        shape = FeatureGenerator(self.embedding, self.generator_hidden, self.slots, clients[0].x.shape[1])
        impaired = Impaired.of(clients, self.hidden_share, self.slots, hiding, device)
        models = NeighborModels(clients, impaired, shape, start, draws)
        models.train_locally(self.generator_epochs)
        for round in range(1, self.generator_rounds + 1):
            asked = models.asks(self.exchanged)
            models.step(torch.stack([_answer(models, k, asked[k], channel, round) for k in range(len(clients))]))
        rows, counts = models.missing(Surfaces.of(clients, device))
        return [_mended(client, rows[k], counts[k]) for k, client in enumerate(clients)]


def _answer(models: NeighborModels, owner: int, asked: Asked, channel: Channel, round: int) -> Tensor:
    """Have client ``owner`` send its generator to all others; return the sum of the gradients that come back [D]."""
    holders = torch.tensor([k for k in range(len(models.x)) if k != owner], dtype=torch.long)
    own, size = torch.full_like(holders, owner), len(asked.counts)
    if not len(holders) or not size:
        return torch.zeros_like(models.generators[owner])
    sent = models.generators[owner].expand(len(holders), -1)
    generator = send(channel, round, own, holders, NeighborGenerators(sent))
    payload = GeneratorInputs(asked.inputs.repeat(len(holders), 1), asked.counts.repeat(len(holders)))
    splits = torch.arange(len(holders) + 1) * size
    inputs = send(channel, round, own, holders, payload, splits)
    there = holders.to(models.x.device)
    values, counts = inputs.values.view(len(holders), size, -1), inputs.counts.view(len(holders), size)
    answer = models.generator.gradients(generator.vector, values, counts, models.x[there], models.present[there])
    back = send(channel, round, holders, own, GeneratorGradients(answer))
    return back.vector.sum(0)


def _mended(client: ClientGraph, rows: Tensor, counts: Tensor) -> ClientGraph:
    """Attach the first ``counts`` [n] of the generated ``rows`` [n, p, F] to each node."""
    own, rows = counts[: len(client.nodes)].cpu(), rows.cpu()
    beside = torch.repeat_interleave(torch.arange(len(own)), own)
    slot = torch.arange(len(beside)) - (own.cumsum(0) - own)[beside]
    return mended(client, rows[beside, slot], beside, torch.arange(len(beside)))


def _with_noisy_neighbors(
    clients: Sequence[ClientGraph], std: float, channel: Channel, rng: torch.Generator
) -> list[ClientGraph]:
    """Have owners send the rows of every client's remote neighbours with noise; attach what arrives."""
    held = [client.nodes for client in clients]  # of overlapping clients the last one sends a node's row
    place, owner = last_places(held, 1 + max(int(nodes.max().item()) for nodes in held))
    wanted = torch.cat([client.remote_nodes for client in clients])
    if not len(wanted):
        return list(clients)
    receiver = torch.repeat_interleave(torch.arange(len(clients)), torch.tensor([len(c.remote_nodes) for c in clients]))
    pair = owner[place[wanted]] * len(clients) + receiver
    order = torch.argsort(pair, stable=True)
    pairs, index = torch.unique(pair[order], return_inverse=True)
    x = torch.cat([client.x for client in clients])[place[wanted[order]]].float()
    payload = RawFeatures(wanted[order], x + std * torch.randn(x.shape, generator=rng))
    senders = torch.div(pairs, len(clients), rounding_mode="floor")
    splits = row_starts(index, len(pairs))
    arrived = send(channel, 0, senders, pairs % len(clients), payload, splits)
    rows = torch.empty_like(x)
    rows[order] = arrived.x.to(x)
    parts = torch.split(rows, [len(c.remote_nodes) for c in clients])
    return [mended(c, part, c.boundary[0], c.boundary[1]) for c, part in zip(clients, parts, strict=True)]
