"""GCFL+ over GraphSAGE (Xie et al. 2021, arXiv:2106.13423), a row of FedGT's Tables 1 and 2 (sections 5.1 and D.2).

Clients train as in ``fedavg-sage`` and upload the change of their weights. The server keeps a model per cluster of
clients, adds to it the mean of its clients' changes, weighted by training nodes, and parts clusters whose clients pull
in different directions (``update_clusters``).

What is observed: the server sees every client's change in every round and reads its norm; a client sees the model of
its cluster, so that it learns, from the size of a step, when its cluster became smaller.

Thresholds and length of the sequences are those of the authors' code (``Oxfordblue7/GCFL``), as FedGT's authors say
that they kept defaults; they were set for small networks on molecules. Differences: the sequences hold norms of
changes, which the server has, while their main variant has clients report norms of their last gradients (their code has
both); a client without training nodes is in no cluster and receives the mean of all models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Aggregate, Uploads
from fglaudit.federated.fedavg import return_models, trainers, upload_models
from fglaudit.federated.subgraph_progress import Progress
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.update_clusters import WARM_UP, Clusters, Parting
from fglaudit.rng import split


@dataclass(frozen=True)
class GCFLSage(FedAvgSage):
    """GCFL+ over GraphSAGE; other fields are those of
    :class:`fglaudit.protocols.baselines.fedavg_sage.FedAvgSage`.

    Attributes:
        largest_mean, smallest_norm, sequence: see :class:`fglaudit.protocols.baselines.update_clusters.Parting`.
    """

    name: ClassVar[str] = "gcfl-sage"
    shown: ClassVar[tuple[str, ...]] = ("largest_mean", "smallest_norm")
    changes: ClassVar[bool] = True

    largest_mean: float = 0.05
    smallest_norm: float = 0.1
    sequence: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parting()

    def parting(self) -> Parting:
        """Return when a cluster is parted."""
        return Parting(self.largest_mean, self.smallest_norm, self.sequence)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        """Changes of weights; the server adds them to a model per cluster, of one client at worst, and to one of all
        before anything is parted."""
        senders = len(trainers(graph))
        return Uploads(senders, senders, 1.0, changes=True, mean=False, by_training_nodes=True, mean_rounds=WARM_UP)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        return {}

    def readers(self) -> Mapping[type[Payload], str]:
        return {ModelUpdate: "the server compares their norms to part clients into clusters"}

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        start, near, training = split(rng, "weights"), split(rng, "candidates"), split(rng, "training")
        models = self.clients(graph, channel, near, training, device)
        sizes = models.inputs.train.sum(1)
        senders = sizes.cpu().nonzero().squeeze(1)
        chosen = senders.to(device)
        clusters, notes = Clusters.of(self.parting(), len(senders)), []
        progress = Progress(models)
        kept = initial_model(models.layout, start).to(device).expand(graph.num_clients, -1)
        models.load(return_models(channel, 0, kept))
        for round in range(1, self.rounds + 1):
            held = models.vectors[chosen].clone()
            models.train_round()
            if self.tested == "local":
                progress.test()
            changes = upload_models(channel, round, senders, models.vectors[chosen] - held)
            if clusters.observe(round, changes):
                sides = [[int(senders[index].item()) for index in members] for members in clusters.members]
                notes.append(f"{self.name}: clusters of clients after round {round}: {sides}")
            weights = clusters.weights(sizes[chosen]).to(changes)
            own = kept[chosen] + weights @ changes
            kept = own.mean(0).expand(graph.num_clients, -1).index_copy(0, chosen, own)
            models.load(return_models(channel, round, kept))
            if self.tested == "received":
                progress.test()
            channel.round_done(round, self.rounds)
        return progress.finish(tuple(notes))
