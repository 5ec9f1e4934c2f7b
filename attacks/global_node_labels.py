"""Label distribution of a client from its global nodes (FedGT, Appendix F: they "can hardly be used to infer private
information").

A global node is pulled towards the mean of its cluster's nodes in the space of the input map, which the server knows (Algorithm
1): after one step ``mu = r + w (h - r)`` with r what the server returned before, h the mean of the batch's nodes and ``w = (1 -
gamma) n / (gamma c + (1 - gamma) n)``. The batch of an epoch covers most of a client's nodes, so r is the only part that is not
the client's own, and it is known. The mean over clusters of h is ``sum_c y_c m_c``: y the label distribution, m_c the class
means of the nodes whose rows and labels the observer holds. Counts c start at 1 and clusters are taken to be of equal size,
which fixes w.

Under clip and Laplace noise nearly every coordinate is cut off, but not always on the same side: the mean over rounds, clusters
and clients still answers linearly, with slope w times the share P of coordinates inside the clip, seen in the second moment of
the uploads. The part that all clients have in common is then not known and taken out. Noise too strong for the prior leaves the
prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks._clipped_uploads import UploadClip
from fglaudit.attacks._global_node_planting import planted_rounds
from fglaudit.attacks._global_node_rounds import (
    Codebooks,
    cluster_weight,
    codebooks,
    input_map,
    missing_uploads,
    model_rounds,
    moved_clusters,
    noise_std,
)
from fglaudit.attacks._simplex_fit import fit_distributions
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.view import View

@dataclass(frozen=True)
class ClassMeans:
    """Class means of the known rows in the clients' input spaces.

    Attributes:
        means: [K, C, d]; classes without a known row have the mean of all.
        spread: mean variance of a coordinate within a class.
        shares: of the classes among the known rows, one more each [C].
        rows: known rows per class, on average.
    """

    means: Tensor
    spread: float
    shares: Tensor
    rows: float


@dataclass(frozen=True)
class GlobalNodeLabels(Attack):
    """Infer label distributions from global nodes.

    Attributes:
        skip: first rounds left out where later ones were seen: they start from global nodes that belong to no data.
    """

    name: ClassVar[str] = "global-node-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "label-distributions"
    first_rounds: ClassVar[int | None] = 10

    skip: int = 1

    def unsupported(self, view: View) -> str | None:
        if len(torch.unique(view.known_rows().y[view.known_rows().y >= 0])) < 2:
            return "class means need known rows of at least two classes; give the observer some, e.g. auxiliary: 0.1"
        return missing_uploads(view, GlobalNodes, ModelUpdate)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        books = codebooks(view, type(self).first_rounds)
        start = min(self.skip, len(books.uploaded) - 1)
        clip, std = UploadClip.of(view, GlobalNodes).bound, noise_std(view, GlobalNodes)
        answers = _slopes(view, books, clip, std)
        measured, noise = _measured(view, books, answers, std)
        design = torch.zeros(())
        spread, count = 0.0, len(books.uploaded) - start
        for index, models in enumerate(model_rounds(view, len(books.uploaded))):
            if index >= start:
                classes = class_means(view, models.received)
                design = design + classes.means.double() / count
                spread += classes.spread / count
        variance = spread / classes.rows + noise[start:].mean() / count
        result = fit_distributions(design, measured[start:].mean(0), variance, classes.shares, centred=clip is not None)
        return Inference(type(self).quantity, books.clients, result)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients whose global nodes are mixtures of the class means, one cluster each."""

        def move(models: Tensor, global_nodes: Tensor) -> tuple[Tensor, Tensor]:
            classes = class_means(view, models).means.double()
            shares = torch.rand(classes.shape[:2], generator=rng, dtype=torch.double).square()
            shares = shares / shares.sum(1, keepdim=True)
            target = torch.einsum("kc,kcd->kd", shares, classes)
            moved = global_nodes.double().clone()
            weight = cluster_weight(view, 1, 1, len(models))
            moved[:, 0] += weight * (target - moved[:, 0])
            return moved.float(), shares

        planted, shares = planted_rounds(view, rng, move)
        return Planted(planted, shares, codebooks(planted, 1).clients)


def class_means(view: View, models: Tensor) -> ClassMeans:
    """Return the class means of the observer's known rows under the input maps of ``models`` [K, D]."""
    known = view.known_rows()
    use = known.y >= 0
    weight, bias = input_map(view, models)
    kinds = torch.nn.functional.one_hot(known.y[use], view.public.num_classes).to(weight)
    counts = kinds.sum(0)
    rows = known.x[use].to(weight)
    within = (kinds.T @ rows) / counts.clamp(min=1).unsqueeze(1)
    within = torch.where((counts > 0).unsqueeze(1), within, rows.mean(0))
    rest = (rows - within[known.y[use]]) @ weight[0]  # the spread differs little between clients
    shares = (counts + 1) / (counts + 1).sum()
    return ClassMeans(
        within @ weight + bias, float(rest.square().mean().item()), shares, float(counts[counts > 0].mean().item())
    )


def _slopes(view: View, books: Codebooks, clip: float | None, std: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return how uploads answer to the batch's means and to what was received, [T, K] each, and which clusters moved [T, K, g]."""
    moved = moved_clusters(books, std)
    live = moved.sum(2).clamp(min=1)
    rounds, clients, count = moved.shape
    table = torch.tensor([[0.0, *(cluster_weight(view, t + 1, g + 1, clients) for g in range(count))] for t in range(rounds)])
    weight = table.gather(1, live).double()
    inside = torch.ones(rounds, 1, dtype=torch.double)
    if clip is not None:
        # A clipped coordinate has square clip^2, one inside about a third of it; the noise adds its variance.
        squares = books.uploaded.double().square().mean((1, 2, 3)) - std**2
        inside = (1.5 * (1 - squares / clip**2)).clamp(0.01, 1).mean().expand(rounds, 1)
    return weight * inside, (1 - weight) * inside, moved


def _measured(view: View, books: Codebooks, answers: tuple[Tensor, Tensor, Tensor], std: float) -> tuple[Tensor, Tensor]:
    """Return the mean over clusters of the batch's means [T, K, d], and the variance of its noise [T]."""
    to_batch, to_received, moved = answers
    live = moved.double().unsqueeze(3)
    total = live.sum(2).clamp(min=1)
    uploaded = (books.uploaded.double() * live).sum(2) / total
    received = (books.received.double() * live).sum(2) / total
    measured = (uploaded - to_received.unsqueeze(2) * received) / to_batch.unsqueeze(2)
    return measured, (std**2 / total.squeeze(2) / to_batch.square()).mean(1)
