"""A linear classifier that clients train by federated averaging on their own nodes' inputs, and what a client can make
of its own features without a message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, require_known
from fglaudit.federated.fedavg import FedAvg
from fglaudit.federated.neighborhood import HeldRows, KeptEdges
from fglaudit.federated.problem import Problem, Targets, gather_features
from fglaudit.federated.training import LocalSettings
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.sparse import row_starts
from fglaudit.nn.weights import Layout, gcn_layout, glorot
from fglaudit.rng import split
from fglaudit.sparse_tensors import csr

OWN_ROW, OWN_SUBGRAPH, NO_FEATURES = "own-row", "own-subgraph", "none"
AtHome = Literal["own-row", "own-subgraph", "none"]
AT_HOME: tuple[AtHome, ...] = get_args(AtHome)
HOME_HOPS = {OWN_ROW: 0, OWN_SUBGRAPH: 2, NO_FEATURES: 0}
"""From how far away, within its client, features reach a node's input."""


@dataclass(frozen=True)
class HomeHead:
    """Softmax regression without a bias, trained by :class:`fglaudit.federated.fedavg.FedAvg` with SGD.

    Attributes:
        features_at_home: a node's own features in its input: its own row ("own-row"), two steps of propagation within
            the client's own subgraph, degrees included ("own-subgraph"), or "none".
        home_weight: length of that part of an input, beside 1 for each other part.
    """

    features_at_home: str
    home_weight: float
    rounds: int
    local_steps: int
    learning_rate: float
    weight_decay: float

    def __post_init__(self) -> None:
        require_known(self, features_at_home=AT_HOME)
        if not self.home_weight > 0:
            raise FglauditError(
                f"home_weight is the length of the features in an input, above 0; got {self.home_weight:g}; use "
                f"features_at_home: {NO_FEATURES} to leave them out"
            )
        self.averaging()

    def averaging(self) -> FedAvg:
        """Return how the models are trained and averaged."""
        settings = LocalSettings("sgd", self.learning_rate, self.weight_decay, 0.0)
        return FedAvg(self.rounds, self.local_steps, 1.0, "uniform", settings)

    def layout(self, inputs: int, classes: int) -> Layout:
        """Return the shape of the one weight, for ``inputs`` numbers per node."""
        return gcn_layout(inputs, 0, classes, 1)

    def width(self, num_features: int) -> int:
        """Return how many numbers of an input are features at home."""
        return 0 if self.features_at_home == NO_FEATURES else num_features

    def home(self, clients: Sequence[ClientGraph], num_nodes: int, device: torch.device) -> Tensor:
        """Return that part of every node's input [N, F], computed by its owner alone."""
        x = gather_features(clients, num_nodes).float().to(device)
        if self.features_at_home == OWN_SUBGRAPH:
            step = _own_step(clients, num_nodes).to(device)
            for _ in range(HOME_HOPS[OWN_SUBGRAPH]):
                x = step @ x
        return self.home_weight * unit_rows(x)[:, : self.width(x.shape[1])]

    def training_rows(self, clients: Sequence[ClientGraph], num_nodes: int) -> tuple[Tensor, Tensor]:
        """Return whose losses read which features: the clients of all training nodes [M], and that part of these nodes'
        inputs [M, F]."""
        owner = torch.cat([torch.full((int(c.train.sum()),), c.client) for c in clients])
        nodes = torch.cat([client.nodes[client.train] for client in clients])
        return owner, self.home(clients, num_nodes, torch.device("cpu"))[nodes]

    def train(
        self,
        clients: Sequence[ClientGraph],
        edges: KeptEdges,
        inputs: Tensor,
        num_classes: int,
        channel: Channel,
        rng: torch.Generator,
        start: Tensor | None = None,
        after: int = 0,
        of: int | None = None,
    ) -> Trained:
        """Train on ``inputs`` [N, D], each row held by the node's owner.

        Args:
            start: the model to go on from [D C]; None: a random one.
            after, of: see :meth:`fglaudit.federated.fedavg.FedAvg.train`.
        """
        device, layout = inputs.device, self.layout(inputs.shape[1], num_classes)
        problem = rows_alone(clients, edges)
        held = inputs[problem.rows.node[problem.needed(1)]]
        train, test = problem.fields(held, 1)
        initial = (glorot(layout, split(rng, "weights")) if start is None else start).to(device)
        return self.averaging().train(train, test, initial, layout, channel, rng, after=after, of=of)


def rows_alone(clients: Sequence[ClientGraph], edges: KeptEdges) -> Problem:
    """Return the problem of classifying every node by its own input row."""
    rows = HeldRows.within(edges, len(clients), 0)
    each = torch.arange(len(rows.node), device=rows.node.device)
    return Problem.on(Targets.of(clients, len(edges.owner)), rows, each, each, torch.zeros_like(each))


def unit_rows(rows: Tensor) -> Tensor:
    """Return ``rows`` [N, D] at length 1; rows of zeros stay."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.clamp(min=1e-12)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Return several rows per node, each at length ``1 / sqrt(their number)``, side by side."""
    return torch.cat([unit_rows(part) for part in parts], 1) / math.sqrt(max(1, len(parts)))


def _own_step(clients: Sequence[ClientGraph], num_nodes: int) -> Tensor:
    """Return one step of normalised propagation within every client's own subgraph, as a sparse matrix [N, N]."""
    pairs = [client.nodes[client.edge_index] for client in clients]
    loops = [client.nodes.expand(2, -1) for client in clients]
    row, column = torch.cat([*pairs, *loops], 1)
    order = torch.argsort(row, stable=True)
    row, column = row[order], column[order]
    scale = torch.bincount(row, minlength=num_nodes).clamp(min=1).float().rsqrt()
    return csr(row_starts(row, num_nodes), column, scale[row] * scale[column], num_nodes)
