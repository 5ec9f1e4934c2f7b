"""FedGT (Zhang et al. 2023, arXiv:2401.15203): a graph transformer per client, averaged with the clients most like it.

Algorithms 1-3, equations (2)-(8). Every client encodes its own subgraph (edges to other clients are not used), attends
per node to n_s sampled neighbours and n_g global nodes, and keeps the global nodes by online clustering of the nodes'
input representations. Each round it uploads the change of its weights and its global nodes; the server aligns the
global nodes of every pair of clients, takes the mean cosine as similarity, and returns to each client averages of all
models and of all aligned global nodes, weighted by ``softmax(tau S)``.

What is observed: the server sees every client's global nodes (centroids in the space of a known affine map of the
features) and update in every round; client k sees averages of the others' models and global nodes.

Choices where the paper's text is silent:

* Global nodes live in the space of the first layer's input (one codebook of ``n_g d`` numbers, as section G counts),
  pass through the layers together with the nodes and are drawn from N(0, global_scale^2) by the server. Their counts c
  start at 1 and stay with the client. At scale 1, the typical start of a codebook, they have much larger norms than the
  representations: all nodes are assigned to one of them and the others never move. With the paper's noise this ends
  after one round, because clipping moves all of them near the origin. Without noise it persists (a note says so), and
  the similarities of clients are meaningless; 0.01 is then the better start (``python -m bench fedgt-choices``).
* A node batch of Algorithm 1 is the mini-batch's nodes and the neighbours drawn for them; it is applied after every
  step.
* The n_s nodes are drawn afresh in every step, with replacement, so that on average they count in proportion to their
  scores. Only the ``candidates`` with the largest scores can be drawn, the node itself among them. Tests use all
  candidates with their weights, the expectation of drawing as many as there are candidates (better on Cora's validation
  nodes than 16). With distinct nodes of equal weight, test accuracy on Cora was about two points lower in single runs.
* The feed-forward width is twice the hidden one, with GELU; dropout acts on the input and on both blocks of a layer.
* A client's Adam keeps its moments from round to round.
* Accuracy is that of the clients' own models after local training, the round the one with the best validation accuracy
  (mean over clients). ``tested: received`` tests the averages instead.
* ``similarity: label-distributions`` sends the shares of the classes among a client's training nodes once; with
  ``global-nodes-unaligned`` nothing is aligned, not in the averages either; ``fedavg`` weights by training nodes.
* Sealed changes can only be summed: the server then returns their mean, and clients add it to their previous model,
  which is the same for all of them (``fedavg`` only).
* The mean weight of a client's own model in its average stands in the record, round by round, as ``own_weight``; the
  weights of all pairs of clients are ``personal_weights`` of what training returns. Under noise one noisy upload is
  compared with another, and a client with itself at cosine 1, so that own weights are large; ``debiased`` takes the
  noise, which is known, off the similarities.
* Local differential privacy is not part of the protocol: the paper's is the defense ``clipped-laplace``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Uploads
from fglaudit.errors import FglauditError
from fglaudit.federated.fedavg import averaged_models
from fglaudit.federated.sending import from_server, to_server
from fglaudit.federated.subgraph_average import Tested
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.federated.subgraph_progress import Progress
from fglaudit.federated.subgraph_training import SubgraphSettings
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.matched_nodes import align, average_global_nodes
from fglaudit.payloads import GlobalNodes, LabelDistributions, ModelUpdate, Payload
from fglaudit.protocols.fedgt.alignment import cosine_similarity, personal_weights, without_noise
from fglaudit.protocols.fedgt.hybrid_protocol import HybridProtocol
from fglaudit.sealing import SealedTensor
from fglaudit.structure import Centroids, PersonalAverages, Structure

Similarity = Literal["global-nodes", "global-nodes-unaligned", "local-updates", "label-distributions", "fedavg"]
COLLAPSED = 0.999
"""A client's weight in its own average above which the others no longer count."""


@dataclass(frozen=True)
class FedGT(HybridProtocol):
    """FedGT; see :class:`fglaudit.protocols.fedgt.hybrid_protocol.HybridProtocol` for the clients' fields.

    Attributes:
        similarity: what clients are compared by, or "fedavg" for one average for all.
        tau: sharpness of the personalised weights.
        keep_optimizer: see :class:`fglaudit.federated.subgraph_training.SubgraphSettings`.
        tested: "local" or "received" models.
        debiased: whether the server takes a defense's known noise off the similarities of global nodes and of updates.
    """

    name: ClassVar[str] = "fedgt"
    shown: ClassVar[tuple[str, ...]] = ("similarity", "tau")
    emits: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate, LabelDistributions)

    similarity: Similarity = "global-nodes"
    tau: float = 5.0
    keep_optimizer: bool = True
    tested: Tested = "local"
    debiased: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.tau >= 0 and math.isfinite(self.tau)):
            raise FglauditError(f"tau must be finite and not negative; got {self.tau:g}; the paper uses 5")

    def settings(self) -> SubgraphSettings:
        return replace(super().settings(), keep_optimizer=self.keep_optimizer)

    def structure(self, graph: FederatedGraph) -> Structure:
        stated = super().structure(graph).statements
        form = self.form()
        centroids = Centroids(self.global_nodes, self.hidden, self.momentum, form.normalised)
        if self.similarity == "global-nodes" and not self.debiased:
            stated = (PersonalAverages(self.tau), *stated)
        return Structure((centroids, form.statement(), *stated))

    def uploads(self, graph: FederatedGraph) -> Uploads:
        """Changes of weights; every client gets an average of its own, of models that the server keeps."""
        clients = graph.num_clients
        uploads = Uploads(clients, clients, 1.0, changes=True, mean=False)
        one = self.similarity == "fedavg"  # average for all, who start from one model
        return replace(uploads, by_training_nodes=True, mean_rounds=self.rounds) if one else uploads

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """With ``similarity: fedavg`` the changes of the models, of which the server takes a weighted mean for all."""
        if self.similarity != "fedavg":
            return {}
        layout = self.layout(graph.num_features + self.positions, graph.num_classes)
        return averaged_models(layout, graph.num_clients, graph.num_clients, self.rounds, weighted=True)

    def readers(self) -> Mapping[type[Payload], str]:
        again = "the server adds them to models of its own for every client, and averages those again in every round"
        return {
            GlobalNodes: "the server matches them by the Hungarian method and compares them by their cosines",
            LabelDistributions: "the server compares them by their cosines",
            ModelUpdate: "the server compares them by their cosines" if self.similarity == "local-updates" else again,
        }

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        models, model, global_nodes = self.prepare(graph, channel, rng, device)
        clients = graph.num_clients
        everyone = torch.arange(clients)
        sent, centers = model.expand(clients, -1), global_nodes.expand(clients, -1, -1)
        labels = self._label_distributions(models.inputs, graph.num_classes, channel)
        progress = Progress(models)
        weights, averages = torch.empty(0), []
        models.load(*self._return(0, sent, centers, channel))
        for round in range(1, self.rounds + 1):
            before = models.vectors.clone()
            models.train_round()
            if self.tested == "local":
                progress.test()
            progress.keep_clustering()
            change = to_server(channel, round, everyone, ModelUpdate(models.vectors - before))
            uploaded = to_server(channel, round, everyone, GlobalNodes(models.global_nodes))
            weights, matching = self._compare(
                change.vector, uploaded.values, labels, models.inputs.train.sum(1), channel
            )
            averages.append(weights)
            sealed = isinstance(change.vector, SealedTensor)
            sent = weights @ (change.vector if sealed else sent + change.vector)
            returned = average_global_nodes(uploaded.values, matching, weights)
            received, received_nodes = self._return(round, sent, returned, channel)
            models.load(before + received if sealed else received, received_nodes)
            if self.tested == "received":
                progress.test()
            channel.round_done(round, self.rounds)
        trained = progress.finish((*self._collapsed(weights), *self._unused(progress.clusters)))
        own = torch.stack([each.diagonal().mean() for each in averages])
        return replace(
            trained, series={"own_weight": own.cpu()}, matrices={"personal_weights": torch.stack(averages).cpu()}
        )

    def _label_distributions(self, inputs: SubgraphInputs, classes: int, channel: Channel) -> Tensor | None:
        """Have clients send the shares of their training labels [K, C], if the server compares clients by them."""
        if self.similarity != "label-distributions":
            return None
        kinds = torch.nn.functional.one_hot(inputs.labels.clamp(min=0), classes) * inputs.train.unsqueeze(2)
        shares = kinds.sum(1) / inputs.train.sum(1, keepdim=True).clamp(min=1)
        return to_server(channel, 0, torch.arange(len(shares)), LabelDistributions(shares)).values

    def _compare(
        self, change: Tensor, centers: Tensor, labels: Tensor | None, train: Tensor, channel: Channel
    ) -> tuple[Tensor, Tensor]:
        """Return the personal weights [K, K] and the matchings of global nodes [K, K, n_g]."""
        similarity, matching = align(centers)
        match self.similarity:
            case "fedavg":
                return (train / train.sum()).expand(len(train), -1).to(change), matching
            case "global-nodes-unaligned":
                similarity = torch.nn.functional.cosine_similarity(centers.unsqueeze(1), centers.unsqueeze(0), 3).mean(
                    2
                )
                matching = torch.arange(centers.shape[1], device=centers.device).expand_as(matching)
            case "local-updates":
                similarity = cosine_similarity(change)
            case "label-distributions":
                assert labels is not None
                similarity = cosine_similarity(labels)
        if self.debiased:
            similarity = self._without_noise(similarity, change, centers, channel)
        return personal_weights(similarity, self.tau), matching

    def _without_noise(self, similarity: Tensor, change: Tensor, centers: Tensor, channel: Channel) -> Tensor:
        """Return ``similarity`` without the noise of a defense on what it was computed from."""
        if self.similarity == "label-distributions":
            return similarity
        kind: type[Payload] = ModelUpdate if self.similarity == "local-updates" else GlobalNodes
        noise = channel.noise(kind)
        return (
            similarity
            if noise is None
            else without_noise(similarity, change if kind is ModelUpdate else centers, noise.std)
        )

    def _return(self, round: int, models: Tensor, centers: Tensor, channel: Channel) -> tuple[Tensor, Tensor]:
        """Have the server send every client its model and global nodes; return what they receive."""
        clients = torch.arange(len(models))
        model = from_server(channel, round, clients, ModelUpdate(models))
        center = from_server(channel, round, clients, GlobalNodes(centers))
        return model.vector, center.values

    def _collapsed(self, weights: Tensor) -> tuple[str, ...]:
        own = float(weights.diagonal().min().item())
        if len(weights) == 1 or own < COLLAPSED:
            return ()
        note = (
            f"{self.name}: with tau {self.tau:g} every client's own model has a weight of {own:.4f} or more in its"
            " average: nothing is learned from others; lower tau"
        )
        warnings.warn(note, stacklevel=3)
        return (note,)

    def _unused(self, clusters: Tensor) -> tuple[str, ...]:
        if self.global_nodes == 1 or not bool(((clusters == clusters[:, :1]) | (clusters < 0)).all()):
            return ()
        return (
            (
                f"{self.name}: at every client one global node stands for all nodes, the other {self.global_nodes - 1}"
                " for none; without noise on global nodes use global_scale: 0.01"
            ),
        )
