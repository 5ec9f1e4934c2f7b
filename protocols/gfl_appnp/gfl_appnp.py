"""GFL-APPNP (Wu et al., CIKM workshop 2022): every node is a client; hidden representations and Jacobians are shared.

Sections 3-5, Algorithm 1, equations (13)-(16). All clients share an encoder ``h(x) = relu(x W1) W2``; client k
classifies its samples with ``softmax(A_kk h(x_k) + C_k)``, ``C_k = sum_{j != k} A_kj h_j``, A the personalised
propagation of APPNP. Every I local steps models are averaged; then each client j sends its hidden representation
``h_j`` (mean over its samples) and its Jacobian ``dh_j / dW`` under the new model, and the server returns ``C_k`` and
``dC_k = sum_{j != k} A_kj dh_j / dW``, which stay as they are during the next I steps (gradient compensation).

What is observed: the server sees every h_j, every Jacobian (which reveals features) and every model; client k sees the
global models, C_k and dC_k.

Variants (table 2): ``full``; ``v1`` adds standard normal noise to every entry of an uploaded Jacobian, afresh each time
(appendix A.2.5); ``v2`` shares no Jacobians.

Choices where the paper's text is silent or misprinted:

* A has APPNP's weights, alpha on the node itself; equation (13b) prints alpha and 1 - alpha swapped. ``truncated``: the
  authors' code gave the last power the weight ``alpha (1 - alpha)^M`` when their tables were made (0e8b938; not from
  August 2022 on).
* The gradient is ``(prediction - y) (A_kk dh_k + dC_k)``; equations (14), (15b) and Algorithm 1 print its negative and
  descend along it.
* ``averaging: trainers`` (default): clients without training samples send no models, and the mean is over those that
  do. I = 1 is then gradient descent on APPNP's loss. Algorithm 1 lets all N clients send and takes the mean over all
  (``averaging: all``: the others return what they got), which divides the learning rate by N over the number of
  trainers. With the printed learning rates and numbers of updates SNC then ends far below the printed accuracy;
  subCora, which ends above it with ``trainers``, comes closer to it; the other tasks hardly change. docs/gfl-appnp.md
  has the figures.
* ``h_j`` is the mean over all samples of the node, whatever their split: it needs no labels.
* After the last local steps models are averaged and hidden representations are shared once more, for the test; no
  Jacobians.
* A sample is classified with the global model and the C_k received with it. The round with the lowest validation loss
  counts, as in the paper (``choice: validation``).
* ``source: code`` does four things as the authors' code does them (``MingxuanZhangPurdue/GFL-APPNP``, 7e30252): a
  local step with batches is a whole pass over them; where samples have labels of their own ``h_j`` is the mean over the
  training samples; the graph may fall into parts, as their subgraphs of Cora do; first weights are uniform within
  ``1 / sqrt(in)``, as torch's linear layers begin.
* The server knows the topology, computes A and tells client k its A_kk; that is not recorded.

Where nobody records or changes Jacobians only their sizes are announced, and training uses their factors. V1's noise is
then drawn for the sums that are used, with their covariance ``A A'``: the distribution is the same, the draws are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Release, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.fedavg import ROUNDING, averaged_models, broadcast, largest_share, trainers, upload_models
from fglaudit.federated.neighborhood import foreign_nodes_within
from fglaudit.federated.node_clients import NodeClients, check_node_clients, task_of
from fglaudit.federated.node_progress import Choice, Record
from fglaudit.federated.perceptron_steps import LocalSteps
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.propagation import personalised_propagation
from fglaudit.nn.weights import Layout, fan_in, gcn_layout, glorot, unflatten
from fglaudit.payloads import (
    HiddenRepresentations,
    Jacobians,
    ModelUpdate,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
)
from fglaudit.protocols.gfl_appnp.hidden_sharing import Sharing, one_model
from fglaudit.protocols.gfl_appnp.jacobians import Hidden
from fglaudit.rng import split
from fglaudit.structure import Encoder, Models, Propagation, Structure
from fglaudit.view import Observer

Variant = Literal["full", "v1", "v2"]
Task = Literal["auto", "dnc", "snc", "sc"]
Source = Literal["paper", "code"]
Averaging = Literal["trainers", "all"]


@dataclass(frozen=True)
class GFLAPPNP(FederatedProtocol):
    """GFL-APPNP; defaults are the paper's for deterministic node classification on synthetic graphs with I = 10.

    Attributes:
        variant: "full", "v1" (noisy Jacobians) or "v2" (no Jacobians).
        task: "dnc", "snc" or "sc", refused on data of another shape; "auto" follows the data.
        hidden: H.
        alpha, propagation_steps: of the personalised propagation; the teleport probability and M.
        rounds: averagings; the paper's updates are rounds x local_steps.
        local_steps: I.
        averaging: who sends models: "trainers", the clients with training samples, or "all" clients.
        learning_rate, batch_size: see :class:`fglaudit.federated.perceptron_steps.LocalSteps`.
        jacobian_noise: standard deviation of V1's noise.
        choice: the round that counts: "validation" for the one with the lowest validation loss, or "last".
        source: "paper", or "code" for what the authors' code does otherwise (see above).
        truncated: the last power of the propagation has the weight ``alpha (1 - alpha)^M``, not ``(1 - alpha)^M``.
    """

    name: ClassVar[str] = "gfl-appnp"
    server_holds_edges: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("variant", "local_steps")
    emits: ClassVar[tuple[type[Payload], ...]] = (
        ModelUpdate,
        HiddenRepresentations,
        Jacobians,
        PropagatedRepresentations,
        PropagatedJacobians,
    )

    variant: Variant = "full"
    task: Task = "auto"
    hidden: int = 64
    alpha: float = 0.1
    propagation_steps: int = 10
    rounds: int = 300
    local_steps: int = 10
    averaging: Averaging = "trainers"
    learning_rate: float = 0.5
    batch_size: int = 0
    jacobian_noise: float = 1.0
    choice: Choice = "validation"
    source: Source = "paper"
    truncated: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise FglauditError(
                f"alpha is a probability strictly between 0 and 1; got {self.alpha:g}; the paper uses 0.1"
            )
        require_least(self, hidden=1, propagation_steps=0, rounds=1, jacobian_noise=0)
        self.local()

    def local(self) -> LocalSteps:
        return LocalSteps(self.local_steps, self.learning_rate, self.batch_size, passes=self.source == "code")

    def check(self, graph: FederatedGraph) -> None:
        found = task_of(graph)
        if self.task not in ("auto", found):
            raise FglauditError(
                f"task {self.task!r} needs {SHAPES[self.task]}; {graph.name!r} has features {tuple(graph.x.shape)} and"
                f" labels {tuple(graph.y.shape)}, which is task {found!r}; use csbm-{self.task}, or task: {found}"
            )
        check_node_clients(self.name, graph, connected=self.source == "paper")

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose hidden representations reach the observer, alone or in sums: within M hops."""
        return foreign_nodes_within(graph, observer, self.propagation_steps)

    def structure(self, graph: FederatedGraph) -> Structure:
        samples = "training" if self.shares_training(graph) else "all"
        encoder = Encoder("relu", self.jacobian_noise if self.variant == "v1" else 0.0, samples)
        propagation = Propagation(self.alpha, self.propagation_steps, self.truncated)
        return Structure((encoder, propagation, Models("weights"), self.local().training()))

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """What a client sends that depends on its features: representations, Jacobians, and its model if it trains.

        The Jacobian holds the features themselves, weighted by W2, and no rule bounds the weights; so no gain is known.
        """
        why = "it grows with the trained weights, which nothing bounds; clip the messages instead"
        jacobians = () if self.variant == "v2" else ((Jacobians, self.rounds),)
        sent = ((HiddenRepresentations, self.rounds + 1), *jacobians, (ModelUpdate, self.rounds))
        return tuple(
            Release(payload, times, None, "node", covers_training=False, why=why, one_message=True)
            for payload, times in sent
        )

    def examples(self, graph: FederatedGraph) -> str:
        return (
            "gfl-appnp's gradients are compensated by other clients' Jacobians, and its clients send representations"
            " and Jacobians made of their features in the clear, which noise on gradients leaves as they are; use"
            " joint-noise"
        )

    def uploads(self, graph: FederatedGraph) -> Uploads:
        if self.averaging == "trainers":
            return largest_share(graph, 1.0, "uniform")
        return Uploads(graph.num_clients, graph.num_clients, 1 / graph.num_clients)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The combinations of others' representations and Jacobians for every client, and the mean of the models."""
        layout = self.layout(graph)
        senders = graph.num_clients if self.averaging == "all" else len(trainers(graph))
        found = averaged_models(layout, graph.num_clients, senders, self.rounds)
        everyone, classes = torch.arange(graph.num_clients), graph.num_classes
        used = self.propagation(graph.edge_index, graph.num_nodes)
        weight = float((used.sum(1) - used.diagonal()).max().item()) * (1 + ROUNDING)
        sums: list[tuple[type[Payload], type[Payload], int, int]] = [
            (HiddenRepresentations, PropagatedRepresentations, classes, self.rounds + 1)
        ]
        if self.variant != "v2":
            sums.append((Jacobians, PropagatedJacobians, classes * found[ModelUpdate].columns, self.rounds))
        for sent, returned, columns, releases in sums:
            found[sent] = Aggregate(
                rows=everyone,
                receivers=everyone,
                columns=columns,
                largest=None,
                summands=torch.full_like(everyone, graph.num_clients - 1),
                weighted=True,
                weight=weight,
                releases=releases,
                uploads=graph.num_clients,
                returned=returned,
            )
        return found

    def shares_training(self, graph: FederatedGraph) -> bool:
        """Whether ``h_j`` is the mean over training samples alone."""
        return self.source == "code" and task_of(graph) == "sc"

    def propagation(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        """Return A [N, N]."""
        return personalised_propagation(
            edge_index, num_nodes, self.alpha, self.propagation_steps, truncated=self.truncated
        )

    def layout(self, graph: FederatedGraph) -> Layout:
        return gcn_layout(graph.num_features, self.hidden, graph.num_classes, 2)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        data = NodeClients.of(clients, device)
        rows = data.training_rows(graph.num_classes)
        weights = self.propagation(graph.edge_index.to(device), graph.num_nodes)
        own = weights.diagonal().clone()
        layout = self.layout(graph)
        first_weights = fan_in if self.source == "code" else glorot
        initial = first_weights(layout, split(rng, "weights")).to(device)
        batches, noise = split(rng, "batches"), split(rng, "jacobian-noise")
        noise_scale = {"full": 0.0, "v1": self.jacobian_noise, "v2": None}[self.variant]
        shared = data.trained_on() if self.shares_training(graph) else data
        sharing = Sharing(channel, weights - torch.diag(own), shared, rows.clients, layout, noise_scale, noise)
        local = self.local()
        record = Record(data, layout, self.choice)
        received = broadcast(channel, 0, initial, graph.num_clients)
        _, offset, others = sharing.exchange(0, received, last=False)
        for round in range(1, self.rounds + 1):
            first, second = unflatten(received[rows.clients], layout).values()
            trained = local.run(rows, first, second, own[rows.clients], offset[rows.clients], others, batches)
            model = self.average(
                round, torch.cat([part.flatten(1) for part in trained], 1), received, rows.clients, channel
            )
            received = broadcast(channel, round, model, graph.num_clients)
            hidden, offset, others = sharing.exchange(round, received, last=round == self.rounds)
            outputs = hidden.output
            if shared is not data:
                outputs = Hidden.of(data.x, *unflatten(received, layout).values()).output
            logits = own.view(-1, 1, 1) * outputs + offset.unsqueeze(1)
            record.add(logits, received[:1])
            channel.round_done(round, self.rounds)
        return record.trained()

    def average(self, round: int, trained: Tensor, received: Tensor, trainers: Tensor, channel: Channel) -> Tensor:
        """Have models uploaded; return the server's mean of them [D].

        Args:
            trained: models of the ``trainers`` [T, D] after their steps.
            received: the models that all clients started from [N, D].
        """
        sent = upload_models(channel, round, trainers, trained)
        idle = torch.ones(len(received), dtype=torch.bool)
        idle[trainers.cpu()] = False
        if self.averaging == "trainers" or not bool(idle.any()):
            return sent.mean(0)
        others = idle.nonzero().squeeze(1)
        same = one_model(received)
        unchanged = same.expand(len(others), -1) if len(same) == 1 else received[others]
        return (sent.sum(0) + upload_models(channel, round, others, unchanged).sum(0)) / len(received)


SHAPES = {
    "dnc": "one sample and one label per node",
    "snc": "several samples per node, x [N, S, F], with one label per node",
    "sc": "several samples per node, x [N, S, F], with a label each",
}
