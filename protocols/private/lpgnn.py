"""LPGNN: locally private rows and labels, denoised by propagation (Sajadmanesh and Gatica-Perez, CCS 2021).

Every client sends its nodes' rows, and the labels of its training and validation nodes, to the server once
(``RawFeatures``, ``ClassReports``); the server knows the graph and trains alone, so that all it does is
post-processing:

1. Rows: the defense ``multi-bit`` makes them random before they leave (section 4.1). The server propagates them
   ``feature_hops`` steps (KProp, section 4.2) and brings them to length 1.
2. Labels: clients randomise them themselves, by k-ary randomised response at ``label_epsilon`` (section 4.3).
3. Drop (section 4.3): a two-layer GraphSAGE predicts a class per node. Its predictions are multiplied by the matrix of
   the response, so that they predict *random* labels, and propagated ``label_hops`` steps; the random labels are
   propagated alike, and are the target of cross-entropy on the training nodes, as shares. The epoch with the least such
   loss on the validation nodes, whose labels are random too, counts.

**What is promised**: the epsilon of ``multi-bit`` covers a node's features, and that of the response its label; a
node's row and label together spend the sum of both. This tool accounts and audits each (field ``labels`` in
``guarantees.csv``: :mod:`fglaudit.empirical.label_responses`). ``label_epsilon: 0`` sends labels as they are. Edges are
public.

What is observed: the server sees every row and every such label as they were sent; clients see nothing.

Not the paper's: rows at length 1 in place of batch normalisation, and shares in place of the likeliest class. Steps are
``D^-1/2 A D^-1/2``, for rows with self-loops and for labels without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.context import Release
from fglaudit.errors import require_least
from fglaudit.federated.home_head import unit_rows
from fglaudit.federated.neighborhood import KeptEdges, foreign_nodes_within
from fglaudit.federated.problem import check_trainable, pooled
from fglaudit.federated.sending import to_server
from fglaudit.federated.smoothing import propagated
from fglaudit.federated.training import LocalSettings, accuracies
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.responses import keep_probability, response_matrix
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import Layout, glorot, unflatten
from fglaudit.payloads import SERVER, ClassReports, Payload, RawFeatures
from fglaudit.privacy.accounting import check_budget
from fglaudit.protocols.private.label_propagation import send_labels
from fglaudit.rng import moved, split
from fglaudit.structure import Reports, Structure
from fglaudit.view import Observer


@dataclass(frozen=True)
class LPGNN(FederatedProtocol):
    """A GraphSAGE that the server trains on propagated private rows and labels; defaults are the authors' for Cora at
    an epsilon of 1 for rows and for labels.

    Attributes:
        label_epsilon: of a label's k-ary response; 0: labels are sent as they are.
        feature_hops, label_hops: steps of propagation of rows, and of labels and predictions.
        hidden, dropout: of the network.
        rounds: epochs of full-batch training with Adam.
        learning_rate, weight_decay: of Adam.
    """

    name: ClassVar[str] = "lpgnn"
    server_holds_edges: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("label_epsilon", "feature_hops", "label_hops")
    emits: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, ClassReports)

    label_epsilon: float = 1.0
    feature_hops: int = 2
    label_hops: int = 8
    hidden: int = 16
    dropout: float = 0.5
    rounds: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 1e-3

    def __post_init__(self) -> None:
        if self.label_epsilon:
            check_budget(self.label_epsilon, 0.0, pure=True)
        require_least(self, feature_hops=0, label_hops=0, hidden=1, rounds=1)
        self.settings()

    def settings(self) -> LocalSettings:
        return LocalSettings("adam", self.learning_rate, self.weight_decay, self.dropout)

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def structure(self, graph: FederatedGraph) -> Structure:
        training = self.settings().training(1, keep_optimizer=True)
        keep = keep_probability(self.label_epsilon, graph.num_classes) if self.label_epsilon else 1.0
        return Structure((Reports(graph.num_classes, "label", keep), training))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """The rows, once; labels carry no feature."""
        why = "every row is sent once, as it is; the server trains on nothing else of features"
        return (Release(RawFeatures, 1, 1.0, "node", covers_training=True, why=why, fields=("x",)),)

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """The server propagates what arrived over all edges that clients name."""
        return True

    def examples(self, graph: FederatedGraph) -> str:
        return f"{self.name}'s server trains on rows and labels as they arrived, which noise on gradients leaves alone"

    def readers(self) -> Mapping[type[Payload], str]:
        reads = "the server computes with what it reads"
        return {RawFeatures: reads, ClassReports: reads}

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose rows the observer is sent: the server's and the wire's alone."""
        nobody = torch.empty(0, dtype=torch.long)
        return foreign_nodes_within(graph, observer, 1) if observer.wire or SERVER in observer.parties else nobody

    def layout(self, graph: FederatedGraph) -> Layout:
        widths = ((graph.num_features, self.hidden), (self.hidden, graph.num_classes))
        return {f"layers.{index}.{part}": shape for index, shape in enumerate(widths) for part in ("self", "neighbour")}

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        start, responses = split(rng, "weights"), split(rng, "labels")
        dropout = moved(split(rng, "dropout"), device)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        x = unit_rows(propagated(self.send_rows(clients, graph, channel).to(device), edges, self.feature_hops))
        used = [client.train | client.val for client in clients]
        labels = send_labels(clients, used, self.label_epsilon, graph, channel, responses).to(device)
        mean, step = neighbours(edges)
        target = shares(self.spread(labels, step))
        whole = pooled(graph)
        train, val, test = (torch.zeros(graph.num_nodes, dtype=torch.bool, device=device) for _ in range(3))
        train[whole.nodes], val[whole.nodes], test[whole.nodes] = (
            mask.to(device) for mask in (whole.train, whole.val, whole.test)
        )
        matrix, layout = response_matrix(self.label_epsilon, graph.num_classes).to(device), self.layout(graph)
        initial = unflatten(glorot(layout, start).unsqueeze(0).to(device), layout)
        weights = {name: weight.squeeze(0).clone().requires_grad_() for name, weight in initial.items()}
        optimizer = torch.optim.Adam(weights.values(), lr=self.learning_rate, weight_decay=self.weight_decay)

        def losses(logits: Tensor) -> Tensor:
            spread = self.spread(logits.softmax(1) @ matrix, step)
            return -(target * shares(spread).clamp(min=1e-12).log()).sum(1)

        owner, y = graph.owner().to(device), graph.y.to(device)
        correct, best = [], torch.tensor(float("inf"), device=device)
        chosen = torch.tensor(0, device=device)
        kept = {name: weight.detach().clone() for name, weight in weights.items()}
        for round in range(1, self.rounds + 1):
            optimizer.zero_grad()
            loss = losses(self.logits(x, weights, mean, dropout))
            (loss * train).sum().div(train.sum()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad():
                logits = self.logits(x, weights, mean)
                seen = (losses(logits) * val).sum() / val.sum().clamp(min=1)
                better = (seen < best) | ~val.any()
                best, chosen = torch.where(better, seen, best), torch.where(better, round - 1, chosen)
                kept = {name: torch.where(better, weights[name], old) for name, old in kept.items()}
                hit = ((logits.argmax(1) == y) & test).float()
                sums = torch.zeros(graph.num_clients, device=device)
                correct.append(sums.index_add_(0, owner.clamp(min=0), hit))
            channel.round_done(round, self.rounds)
        counts = torch.bincount(owner[test], minlength=graph.num_clients)
        accuracy, accuracy_global = accuracies(correct, counts)
        final = {name: weight.detach().cpu() for name, weight in kept.items()}
        return Trained(accuracy, accuracy_global, final, layout, int(chosen.item()), notes=self.remarks())

    def send_rows(self, clients: list[ClientGraph], graph: FederatedGraph, channel: Channel) -> Tensor:
        """Have every client send its rows; return what the server received [N, F]."""
        nodes = torch.cat([client.nodes for client in clients])
        senders, splits = torch.arange(len(clients)), torch.tensor([0, *(len(c.nodes) for c in clients)]).cumsum(0)
        payload = RawFeatures(nodes, torch.cat([client.x for client in clients]).float())
        arrived = to_server(channel, 0, senders, payload, splits)
        return torch.zeros(graph.num_nodes, graph.num_features).index_add(0, nodes, arrived.x.cpu().float())

    def spread(self, rows: Tensor, step: SparseMatrix) -> Tensor:
        """Return ``rows`` [N, C] after ``label_hops`` steps."""
        for _ in range(self.label_hops):
            rows = step @ rows
        return rows

    def logits(
        self, x: Tensor, weights: Mapping[str, Tensor], mean: SparseMatrix, rng: torch.Generator | None = None
    ) -> Tensor:
        """Return [N, C] of rows [N, F]; ``rng`` draws the dropout of training."""
        hidden = functional.selu(layer(x, weights, mean, 0))
        if rng is not None and self.dropout > 0:
            kept = torch.rand(hidden.shape, generator=rng, device=hidden.device) >= self.dropout
            hidden = hidden * kept / (1 - self.dropout)
        return layer(hidden, weights, mean, 1)

    def remarks(self) -> tuple[str, ...]:
        """Return what a reader must know of the labels."""
        if not self.label_epsilon:
            return ("label_epsilon: 0: labels of training and validation nodes are sent as they are",)
        return (
            f"labels are sent by k-ary response at an epsilon of {self.label_epsilon:g}: a node's row and label"
            " together spend it on top of the epsilon of rows",
        )


def layer(x: Tensor, weights: Mapping[str, Tensor], mean: SparseMatrix, index: int) -> Tensor:
    """Return one layer of GraphSAGE [N, out]: a node's own row and the mean of its neighbours', before activation."""
    return x @ weights[f"layers.{index}.self"] + mean @ (x @ weights[f"layers.{index}.neighbour"])


def shares(rows: Tensor) -> Tensor:
    """Return ``rows`` [N, C], none negative, with a sum of 1 each; rows of zeros stay."""
    total: Tensor = rows.sum(1, keepdim=True)
    return rows / total.clamp(min=1e-12)


def neighbours(edges: KeptEdges) -> tuple[SparseMatrix, SparseMatrix]:
    """Return the mean over a node's neighbours and one step of ``D^-1/2 A D^-1/2``, both without self-loops."""
    row, source = edges.receivers().long(), edges.source.long()
    row, source = row[row != source], source[row != source]
    count = len(edges.owner)
    degree = torch.bincount(row, minlength=count).clamp(min=1).float()
    shape = (count, count)
    mean = SparseMatrix.from_entries(row, source, 1 / degree[row], shape)
    return mean, SparseMatrix.from_entries(row, source, (degree[row] * degree[source]).rsqrt(), shape)
