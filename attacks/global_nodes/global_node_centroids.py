"""Mean feature row of every cluster from its global node: linear measurements under a known input layer.

Algorithm 1 moves a global node from r, which the server returned, to ``mu = (1 - w) r + w h``, h the mean of ``W' x +
W_p' p + b`` over the cluster's nodes: d linear measurements of the cluster's mean row. The server has sent W and b; the
encodings p have norm 1 over a client's nodes and are treated as noise. Words are correlated, so d measurements
determine more than d words: the mean row gets a Gaussian prior with the mean of the known rows and the covariance
``alpha C + beta D``, C that of the known rows and D its diagonal (for words of which few known rows show the
correlations), and the estimate is the posterior mean. Clusters differ in size and purity, so alpha and beta are chosen
to maximise the likelihood of the uploads of all clients.

Under clip and noise the expected uploads still depend linearly on h, with known slopes
(:mod:`fglaudit.adversary.uploads.clipped_uploads`). Of rows that were made random the layer sees means of reports
(:mod:`fglaudit.attacks.global_nodes.reports`), whose expectation is linear in the mean row. The mean over the last
``window`` rounds (4 was chosen on CiteSeer: there 2 does as well, 8 worse, since clusters move) averages the noise and
the sampling of mini-batches.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.public_rules import known_as_used
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import Codebooks, codebooks, input_map, missing_uploads, model_rounds
from fglaudit.attacks.global_nodes.clusters import (
    allowed_in_clusters,
    cluster_weight,
    moved_clusters,
    upload_error,
)
from fglaudit.attacks.global_nodes.planting import dealt_nodes, rehearsed_round
from fglaudit.attacks.global_nodes.reports import Reports
from fglaudit.facts import Additive, Fact, Randomised
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.rng import derive
from fglaudit.structure import Centroids
from fglaudit.view import View

_COMMON = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
_OWN = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Values of alpha and beta that are tried."""
_REPEATS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Tried factors on the variance of a cluster's mean by random reports: nodes count unequally often in it."""
_ROUNDING = 1e-9
_PLANTED_SPREAD = 0.3


@dataclass(frozen=True)
class RowPrior:
    """Gaussian prior of a cluster's mean row.

    Attributes:
        mean: [F].
        factor: [R, F]; ``factor' factor`` is the covariance C.
        variance: diagonal of D [F].
    """

    mean: Tensor
    factor: Tensor
    variance: Tensor

    @staticmethod
    def of(view: View) -> RowPrior:
        x = known_as_used(view, view.known_rows().x).double()
        mean, spread = x.mean(0), x.var(0, correction=0)
        variance = (spread * len(x) + spread.mean() + 1e-12) / (len(x) + 1)
        return RowPrior(mean, (x - mean) / math.sqrt(len(x)), variance)


@dataclass(frozen=True)
class Layer:
    """Input layers of K clients, averaged over some rounds.

    Attributes:
        features: weights of the features [K, F, d].
        encodings: weights of the positional encodings [K, p, d].
    """

    features: Tensor
    encodings: Tensor


@dataclass(frozen=True)
class GlobalNodeCentroids(Attack):
    """Estimate the mean rows of clusters.

    Attributes:
        window: rounds that are averaged.
    """

    name: ClassVar[str] = "global-node-centroids"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "cosine"
    quantity: ClassVar[str] = "centroids"
    first_rounds: ClassVar[int | None] = 10
    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = (Additive, Randomised)
    least: ClassVar[Mapping[str, float]] = {"window": 1}

    window: int = 4

    def models(self, fact: Fact) -> bool:
        """Noise, rounding and clips of what is uploaded; rows that are clipped, dropped in part or random."""
        return allowed_in_clusters(fact)

    def unsupported(self, view: View) -> str | None:
        if "input.weight" not in view.public.layout:
            return "global nodes are read as FedGT's online clusters of a known input layer; this protocol has none"
        if len(view.known_rows().nodes) < 2:
            return "the prior of a mean row needs known rows; give the observer some, e.g. auxiliary: 0.1"
        return missing_uploads(view, GlobalNodes, ModelUpdate) or view.public.structure.missing(Centroids)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        books = codebooks(view, type(self).first_rounds)
        start = max(0, len(books.uploaded) - self.window)
        prior = RowPrior.of(view)
        reports, std = Reports.of(view), upload_error(view, books)
        layer, places = _layers(view, prior, reports, len(books.uploaded), start)
        common = torch.einsum("rf,kfd->krd", prior.factor, layer.features)
        own = layer.features.mT @ (prior.variance.unsqueeze(1) * layer.features)
        # Every column of the encoding has norm 1 over a client's nodes.
        encoded = layer.encodings.mT @ layer.encodings * (len(books.clients) / view.public.num_nodes)
        live = moved_clusters(view, books, std)[start:].double().sum(2).mean().clamp(min=1)
        random = reports.covariance(layer.features) * live * len(books.clients) / view.public.num_nodes
        repeats = _REPEATS if reports.variance > 0 else _REPEATS[:1]
        best, solution, chosen = -math.inf, torch.zeros(()), (0.0, 0.0)
        for alpha, beta, repeat in itertools.product(_COMMON, _OWN, repeats):
            covariance = alpha * common.mT @ common + beta * own + encoded + repeat * random
            evidence, solved = _solve(view, books, std, start, places, covariance)
            if evidence > best:
                best, solution, chosen = evidence, solved, (alpha, beta)
        shared = torch.einsum("kgr,rf->kgf", torch.einsum("kgd,krd->kgr", solution, common), prior.factor)
        single = prior.variance * torch.einsum("kfd,kgd->kgf", layer.features, solution)
        rows = prior.mean + chosen[0] * shared + chosen[1] * single
        if view.public.features is not FeatureKind.REAL:
            rows = rows.clamp(min=0)
        subjects = torch.cartesian_prod(books.clients, torch.arange(rows.shape[1]))
        return Inference(type(self).quantity, subjects, rows.flatten(0, 1))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients whose nodes have one row, which differs from the known rows' mean in directions that the input
        layer keeps.

        The first of two rehearsals with the same draws shows the input layer.
        """
        view = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=()))
        prior, owner, clients = RowPrior.of(view), dealt_nodes(view), codebooks(view, 1).clients
        seed = int(torch.randint(2**31, (1,), generator=rng).item())
        blank = torch.zeros(len(owner), view.public.num_features)
        first = rehearsed_round(view, blank, owner, derive(seed, "rehearsal"))
        models = next(model_rounds(first, 1)).received
        weight = input_map(view, models)[0].double()
        seen = torch.randn(len(clients), weight.shape[2], generator=rng, dtype=torch.double)
        offset = prior.variance * torch.einsum("kfd,kd->kf", weight, seen)
        rows = prior.mean + _PLANTED_SPREAD * offset / offset.abs().amax(1, keepdim=True).clamp(min=1e-12)
        x = rows.float()[torch.searchsorted(clients, owner).clamp(max=len(clients) - 1)]
        planted = rehearsed_round(view, x, owner, derive(seed, "rehearsal"), everybody=True)
        return Planted(planted, rows, torch.stack([clients, torch.zeros_like(clients)], 1))


def _layers(view: View, prior: RowPrior, reports: Reports, rounds: int, start: int) -> tuple[Layer, list[Tensor]]:
    """Return the mean input layer from round ``start`` on, and the prior's mean row under it in each of these rounds.

    The images of the mean row are [K, 1, d] each.
    """
    features, encodings, places = torch.zeros(()), torch.zeros(()), []
    for index, models in enumerate(model_rounds(view, rounds)):
        if index < start:
            continue
        weight, bias = (part.double() for part in reports.layer(view, models.received))
        whole = unflatten(models.received, view.public.layout)["input.weight"].double()
        features = features + weight / (rounds - start)
        encodings = encodings + whole[:, view.public.num_features :] / (rounds - start)
        places.append((prior.mean @ weight).unsqueeze(1) + bias)
    return Layer(features, encodings), places


def _solve(
    view: View, books: Codebooks, std: float, start: int, places: list[Tensor], covariance: Tensor
) -> tuple[float, Tensor]:
    """Return the log likelihood of the uploads and the weights [K, g, d] of the measurements in the posterior mean.

    Args:
        std: of an entry's noise.
        start: first round used.
        places: prior mean of h in every round from ``start`` on, [K, 1, d] each.
        covariance: prior covariance of h [K, d, d].
    """
    clip = UploadClip.of(view, GlobalNodes)
    spread = covariance.diagonal(dim1=1, dim2=2).sqrt().unsqueeze(1)
    moved = moved_clusters(view, books, std)[start:].double()
    counts = moved.sum(0).clamp(min=1).unsqueeze(2)
    clients = len(books.clients)
    off = slope = rest = torch.zeros(())
    for index, place in enumerate(places):
        share = moved[index].unsqueeze(2) / counts
        live = max(1.0, float(moved[index].sum(1).mean().item()))
        w = cluster_weight(view, start + index + 1, live, clients)
        received, uploaded = books.received[start + index].double(), books.uploaded[start + index].double()
        response = clip.response((1 - w) * received + w * place, (w * spread).expand_as(received))
        off = off + share * (uploaded - response.mean)
        slope = slope + share * w * response.slope
        rest = rest + share * response.rest
    error = rest + std**2 / counts + _ROUNDING * (slope * spread).square() + 1e-18
    whole = slope.unsqueeze(3) * covariance.unsqueeze(1) * slope.unsqueeze(2) + torch.diag_embed(error)
    lower = torch.linalg.cholesky(whole)
    solved = torch.cholesky_solve(off.unsqueeze(3), lower).squeeze(3)
    evidence = -(solved * off).sum() / 2 - lower.diagonal(dim1=2, dim2=3).log().sum()
    return float(evidence.item()), slope * solved
