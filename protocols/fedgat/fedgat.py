"""FedGAT (Ambekar, Yao, Li and Joe-Wong 2024): a GAT whose first layer is a polynomial of masked neighbour features.

Algorithms 1 and 2, equations (4)-(14), appendix F. Before training every client sends its feature rows to the server;
for every node i the server sends the owner of i either ``(M1, M2, K1, K2)`` (matrix variant) or the vectors of appendix
F. From them a client evaluates, for any current weights, the attention-weighted mean of the neighbours' features with
``exp(LeakyReLU(x))`` replaced by its Chebyshev series. Later layers are ordinary graph attention on hidden embeddings
that clients send each other.

What is observed: the server has every feature row in the clear and every model; client k has the masked neighbourhoods
of its own nodes and either those of its neighbours or their hidden embeddings under every global model; and the global
models.

Two equal ways to compute the first layer: from the received matrices, or edge by edge with the same series on the
features that the server received. The second is used only where nobody keeps or changes the masked messages (then only
their sizes are announced, so that their bytes are still counted). Noise on them is added by the server, which holds the
rows in the clear.

Choices where the paper's text is silent:

* The neighbourhood is closed (self-loops), as in the original GAT. How the server learns the edges it needs is not
  recorded.
* Feature rows are scaled to norm at most 1 by the server (Assumption 3); it computes with what it received. Where rows
  are sent sealed it cannot: then every client scales its own rows before sending them.
* Of Assumption 2 only what the series needs is enforced (``bounds: scores``): after every step the attention vectors of
  the first layer are shrunk until no score can leave the domain. ``bounds: all`` takes the nearest weights within the
  assumption's bounds instead, which costs accuracy; with ``none`` the share of scores outside the domain is measured in
  every round.
* Plain gradient steps: Adam's (the paper's optimizer) overfit when averaged over clients with a dozen training nodes
  each.
* ``remote: matrices``: a client also gets the masked messages of all nodes within L-1 hops of its own and computes
  their hidden embeddings itself, which is what Theorem 1 counts (receivers times L-hop neighbourhoods). Without these
  gradients the paper's accuracies are out of reach (``fglaudit reproduce fedgat-table1`` has both).
* ``remote: embeddings`` (default, as the paper's text has it): clients get the messages of their own nodes alone and
  send each other hidden embeddings, once per round under the new global model ("nodes are permitted to view the
  embeddings"). Received rows are constants of local training: gradients do not cross clients.
* ``smoothing_hops`` is not the paper's: the server, which knows the edges, propagates the rows that arrived so many
  steps over the graph and brings them to length 1 before it masks them (:mod:`fglaudit.federated.smoothing`). On noisy
  rows that is post-processing, at no epsilon; nothing more is sent for it.
* ``server_optimizer: adam`` is the authors' ``communication_grad``: the server steps on the mean of its clients'
  gradients, exactly so with ``bounds: none``.
* ``source: code`` has the first layer's weights of the authors' code (``FedGraph/fedgraph``, branch ``FedGAT``): no
  exponential, ``0.2 x + 0.8 log(1 + exp(4 x)) / 4`` of the score divided by the number of features, so that they hardly
  differ between neighbours. Their domain is 5; their attention vectors act on the features, here on the first layer's
  outputs, as in the text.
* ``dropout`` acts between layers. ``feature_dropout`` drops the same features of all nodes: those of single neighbours,
  and their attention weights, are not available to a client.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Release, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.fedavg import Weighting
from fglaudit.federated.home_head import unit_rows
from fglaudit.federated.needs import refuse_memory, told_sent
from fglaudit.federated.neighborhood import KeptEdges, foreign_nodes_within
from fglaudit.federated.node_progress import Choice
from fglaudit.federated.sending import to_server
from fglaudit.federated.smoothing import propagated, random_rows, remarks
from fglaudit.federated.training import Optimizer
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.chebyshev import Series, attention_series, require_smooth_domain
from fglaudit.nn.gat import initial_model, series_scores, unit_ball
from fglaudit.payloads import (
    Embeddings,
    MaskedMatrices,
    MaskedVectors,
    ModelUpdate,
    Payload,
    RawFeatures,
)
from fglaudit.protocols.fedgat.gat_field import Clients, Field
from fglaudit.protocols.fedgat.gat_plan import GatProtocol, Plan, attended_rows, edge_layer
from fglaudit.protocols.fedgat.gat_training import Bounds, FirstLayer, GatTraining
from fglaudit.protocols.fedgat.masked_layer import MaskedLayer, outside_domain
from fglaudit.protocols.fedgat.masked_messages import announce, deliver, merge_rows
from fglaudit.protocols.fedgat.masked_sensitivity import dependent_fields, joint_gain
from fglaudit.protocols.fedgat.masking import Masked, degree_batches
from fglaudit.protocols.fedgat.message_bytes import bytes_by_size, how_to_send_less, refuse_too_large
from fglaudit.protocols.fedgat.server_adam import ServerOptimizer, require_plain_steps
from fglaudit.rng import split
from fglaudit.sealing import SealedTensor
from fglaudit.structure import Attention, Structure
from fglaudit.view import Observer

Variant = Literal["matrix", "vector"]
VARIANTS: dict[Variant, type[Masked]] = {"matrix": MaskedMatrices, "vector": MaskedVectors}
PathName = Literal["auto", "matrices", "moments"]
Neighborhood = Literal["closed"]
Remote = Literal["matrices", "embeddings"]
Source = Literal["paper", "code"]
SEALABLE = "use variant: matrix"


@dataclass(frozen=True)
class FedGAT(GatProtocol):
    """FedGAT; layers, heads, units and degree are the paper's for Cora, the rest was chosen on Cora's validation nodes.

    Attributes:
        variant: "matrix" (section 4) or "vector" (appendix F).
        layers, heads, hidden, output_heads: see :class:`fglaudit.nn.gat.GatShape`.
        degree, domain: of the Chebyshev series, on [-domain, domain].
        neighborhood: "closed": neighbours and the node itself.
        remote: how a client gets its neighbours' hidden embeddings: "matrices" or "embeddings", see above.
        rounds, local_steps, participation, weighting: see :class:`fglaudit.federated.fedavg.FedAvg`.
        optimizer, learning_rate, weight_decay, dropout: see :class:`fglaudit.federated.training.LocalSettings`.
        proximal, keep_optimizer, bounds, feature_dropout, choice: see
            :class:`fglaudit.protocols.fedgat.gat_training.GatSettings`.
        smoothing_hops: steps of propagation of the rows that arrived, at the server, before it masks them; 0: none.
        source: "paper", or "code" for the weights of the authors' code, see above.
        server_optimizer, server_learning_rate: see :class:`fglaudit.protocols.fedgat.gat_training.GatSettings`.
        path: how the first layer is computed: "matrices", "moments", or "auto": moments where rule 2 allows it.
    """

    name: ClassVar[str] = "fedgat"
    server_holds_edges: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("variant", "degree")
    emits: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, MaskedMatrices, MaskedVectors, Embeddings, ModelUpdate)

    variant: Variant = "matrix"
    layers: int = 2
    heads: int = 8
    hidden: int = 8
    output_heads: int = 1
    degree: int = 16
    domain: float = 2.0
    neighborhood: Neighborhood = "closed"
    remote: Remote = "embeddings"
    rounds: int = 150
    local_steps: int = 1
    participation: float = 1.0
    weighting: Weighting = "uniform"
    optimizer: Optimizer = "sgd"
    learning_rate: float = 2.0
    weight_decay: float = 5e-3
    dropout: float = 0.5
    feature_dropout: float = 0.5
    proximal: float = 0.0
    keep_optimizer: bool = True
    bounds: Bounds = "scores"
    choice: Choice = "last"
    smoothing_hops: int = 0
    source: Source = "paper"
    server_optimizer: ServerOptimizer = "none"
    server_learning_rate: float = 0.01
    path: PathName = "auto"

    def __post_init__(self) -> None:
        require_least(self, smoothing_hops=0)
        self.shape()
        attention_series(self.degree, self.domain)
        super().__post_init__()
        require_plain_steps(self.server_optimizer, self.server_learning_rate, self.optimizer)

    def smooth_over(self, graph: FederatedGraph) -> int:
        """Return by what scores are divided under the smooth function; 0 where there is none."""
        return graph.num_features if self.source == "code" else 0

    def series(self, graph: FederatedGraph) -> Series:
        return attention_series(self.degree, self.domain, self.smooth_over(graph))

    @property
    def masked(self) -> type[Masked]:
        """The payload of the variant."""
        return VARIANTS[self.variant]

    def structure(self, graph: FederatedGraph) -> Structure:
        rows = "smoothed" if self.smoothing_hops else "unit-ball"
        attention = Attention(self.degree, self.domain, rows, self.smooth_over(graph))
        return Structure((attention, *super().structure(graph).statements))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """The rows that clients send once, and the masked messages that the server makes of them, once; all the rest is
        computed from either. ``masked_sensitivity`` derives the gain of the second; topology counts as public.

        Noise on the masked messages forces the matrix path, so that clients train on nothing else.
        """
        edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
        receivers = torch.bincount(self.messages(edges, graph.num_clients) % graph.num_nodes, minlength=graph.num_nodes)
        gain: float | None = joint_gain(edges, receivers, self.masked)
        fields = dependent_fields(self.masked)
        rows = "every row is sent once, as it is; clients train on what the server computes from it"
        masks = "largest joint change over all rows, with public topology"
        if self.smoothing_hops:
            gain, masks = (
                None,
                f"rows are smoothed over {self.smoothing_hops} hops before: one is in most messages",
            )
        return (
            Release(RawFeatures, 1, 1.0, "node", covers_training=True, why=rows),
            Release(self.masked, 1, gain, "node", covers_training=True, why=masks, by_server=True, fields=fields),
        )

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Neighbourhoods are masked as clients know them, neighbours at other clients among them."""
        return True

    def examples(self, graph: FederatedGraph) -> str:
        return (
            "fedgat's losses see neighbours through messages made of their features in the clear, which noise on"
            " gradients leaves as they are"
        )

    def uploads(self, graph: FederatedGraph) -> Uploads:
        plain = self.bounds == "none" and self.server_optimizer == "none"
        return replace(self.averaging().uploads(graph), mean=plain)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The models, which the server averages; matrix variant: the rows, combined with the server's coefficients.


        Entries of ``U_j`` are at most ``(r + 1/r) / 2 <= 5/4``, those of ``u1_j`` at most 1: with rows of norm at most
        1 no number in a message about b of them exceeds ``3/2 b``.
        """
        layout = self.shape().layout(graph.num_features, graph.num_classes)
        found = self.averaging().aggregates(graph, layout) if self.server_optimizer == "none" else {}
        if self.masked is MaskedMatrices and not self.smoothing_hops:
            edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
            codes = self.messages(edges, graph.num_clients)
            nodes, sizes = codes % graph.num_nodes, edges.start.diff()
            found[RawFeatures] = Aggregate(
                rows=nodes,
                receivers=codes // graph.num_nodes,
                columns=graph.num_features,
                largest=1.5 * sizes,
                summands=sizes,
                weighted=True,
                weight=1.5 * float(sizes.max().item()),
                uploads=graph.num_nodes,
                parts=(8 * sizes**2 + 2 * sizes)[nodes],
                returned=MaskedMatrices,
            )
        return found

    def readers(self) -> Mapping[type[Payload], str]:
        made = "the server makes them of rows that it reads"
        vectors = f"the server adds masks of its own to vectors that it makes of them; {SEALABLE}"
        if self.smoothing_hops:
            vectors = made = "the server smooths rows that it reads; use smoothing_hops: 0"
        models = {} if self.server_optimizer == "none" else {ModelUpdate: "the server steps on their mean with Adam"}
        return models | {
            RawFeatures: vectors,
            MaskedVectors: f"{made}; {SEALABLE}",
            Embeddings: "clients send them to each other, and the receiver computes attention on them",
        }

    def messages(self, edges: KeptEdges, num_clients: int) -> Tensor:
        """Return which client gets the masked message of which node, as codes ``client x N + node``."""
        parties = Clients(edges, edges.owner, num_clients)
        codes = parties.own(edges.owner >= 0)
        return parties.needed(codes, self.layers, "compute")[0] if self.remote == "matrices" else codes

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes in the neighbourhoods that the observer is sent, ascending.

        For the server and the wire these are everybody's nodes, for clients the nodes within L hops of their own
        (``remote: matrices``) or their neighbours (``embeddings``, which themselves depend on nodes further away).
        """
        reach = self.layers if self.remote == "matrices" else 1
        return foreign_nodes_within(graph, observer, reach + self.smoothing_hops)

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """The rows of the nodes in the neighbourhoods that the first layer attends to for the training nodes: attention
        weighs each of them differently in every unit, so that an update is made of single rows."""
        if self.smoothing_hops:
            return None
        return attended_rows(graph, clients, self.layers, "compute" if self.remote == "matrices" else "leave")

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        training, initial, rest = self.prepare(graph, channel, rng, device)
        trained = training.run(initial, rest, federated=True)
        if training.worst_outside == 0:
            return trained
        left = (
            f"fedgat: {100 * training.worst_outside:.3g} % of the edge scores left the series' domain"
            f" [-{self.domain:g}, {self.domain:g}] in the worst round"
        )
        if channel.noise(self.masked) is not None:
            note = f"{left}, because of the noise on the messages; clients cut them off there"
        else:
            note = f"{left}; attention there is meaningless: raise domain or bound the weights"
        warnings.warn(note, stacklevel=2)
        return replace(trained, notes=(*trained.notes, note))

    def prepare(
        self, graph: FederatedGraph, channel: Channel, rng: torch.Generator, device: torch.device
    ) -> tuple[GatTraining, Tensor, torch.Generator]:
        """Prepare the rounds; return the training, the first model [D] and the generator for the rounds."""
        self.check(graph)
        self.refuse_messages(graph, channel)
        start, masks, rest = split(rng, "weights"), split(rng, "masks"), split(rng, "rounds")
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        x = self.collect(clients, graph, channel).to(device)
        if self.smoothing_hops:
            x = unit_rows(propagated(x, edges, self.smoothing_hops))
        elif not isinstance(x, SealedTensor):
            x = unit_ball(x)
        plan = Plan.of(clients, edges, self.layers, exchange=self.remote == "embeddings")
        layout = self.shape().layout(graph.num_features, graph.num_classes)
        initial = initial_model(layout, start).to(device, x.dtype)
        series = self.series(graph)
        codes = self.messages(edges, graph.num_clients)
        messages = degree_batches(
            edges, codes // graph.num_nodes, codes % graph.num_nodes, graph.num_features, self.masked
        )
        if self.from_messages(channel):
            sources, rows = merge_rows(edges, x, channel)
            if len(rows) > len(x) and self.remote == "matrices":
                raise FglauditError(
                    "neighbours can be merged only where a node's message goes to its owner; fedgat with remote"
                    " 'matrices' sends it to others, whose own rows are in it; use remote: embeddings"
                )
            used = torch.cat([plan.train.outputs[0].codes, plan.test.outputs[0].codes])
            received = deliver(messages, sources, rows, self.masked, used, channel, masks)

            def first(field: Field) -> FirstLayer:
                grid = field.outputs[0]
                found = [(batch, grid.find(codes)) for codes, batch in received]
                chosen = [batch.at(torch.where(at >= 0, grid.place[at], -1)) for batch, at in found]
                present = [batch for batch in chosen if batch is not None]
                return MaskedLayer(present, grid.size, graph.num_clients, series)

        else:
            announce(messages, x, self.masked, channel)

            def first(field: Field) -> FirstLayer:
                return edge_layer(field, x, series_scores(series), graph.num_clients)

        problem = plan.problem(first, edges.owner.clamp(min=0), graph.num_clients)
        training = GatTraining(problem, self.averaging(), self.settings(), layout, channel)
        noisy = channel.noise(RawFeatures) is not None or random_rows(clients, graph)
        training.notes = remarks(self.smoothing_hops, noisy, "rows", "nothing is smoothed away")
        beyond = self.bounds == "none" or (self.bounds != "scores" and self.domain < 2)
        if beyond or channel.noise(self.masked) is not None:
            evaluated = problem.test.first
            training.outside = outside_domain(evaluated, self.domain)
        return training, initial, rest

    def check(self, graph: FederatedGraph) -> None:
        entries = graph.edge_index.shape[1] + graph.num_nodes
        refuse_memory(
            self.name,
            graph.name,
            2 * 4 * entries * self.heads * self.hidden,
            "attention over its edges",
            "use a smaller graph, or lower heads or hidden",
        )
        if self.source == "code":
            require_smooth_domain(self.name, graph.name, self.domain, graph.num_features)
        super().check(graph)

    def check_messages(self, graph: FederatedGraph, kept: Callable[[type[Payload]], bool]) -> None:
        """Refuse masked messages that are too large though each node's went to its owner alone."""
        if kept(self.masked):
            sizes = graph.degrees()[torch.cat(graph.clients)] + 1
            refuse_too_large(self.name, graph.name, sizes, graph.num_features, self.masked)

    def refuse_messages(self, graph: FederatedGraph, channel: Channel) -> None:
        """Raise :class:`FglauditError` if masked messages must be made and are too large."""
        if self.from_messages(channel):
            refuse_too_large(self.name, graph.name, self._sizes(graph), graph.num_features, self.masked)

    def large_messages(self, graph: FederatedGraph) -> str:
        sent = sum(bytes_by_size(self._sizes(graph), graph.num_features, self.masked).values())
        return told_sent(self.name, graph.name, sent, self.masked.__name__, how_to_send_less(self.variant, self.remote))

    def _sizes(self, graph: FederatedGraph) -> Tensor:
        """Return the neighbourhood size of every masked message [n]; one that several clients get counts for each."""
        edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
        return edges.start.diff()[self.messages(edges, graph.num_clients) % graph.num_nodes]

    def from_messages(self, channel: Channel) -> bool:
        """Whether the first layer is evaluated from the received messages (rule 2)."""
        wanted = channel.wants(self.masked) or channel.seals(RawFeatures)
        if wanted and self.path == "moments":
            raise FglauditError(
                f"path 'moments' trains without {self.masked.__name__}, but a recorder or the defense needs them; use"
                " path 'auto'"
            )
        return wanted or self.path == "matrices"

    def collect(self, clients: list[ClientGraph], graph: FederatedGraph, channel: Channel) -> Tensor:
        """Have every client send its feature rows; return what the server received [N, F], 0 for nodes of no client."""
        senders = torch.arange(len(clients))
        lengths = torch.tensor([0, *(len(client.nodes) for client in clients)])
        nodes = torch.cat([client.nodes for client in clients])
        rows = torch.cat([client.x for client in clients])
        payload = RawFeatures(nodes, unit_ball(rows) if channel.seals(RawFeatures) else rows)
        arrived = to_server(channel, 0, senders, payload, lengths.cumsum(0))
        return torch.index_add(torch.zeros(graph.x.shape, dtype=arrived.x.dtype), 0, nodes, arrived.x.cpu())
