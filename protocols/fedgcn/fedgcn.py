"""FedGCN (Yao, Jin, Ravi and Joe-Wong, NeurIPS 2023): sums of neighbour features once, then federated averaging.

Section 4, equations (2)-(3) and Algorithm 1. Before training client m sends, for every node i with a neighbour at m (or
at m itself), ``P[m, i] = sum_{j at m} A_ij x_j`` over i and its neighbours j; the server adds over m and returns
``S_i = sum_j A_ij x_j`` for the rows that a client needs: its own nodes (1 hop), also their neighbours (2 hops), all
nodes within h - 1 hops (h hops). Each client then trains a GCN whose first layer is ``S W_1``. Later layers propagate
over the edges that the client knows; with as many hops as layers they equal the centralized model's. With 0 hops
nothing is sent before training.

What is observed: the server sees every ``P[m, i]`` (often the features of a single neighbour) and every model; client k
sees ``S_i`` of its rows and the global models.

Choices where the paper's text is silent:

* ``A = (D + I)^-1/2 (Adj + I) (D + I)^-1/2`` with degrees in the whole graph; 0 hops use the client's own subgraph,
  degrees too.
* ``aggregate: counts`` sends plain sums (integers for binary features); the receiver divides row i by ``d_i + 1``, a
  mean over the closed neighbourhood, because it cannot recover single neighbours to weight them by their degrees. It
  has no effect at 0 hops.
* Weight decay acts on every layer, scales and shifts of batch normalisation among them.
* ``network: gcn-batchnorm`` normalises by means over all rows that a client holds, in tests too; nothing is kept from
  round to round, and only scales and shifts are averaged. Attacks that compute with the clients' network, of which only
  ``gcn`` is stated, do not apply to the others.
* The first global model is a message too (round 0).
* Models are averaged with equal weights; ``weighting: train-nodes`` weights by training nodes. A client without
  training nodes uploads nothing. Clients that were not sampled still receive the new model.
* Adam starts afresh every round.
* Where a defense drops edges, ``i <- j`` counts as kept if the owner of ``i`` keeps it.
* ``smoothing_hops`` is not the paper's: what clients received is propagated that many steps further over the whole
  graph before training (:mod:`fglaudit.federated.hop_exchange`), their own rows passed on to neighbours' clients. On
  noisy sums this is post-processing, at no epsilon; without noise it shows neighbours more hops.
* With 1 hop the second layer propagates among own nodes alone, with degrees in the whole graph. The paper's 1-hop
  accuracies are higher than that: its published code gives clients their neighbours' features
  (``fglaudit/reproduce/authors_code/fedgcn_one_hop.py``).
* Accuracy is the new global model's, tested by every client on its own test nodes; the last round counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Examples, Release, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.client_blocks import block_fields
from fglaudit.federated.fedavg import FedAvg, Weighting
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighbor_sums import add_messages, buckets, sender_sums, weighted_sums
from fglaudit.federated.neighborhood import HeldRows, KeptEdges, foreign_nodes_within
from fglaudit.federated.problem import Gathered, Problem, check_trainable, gather_features
from fglaudit.federated.received_once import ReceivedOnce
from fglaudit.federated.sending import from_server, to_server
from fglaudit.federated.smoothing import random_rows, remarks
from fglaudit.federated.training import UNLIKE_CITATIONS, LocalSettings, Optimizer
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.gcn import Field
from fglaudit.nn.networks import NetworkName, network
from fglaudit.nn.shared_rows import SharedRows
from fglaudit.nn.sparse import row_starts
from fglaudit.nn.weights import Layout, gcn_layout, glorot
from fglaudit.payloads import HopSums, ModelUpdate, NeighborSums, Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.rng import split
from fglaudit.structure import Codes, Convolutions, Models, Structure, Sums
from fglaudit.view import Observer

Weights = Literal["normalised", "counts"]


@dataclass(frozen=True)
class FedGCN(FederatedProtocol):
    """FedGCN with L hops; defaults are the paper's settings for Cora and CiteSeer.

    On Chameleon, Squirrel, Photo and Computers, where these can collapse, suites that give neither optimizer nor
    learning rate train with :data:`fglaudit.federated.training.UNLIKE_CITATIONS`: Adam at 0.01 or 0.003.

    Attributes:
        hops: 0, 1, 2 or more.
        aggregate: "normalised" or "counts".
        network: "gcn", "gcn-batchnorm" or "sage", see :mod:`fglaudit.nn.networks`; "sage" averages, so with 1 hop or
            more it needs ``aggregate: counts``.
        layers, hidden: of the network.
        rounds, local_steps, participation, weighting: see ``fglaudit.federated.fedavg.FedAvg``.
        smoothing_hops: steps of propagation of what arrived; 0: none. For 1 or 2 hops.
        optimizer, learning_rate, weight_decay, dropout: see ``fglaudit.federated.training.LocalSettings``.
    """

    name: ClassVar[str] = "fedgcn"
    shown: ClassVar[tuple[str, ...]] = ("hops", "aggregate")
    emits: ClassVar[tuple[type[Payload], ...]] = (NeighborSums, HopSums, ModelUpdate)
    on_datasets: ClassVar[Mapping[str, Mapping[str, Any]]] = UNLIKE_CITATIONS

    hops: int = 2
    aggregate: Weights = "normalised"
    network: NetworkName = "gcn"
    layers: int = 2
    hidden: int = 16
    rounds: int = 300
    local_steps: int = 3
    optimizer: Optimizer = "sgd"
    learning_rate: float = 0.5
    weight_decay: float = 5e-4
    dropout: float = 0.5
    participation: float = 1.0
    weighting: Weighting = "uniform"
    smoothing_hops: int = 0

    def __post_init__(self) -> None:
        require_least(self, hops=0, layers=1, hidden=1, smoothing_hops=0)
        if self.smoothing_hops and self.hops not in (1, 2):
            raise FglauditError(
                f"fedgcn smooths sums that clients hold of own nodes and their neighbours, 1 or 2 hops; got "
                f"{self.hops} with smoothing_hops: {self.smoothing_hops}; use hops: 1 or 2, or smoothing_hops: 0"
            )
        if network(self.network).means and self.hops and self.aggregate != "counts":
            raise FglauditError(
                f"fedgcn's network: {self.network} averages over neighbours, so clients need plain sums; got "
                f"aggregate: {self.aggregate}; use aggregate: counts"
            )
        self.averaging()

    def averaging(self) -> FedAvg:
        """Return how the clients' models are trained and averaged."""
        settings = LocalSettings(self.optimizer, self.learning_rate, self.weight_decay, self.dropout)
        return FedAvg(self.rounds, self.local_steps, self.participation, self.weighting, settings)

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def structure(self, graph: FederatedGraph) -> Structure:
        sums = (Sums(self.aggregate, self.hops),) if self.hops else ()
        smoothed = (Codes(0, 0, self.smoothing_hops),) if self.smoothing_hops else ()
        known = (Convolutions(),) if self.network == "gcn" else ()
        return Structure((*sums, *smoothed, Models("weights"), *known, self.averaging().training()))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """The sums that clients send before training, once; what the server returns is computed from them.

        If x_j changes by norm 1, the messages change by ``A_ij`` for every i in the closed neighbourhood of j, each in
        one row of j's own client: jointly by ``||A[:, j]||_2``.

        Normalised: ``||A[:, j]||^2 = 1/(d_j+1) sum_i 1/(d_i+1)`` over the closed neighbourhood. Neighbours have
        ``d_i >= 1``, so this is at most ``1/(d_j+1)^2 + d_j / (2 (d_j+1))``, which is 1 for ``d_j = 0`` and at most 1/2
        otherwise: the gain is at most 1 for every graph. Counts: exactly ``sqrt(d_j + 1)``; the largest degree counts
        as public, as the topology does. Dropped edges only remove terms, because degrees stay those of the whole graph.
        """
        if self.hops == 0:
            return ()
        if self.aggregate == "normalised":
            gain, why = 1.0, "column norm of the normalised adjacency, at most 1 for every graph"
        else:
            largest = int(graph.degrees().max().item())
            gain, why = (
                math.sqrt(largest + 1),
                f"sqrt(largest degree + 1) with public topology, largest degree {largest}",
            )
        return (Release(NeighborSums, 1, gain, "node", covers_training=True, why=why, subgraphs=True),)

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Sums go over neighbours at other clients too, unless there are no hops."""
        return self.hops > 0

    def examples(self, graph: FederatedGraph) -> Examples | str:
        """A node's loss sees as many hops as there are layers; with sums some of the nodes are other clients'."""
        if self.smoothing_hops:
            return f"{self.name} smooths over {self.smoothing_hops} hops: a node's features are in almost every loss"
        if network(self.network).batch_norm:
            return f"{self.name} normalises over all of a client's rows: each of them is in every loss of that client"
        passes = self.averaging().passes()
        return node_examples(graph, passes=passes, hops=self.layers, by_degree=True, across=self.hops > 0)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return self.averaging().uploads(graph)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The server adds the parts of every node's sum and passes sums on; of models it takes the mean.

        An entry of row i is at most ``sum_j A_ij`` times the largest feature, over all clients together. Degrees count
        as public, as the topology does, and so do the largest feature and whether features are whole or negative
        numbers.
        """
        models = self.averaging().aggregates(graph, self.layout(graph))
        if self.hops == 0 or self.smoothing_hops:
            return models
        edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
        held = HeldRows.within(edges, graph.num_clients, self.hops - 1)
        row, source = edges.receivers().long(), edges.source.long()
        counts, scale = self.aggregate == "counts", edges.scale()
        weight = torch.ones(len(row), dtype=torch.float64) if counts else scale[row] * scale[source]
        largest = torch.zeros(graph.num_nodes, dtype=torch.float64).index_add_(0, row, weight) * graph.x.abs().max()
        senders = torch.unique(row * graph.num_clients + edges.owner[source])
        summands = torch.bincount(
            torch.div(senders, graph.num_clients, rounding_mode="floor"), minlength=graph.num_nodes
        )
        sums = Aggregate(
            rows=held.node,
            receivers=held.client,
            columns=graph.num_features,
            largest=largest,
            summands=summands,
            integers=counts and bool((graph.x == graph.x.round()).all()),
            signed=bool((graph.x < 0).any()),
        )
        return {NeighborSums: sums, **models}

    def readers(self) -> Mapping[type[Payload], str]:
        """Smoothed rows pass through the server in the clear, so that sealing the sums before hides nothing."""
        if not self.smoothing_hops:
            return {}
        smoothed = "clients smooth what they received and pass rows on in the clear; use smoothing_hops: 0"
        return {NeighborSums: smoothed, HopSums: smoothed}

    def layout(self, graph: FederatedGraph) -> Layout:
        normalised = network(self.network).batch_norm
        return gcn_layout(graph.num_features, self.hidden, graph.num_classes, self.layers, normalised=normalised)

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose features are in the sums that the observer sees, ascending."""
        return foreign_nodes_within(graph, observer, self.hops + self.smoothing_hops)

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """The sums of the training nodes and of the own neighbours that their losses see."""
        if self.smoothing_hops:
            return None
        edges = KeptEdges.of(clients, graph.degrees())
        problem = Problem.of(clients, edges, self.hops, network(self.network))
        used = problem.reached(problem.train, self.layers)[0]
        client, node = problem.rows.client[used], problem.rows.node[used]
        x = gather_features(clients, graph.num_nodes)
        if self.hops == 0:
            return client, problem.own_sums(x, self.layers)[used[problem.needed(self.layers)]]
        row, source = edges.incoming(node)
        weight = edges.scale()[node][row] * edges.scale()[source]
        if self.aggregate == "counts":
            weight = edges.scale()[node][row].square()
        return client, weighted_sums(row_starts(row, len(node)), source, weight, x.double()).float()

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        notes, layout = self.remarks(channel, clients, graph), self.layout(graph)
        data = Gathered.of(clients, graph.degrees(), device)
        del clients  # their edges are as large as the graph's
        train, test = self.fields(data, channel)
        del data
        initial = glorot(layout, split(rng, "weights")).to(device)
        trained = self.averaging().train(train, test, initial, layout, channel, rng)
        return replace(trained, notes=(*trained.notes, *notes))

    def remarks(self, channel: Channel, clients: Sequence[ClientGraph], graph: FederatedGraph) -> tuple[str, ...]:
        """Return what a reader must know of smoothing, or its absence, and the noise on the sums or on rows."""
        changed = channel.prepares() and random_rows(clients, graph)
        noisy = self.hops > 0 and (changed or channel.noise(NeighborSums) is not None)
        without = "clients and the server see rows of so many hops more, and nothing is smoothed away"
        return remarks(self.smoothing_hops, noisy, "sums", without)

    def pretrain(self, graph: FederatedGraph, channel: Channel, device: torch.device) -> tuple[Problem, Tensor]:
        """Do everything before the first round, with the rows of all clients at once.

        Returns:
            The clients' rows, and the first-layer input [H, F], as received, of the rows that training or testing
            needs.
        """
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        data = Gathered.of(clients, graph.degrees(), device)
        return self.batched(data, self.held(data), channel)

    def held(self, data: Gathered) -> HeldRows:
        """Return for which nodes clients hold first-layer inputs."""
        return HeldRows.within(data.edges, data.num_clients, max(self.hops - 1, 0))

    def fields(self, data: Gathered, channel: Channel) -> tuple[Sequence[Field], Sequence[Field]]:
        """Do everything before the first round; return the receptive fields of the training and of the test nodes.

        Clients are taken in blocks whose rows have at most ``BUCKET_BYTES``, and where that is more than one block they
        read rows that arrived equal from one table. Smoothed rows, and gradients of single examples, are always all
        clients' at once.
        """
        rows = self.held(data)
        blocks = buckets(rows.splits.cpu().diff() * data.x.shape[1] * data.x.element_size())
        if len(blocks) == 1 or self.smoothing_hops or channel.local_update() is not None:
            problem, inputs = self.batched(data, rows, channel)
            train, test = problem.fields(inputs, self.layers)
            return (train,), (test,)
        received = self.shared(data, rows, channel) if self.hops else None
        return block_fields(data, rows, blocks, received, self.hops, self.layers, network(self.network))

    def batched(self, data: Gathered, rows: HeldRows, channel: Channel) -> tuple[Problem, Tensor]:
        """Exchange sums; return what :meth:`pretrain` does."""
        problem = Problem.among(data.targets, data.edges, rows, self.hops, self.layers, network(self.network))
        if self.hops == 0:
            return problem, problem.own_sums(data.x, self.layers)
        needed = problem.needed(self.layers)
        total = self.collect(data.edges, data.x, data.num_clients, channel).float()
        if self.smoothing_hops:
            return problem, self.smoothed(total, data.edges, rows, channel)[needed]
        inputs = self.deliver(total, rows, needed, channel)
        return problem, self.means(inputs, rows.node[needed], data.edges)

    def shared(self, data: Gathered, rows: HeldRows, channel: Channel) -> SharedRows:
        """Exchange sums; return the first-layer inputs of all ``rows`` [M, F], those that arrived equal held once."""
        total = self.collect(data.edges, data.x, data.num_clients, channel).float()
        received = ReceivedOnce(len(data.x))
        for part, sums in self.delivered(total, rows, channel):
            received.add(rows.node[part], self.means(sums, rows.node[part], data.edges))
        return received.rows()

    def means(self, sums: Tensor, nodes: Tensor, edges: KeptEdges) -> Tensor:
        """Return what a client makes of the ``sums`` [r, F] of ``nodes`` [r]: of counts a mean, else the same."""
        return sums / (edges.degrees[nodes] + 1).unsqueeze(1) if self.aggregate == "counts" else sums

    def collect(self, edges: KeptEdges, x: Tensor, num_clients: int, channel: Channel) -> Tensor:
        """Have every client send its partial sums, in batches of about a gibibyte; the server adds what arrives.

        Args:
            x: features [N, F], each row from the prepared graph of its owner.

        Returns:
            The server's total [N, F]: in float64, or sealed.
        """
        total: Tensor | None = None
        for part in sender_sums(edges, x, num_clients, counts=self.aggregate == "counts"):
            payload = NeighborSums(part.nodes, part.sums)
            arrived = to_server(channel, 0, part.senders, payload, part.splits)
            total = add_messages(total, arrived.nodes, arrived.sums, len(x))
            del part, payload, arrived  # or they would be there still while the next are made
        assert total is not None
        return total

    def deliver(self, total: Tensor, rows: HeldRows, keep: Tensor, channel: Channel) -> Tensor:
        """Have the server send every client the sums of its rows; return those in ``keep`` [M] as received [H, F]."""
        return torch.cat([sums[keep[part]] for part, sums in self.delivered(total, rows, channel)])

    def delivered(self, total: Tensor, rows: HeldRows, channel: Channel) -> Iterator[tuple[slice, Tensor]]:
        """Have the server send every client the sums of its rows; yield which rows arrived, and as what [r, F]."""
        splits, total = rows.splits.cpu(), total.float()
        for low, high in buckets(splits.diff() * total.shape[1] * 4):
            part = slice(int(splits[low].item()), int(splits[high].item()))
            receivers = torch.arange(low, high)
            payload = NeighborSums(rows.node[part], total[rows.node[part]])
            yield part, from_server(channel, 0, receivers, payload, splits[low : high + 1] - part.start).sums

    def smoothed(self, total: Tensor, edges: KeptEdges, rows: HeldRows, channel: Channel) -> Tensor:
        """Have the server send every client the sums of its own nodes and the clients propagate them; return the rows
        that they hold in the end [M, F]."""
        num_clients = len(rows.splits) - 1
        own = HeldRows.within(edges, num_clients, 0)
        arrived = self.deliver(total, own, torch.ones_like(own.node, dtype=torch.bool), channel)
        arrived = self.means(arrived, own.node, edges)
        held = arrived.new_zeros(len(edges.owner), arrived.shape[1])
        held[own.node] = arrived
        exchange = HopExchange.of(edges, num_clients)
        received = exchange.deliver(held, channel, 0)
        (held,) = exchange.steps(held, received, (self.smoothing_hops,), channel, 1)
        inputs = held[rows.node]
        if self.hops > 1:
            inputs[rows.distance > 0] = exchange.deliver(held, channel, self.smoothing_hops)
        return inputs
