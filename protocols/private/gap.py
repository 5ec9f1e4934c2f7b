"""GAP: aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet and Gatica-Perez, USENIX Security 2023).

1. Encoder: a network with one hidden layer is trained on the training nodes' own rows by federated averaging
   (section 4.1). A node's embedding ``h_j`` is what its hidden layer makes of its row, ``dimension`` numbers, at length
   1.
2. Aggregation (section 4.2, algorithm 2): ``S_i = sum over neighbours j of h_j``, to which a defense adds Gaussian
   noise, is brought to length 1 and summed again, for as many steps as the largest of ``hops``
   (:mod:`fglaudit.federated.embedding_sums`).
3. Classification (section 4.3): the same network is trained further with the rows after each of ``hops`` steps in its
   inputs, beside the node's own row. Their weights were not used before.

The paper has one trusted party with the whole graph. Here clients hold it, and ``noise_at`` says who adds the noise of
``{name: gaussian, on: EmbeddingSums}``: every client to its own sums (nobody is trusted, and a node with neighbours at
n clients gets n times the variance), or the server to the totals (trusted, as in the paper: clients send sums in the
clear).

**What is promised**, ``unit``, which the defense must name too:

* "edge": one edge, there or not; features and labels public. It moves two sums by 1 each: sqrt(2) in every step, and
  there are as many releases as steps. Clients send a row for every node. Models are trained on own rows and on noisy
  totals, so that everything later is covered.
* "reporting node": the row of a node in neither the training nor the validation set, edges and labels public. It enters
  the sums of its neighbours, at most ``most_uses``, and nothing else. It moves each by 2 at most, whatever the row: an
  epsilon for ``2 sqrt(most_uses)``. All further steps, over public edges, are post-processing of the first
  (``HopSums``), so only the first is a release.
* "node": any node's row. Training nodes' rows move the models too: no epsilon without ``dp-sgd`` in the same stack.

Not offered is the paper's node level, where a node's edges come and go with it: whoever bounds degrees by a rule makes
room for another neighbour where one goes, and then as many as all of a node's neighbours change their sums twice
(``fglaudit/privacy/degree_bound.py``). A node with d edges has d times the epsilon of an edge.

What is observed: the server sees every client's sums of embeddings, often a single one, all totals and all models; a
client the totals of its own nodes. In further steps over public edges both see rows of nodes with neighbours elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import torch
from torch import Tensor

from fglaudit.context import REPORTING_NODE, Aggregate, Examples, Release, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.embedding_sums import EmbeddingExchange
from fglaudit.federated.fedavg import FedAvg, averaged_models, trainers
from fglaudit.federated.home_head import joined, rows_alone, unit_rows
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighborhood import KeptEdges, foreign_nodes_within
from fglaudit.federated.problem import check_trainable, gather_features
from fglaudit.federated.training import LocalSettings, Optimizer
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.codes import public_codes
from fglaudit.nn.weights import Layout, gcn_layout, glorot
from fglaudit.payloads import EmbeddingSums, HopSums, ModelUpdate, Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.private.structure_only import check_hops
from fglaudit.rng import split
from fglaudit.structure import Codes, EmbeddedRows, Models, Structure
from fglaudit.view import Observer

EDGE: Final = "edge"
REPORTING: Final = REPORTING_NODE
NODE: Final = "node"
RecordUnit = Literal["edge", "reporting node", "node"]
CLIENTS, TRUSTED = "clients", "server"
NoiseAt = Literal["clients", "server"]
CODES = "codes"
SumsOf = Literal["rows", "codes"]


@dataclass(frozen=True)
class GAP(FederatedProtocol):
    """Noisy sums of short embeddings over several steps, own rows at home.

    Attributes:
        hops: after how many steps rows enter a node's input, ascending.
        unit: whom a defense of the sums may promise anything: "edge", "reporting node" or "node".
        noise_at: who adds the noise to the sums: "clients" or "server"; ``trust`` is taken for it.
        most_uses: neighbours that use a node's embedding, at most; 0: all. Not where edges are the unit.
        dimension: numbers of an embedding.
        sums_of: "rows": embeddings of nodes' own rows; "codes": public pseudo-random codes of so many numbers, so that
            no feature is in any sum (``structure-only`` with an epsilon for edges). The unit is then an edge.
        code_seed: of the codes, public; ``seed`` is taken for it.
        home_weight: length of a node's own row in an input, beside length 1 of what was aggregated.
        encoder_rounds, rounds: of training before and after the aggregation.
        local_steps, optimizer, learning_rate, weight_decay: of federated averaging.
    """

    name: ClassVar[str] = "gap"
    shown: ClassVar[tuple[str, ...]] = ("hops", "unit", "noise_at")
    also: ClassVar[Mapping[str, str]] = {"seed": "code_seed", "trust": "noise_at"}
    emits: ClassVar[tuple[type[Payload], ...]] = (EmbeddingSums, HopSums, ModelUpdate)
    later: ClassVar[str] = "totals"

    hops: tuple[int, ...] = (1, 2)
    unit: RecordUnit = "edge"
    noise_at: NoiseAt = "clients"
    most_uses: int = 0
    dimension: int = 16
    sums_of: SumsOf = "rows"
    code_seed: int = 0
    home_weight: float = 1.0
    encoder_rounds: int = 30
    rounds: int = 60
    local_steps: int = 3
    optimizer: Optimizer = "sgd"
    learning_rate: float = 2.0
    weight_decay: float = 3e-3

    def __post_init__(self) -> None:
        check_hops(self.name, self.hops)
        require_least(self, most_uses=0, dimension=1, encoder_rounds=1)
        if self.unit == EDGE and self.most_uses:
            raise FglauditError(
                "most_uses bounds what a row moves, not what an edge moves: one that goes makes room for another; got "
                f"most_uses: {self.most_uses} with unit: edge; use most_uses: 0"
            )
        if self.sums_of == CODES and (self.unit != EDGE or self.later != "totals"):
            raise FglauditError(
                f"sums of public codes hold no feature: {self.name} promises nothing of them but edges, and trains no"
                f" codes; got unit: {self.unit}; use gap with unit: edge, or sums_of: rows"
            )
        if not self.home_weight > 0:
            raise FglauditError(f"home_weight is a length above 0; got {self.home_weight:g}; raise it")
        self.averaging(self.rounds)

    def averaging(self, rounds: int) -> FedAvg:
        """Return how the models are trained and averaged, for so many ``rounds``."""
        settings = LocalSettings(self.optimizer, self.learning_rate, self.weight_decay, 0.0)
        return FedAvg(rounds, self.local_steps, 1.0, "uniform", settings)

    @property
    def num_rounds(self) -> int:
        return self.encoder_rounds + self.rounds

    @property
    def noisy_steps(self) -> int:
        """In how many steps embeddings are summed that depend on what the unit protects."""
        return max(self.hops) if self.unit == EDGE else 1

    @property
    def free_steps(self) -> int:
        """How many further steps are taken over public edges, with rows that were released before."""
        return max(self.hops) - self.noisy_steps

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def structure(self, graph: FederatedGraph) -> Structure:
        free = (Codes(0, 0, self.free_steps),) if self.free_steps else ()
        seed = self.code_seed if self.sums_of == CODES else -1
        embedded = EmbeddedRows(self.dimension, self.noisy_steps, self.later, self.most_uses, self.padded, seed)
        training = self.averaging(1).training()
        return Structure((embedded, *free, Models("weights"), training))

    @property
    def padded(self) -> bool:
        """Whether clients send a row for every node, so that which rows are there says nothing of edges."""
        return self.unit == EDGE

    def exchange(self, graph: FederatedGraph) -> EmbeddingExchange:
        """Return who sends sums of what on ``graph`` as it is."""
        edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
        return EmbeddingExchange.of(edges, graph.num_clients, self.most_uses, padded=self.padded)

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """The sums; of any node's row the models too. Embeddings have length 1 at most whatever the row is."""
        by_server, times = self.noise_at == TRUSTED, self.noisy_steps
        if self.unit == EDGE:
            gain, why = math.sqrt(2), "an edge is in two sums, with an embedding of length at most 1 in each"
        else:
            exchange = self.exchange(graph)
            gain = exchange.gain()
            why = f"an embedding of length at most 1 is in {exchange.uses()} sums, with public topology"
        sums = Release(
            EmbeddingSums,
            times,
            gain,
            self.unit,
            self.unit != NODE,
            why,
            by_server=by_server,
            fields=("sums",),
            subgraphs=self.unit != EDGE and not self.most_uses,
            row_norm=1.0,
        )
        if self.unit != NODE:
            return (sums,)
        trained = "models are trained on the rows of training nodes"
        return (sums, Release(ModelUpdate, self.num_rounds, None, NODE, False, trained))

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Sums of embeddings go over neighbours at other clients too."""
        return True

    def examples(self, graph: FederatedGraph) -> Examples:
        """A node's loss sees its own row, and sums that were released before."""
        return node_examples(graph, passes=self.num_rounds * self.local_steps, hops=0)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return self.averaging(1).uploads(graph)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """Of models the server takes the mean; sums it adds, if nothing else is asked of it."""
        models = averaged_models(self.layout(graph), graph.num_clients, len(trainers(graph)), self.num_rounds)
        if self.noise_at == TRUSTED or self.free_steps:
            return models
        return {EmbeddingSums: self.exchange(graph).aggregate(self.dimension, self.noisy_steps), **models}

    def readers(self) -> Mapping[type[Payload], str]:
        if self.noise_at == TRUSTED:
            return {EmbeddingSums: "the server adds the noise to them; use noise_at: clients"}
        if not self.free_steps:
            return {}
        passed = "clients pass totals on in the clear for the further steps; use hops: [1]"
        return {EmbeddingSums: passed, HopSums: passed}

    def inputs(self, graph: FederatedGraph) -> int:
        """Return how many numbers a node's input has."""
        return graph.num_features + len(self.hops) * self.dimension

    def layout(self, graph: FederatedGraph) -> Layout:
        return gcn_layout(self.inputs(graph), self.dimension, graph.num_classes, 2)

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose embeddings are in the sums that the observer sees, ascending."""
        return foreign_nodes_within(graph, observer, max(self.hops))

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        own = self.home_weight * unit_rows(gather_features(clients, graph.num_nodes).float().to(device))
        problem, layout = rows_alone(clients, edges), self.layout(graph)
        held = problem.rows.node[problem.needed(2)]

        def trained(aggregated: Sequence[Tensor], start: Tensor, after: int, rounds: int) -> Trained:
            train, test = problem.fields(self.joined(own, aggregated)[held], 2)
            averaging = self.averaging(rounds)
            return averaging.train(train, test, start, layout, channel, rng, after=after, of=self.num_rounds)

        stages = [trained((), glorot(layout, split(rng, "weights")).to(device), 0, self.encoder_rounds)]
        exchange = EmbeddingExchange.of(edges, graph.num_clients, self.most_uses, padded=self.padded)
        self.aggregate(own, exchange, edges, channel, stages, trained)
        noisy = channel.noise(EmbeddingSums) is not None
        return replace(Trained.of_stages(stages), notes=(*stages[-1].notes, *self.remarks(noisy)))

    def aggregate(
        self,
        own: Tensor,
        exchange: EmbeddingExchange,
        edges: KeptEdges,
        channel: Channel,
        stages: list[Trained],
        trained: Stage,
    ) -> None:
        """Sum embeddings of ``own`` rows [N, F] step by step, then train on; append to ``stages``."""
        if self.sums_of == CODES:
            rows = unit_rows(public_codes(len(own), self.dimension, self.code_seed).to(own))
        else:
            rows = self.embedded(own, (), stages[-1])
        found: list[Tensor] = []
        for step in range(1, self.noisy_steps + 1):
            rows = unit_rows(exchange.total(rows, channel, self.encoder_rounds + step - 1))
            found += [rows] if step in self.hops else []
        if self.free_steps:
            over, now = HopExchange.of(edges, exchange.num_clients), self.encoder_rounds + self.noisy_steps
            later = [hop - self.noisy_steps for hop in self.hops if hop > self.noisy_steps]
            found += over.steps(rows, over.deliver(rows, channel, now - 1), later, channel, now)
        stages.append(trained(found, vector(stages[-1], own.device), self.encoder_rounds, self.rounds))

    def joined(self, own: Tensor, aggregated: Sequence[Tensor]) -> Tensor:
        """Return the inputs [N, D]: own rows, what was aggregated at length 1 in all, zeros for what was not yet."""
        blank = own.new_zeros(len(own), (len(self.hops) - len(aggregated)) * self.dimension)
        return torch.cat([own, *([joined(aggregated)] if aggregated else []), blank], 1)

    def embedded(self, own: Tensor, aggregated: Sequence[Tensor], model: Trained) -> Tensor:
        """Return what the hidden layer of ``model`` makes of every node's input, at length 1 [N, dimension]."""
        return unit_rows(self.joined(own, aggregated) @ model.weights["layers.0.weight"].to(own.device))

    def remarks(self, noisy: bool) -> tuple[str, ...]:
        """Return what a reader must know where the sums got no noise."""
        if noisy:
            return ()
        return ("sums of embeddings are sent as they are; gaussian with on: EmbeddingSums is the mechanism of GAP",)


Stage = Callable[[Sequence[Tensor], Tensor, int, int], Trained]
"""From what was aggregated, a model [D], rounds before and rounds, to the trained model."""


def vector(model: Trained, device: torch.device) -> Tensor:
    """Return the weights of ``model`` as one vector [D]."""
    return torch.cat([weight.flatten() for weight in model.weights.values()]).to(device)
