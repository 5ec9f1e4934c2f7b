"""Label distribution of a client from its global nodes.

FedGT (Appendix F) holds that these "can hardly be used to infer private information". A global node moves towards the
mean of its cluster's nodes in the space of the input map, which the server knows (Algorithm 1): after one step ``mu = r
+ w (h - r)`` with r what the server returned before, h the mean of the batch's nodes and ``w = (1 - gamma) n / (gamma c
+ (1 - gamma) n)``. The batch of an epoch covers most of a client's nodes, so r is the only part that is not the
client's own, and it is known. The mean over clusters of h is ``sum_c y_c m_c``: y the label distribution, m_c the class
means of the nodes whose rows and labels the observer holds. Counts c start at 1 and clusters are taken to be of equal
size, which fixes w.

Under clip and Laplace noise the expected uploads still depend linearly on h
(:mod:`fglaudit.adversary.uploads.clipped_uploads`), if weakly: nearly every coordinate is clipped, but not always on
the same side. The slope depends on how far cluster means lie apart, which is estimated from the second moment of the
uploads. Under noise too strong for the prior the prior remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.public_rules import known_as_used
from fglaudit.adversary.uploads.clipped_uploads import LinearResponse, UploadClip
from fglaudit.adversary.uploads.held import Codebooks, codebooks, missing_uploads, model_rounds
from fglaudit.attacks.global_nodes.clusters import (
    allowed_in_clusters,
    cluster_weight,
    moved_clusters,
    upload_error,
)
from fglaudit.attacks.global_nodes.planting import dealt_nodes, rehearsed_round
from fglaudit.attacks.global_nodes.reports import Reports
from fglaudit.attacks.global_nodes.simplex_fit import fit_distributions
from fglaudit.facts import Additive, Fact, Randomised
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.structure import Centroids
from fglaudit.view import View

_FACTORS = tuple(2 ** (step / 2) for step in range(-4, 9))
"""Tried distances between cluster means, relative to clusters that hold all classes at random."""
_LEAST_SLOPE = 1e-12
_CLOSE = 0.3


@dataclass(frozen=True)
class ClassMeans:
    """Class means of the known rows in the clients' input spaces.

    Attributes:
        means: [K, C, d]; classes without a known row have the mean of all.
        spread: mean variance of a coordinate within a class.
        randomness: mean variance of a coordinate of one node by the randomness of its report.
        shares: of the classes among the known rows, with one row added to each [C].
        rows: known rows per class, on average.
    """

    means: Tensor
    spread: float
    randomness: float
    shares: Tensor
    rows: float


@dataclass(frozen=True)
class GlobalNodeLabels(Attack):
    """Infer label distributions from global nodes.

    Attributes:
        skip: first rounds left out where later ones were seen: they start from global nodes that carry no data.
    """

    name: ClassVar[str] = "global-node-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "label-distributions"
    first_rounds: ClassVar[int | None] = 10

    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = (Additive, Randomised)
    least: ClassVar[Mapping[str, float]] = {"skip": 0}

    skip: int = 1

    def models(self, fact: Fact) -> bool:
        """Noise, rounding and clips of what is uploaded; rows that are clipped, dropped in part or random."""
        return allowed_in_clusters(fact)

    def unsupported(self, view: View) -> str | None:
        if len(torch.unique(view.known_rows().y[view.known_rows().y >= 0])) < 2:
            return "class means need known rows of at least two classes; give the observer some, e.g. auxiliary: 0.1"
        return missing_uploads(view, GlobalNodes, ModelUpdate) or view.public.structure.missing(Centroids)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        books = codebooks(view, type(self).first_rounds)
        start = min(self.skip, len(books.uploaded) - 1)
        std = upload_error(view, books)
        moved = moved_clusters(view, books, std)
        count = len(books.uploaded) - start
        design = place = off = slope = rest = torch.zeros(())
        error = 0.0
        for index, models in enumerate(model_rounds(view, len(books.uploaded))):
            if index < start:
                continue
            classes = class_means(view, models.received)
            expected = _expected(view, classes, books, std, index, moved[index])
            share = moved[index].double().unsqueeze(2)
            share = share / share.sum(1, keepdim=True).clamp(min=1) / count
            design = design + classes.means.double() / count
            place = place + expected.place / count
            off = off + (share * (books.uploaded[index].double() - expected.response.mean)).sum(1)
            slope = slope + (share * expected.weight * expected.response.slope).sum(1)
            # Noise is fresh in every round; the residual of the clip is not.
            rest = rest + (share.square() * (std**2 + count * expected.response.rest)).sum(1)
            # Class means follow from few rows; reports are random, but the same in every round.
            sampled = classes.randomness * len(books.clients) / view.public.num_nodes
            error += (classes.spread / classes.rows + sampled) / count
        slope = slope.clamp(min=_LEAST_SLOPE)
        measured, variance = place + off / slope, error + rest / slope.square()
        # Equal rows in every class leave the rounding of uploads as the only error.
        variance = variance.clamp(min=torch.finfo(torch.float32).eps ** 2 * float(measured.square().mean().item()))
        result = fit_distributions(design, measured, variance, classes.shares)
        if classes.randomness > 0 or std > 0:
            # What is left over shows how far the assumed errors are too small: nodes count unequally often,
            # and the response to a clip is that of coordinates that are Gaussian and independent.
            left = (measured - torch.einsum("kc,kcd->kd", result, design.double())).square() / variance
            result = fit_distributions(design, measured, variance * left.mean().clamp(min=1), classes.shares)
        return Inference(type(self).quantity, books.clients, result)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients whose nodes have the mean rows of their classes; known rows lie close to these."""
        known, owner = view.known_rows(), dealt_nodes(view)
        kinds = torch.nn.functional.one_hot(known.y.clamp(min=0), view.public.num_classes) * (known.y >= 0)[:, None]
        rows = known.x.float()
        size = kinds.sum(0).unsqueeze(1)
        means = torch.where(size > 0, kinds.T.to(rows) @ rows / size.clamp(min=1), rows.mean(0))
        aux = view.auxiliary
        near = means[aux.y.clamp(min=0)].lerp(aux.x.float(), _CLOSE)
        own = tuple(replace(c, x=means[c.y.clamp(min=0)].lerp(c.x.float(), _CLOSE)) for c in view.own)
        view = replace(view, auxiliary=replace(aux, x=near), own=own)
        chance = torch.rand(view.public.num_clients, view.public.num_classes, generator=rng).square()
        y = torch.multinomial(chance[owner], 1, generator=rng).squeeze(1)
        planted = rehearsed_round(view, means[y], owner, rng, y=y, everybody=True)
        clients, count = codebooks(planted, 1).clients, torch.zeros_like(chance, dtype=torch.double)
        count.index_put_((owner, y), torch.ones(len(y), dtype=torch.double), accumulate=True)
        return Planted(planted, (count / count.sum(1, keepdim=True))[clients], clients)


def class_means(view: View, models: Tensor) -> ClassMeans:
    """Return the class means of the observer's known rows under the input maps of ``models`` [K, D]."""
    known = view.known_rows()
    use = known.y >= 0
    reports = Reports.of(view)
    weight, bias = reports.layer(view, models)
    kinds = torch.nn.functional.one_hot(known.y[use], view.public.num_classes).to(weight)
    counts = kinds.sum(0)
    rows = known_as_used(view, known.x[use]).to(weight)
    within = (kinds.T @ rows) / counts.clamp(min=1).unsqueeze(1)
    within = torch.where((counts > 0).unsqueeze(1), within, rows.mean(0))
    rest = (rows - within[known.y[use]]) @ weight[0]  # the spread differs little between clients
    shares = (counts + 1) / (counts + 1).sum()
    return ClassMeans(
        within @ weight + bias,
        float(rest.square().mean().item()),
        float(reports.covariance(weight).diagonal(dim1=1, dim2=2).mean().item()),
        shares,
        float(counts[counts > 0].mean().item()),
    )


@dataclass(frozen=True)
class _Expected:
    """Expected uploads of a round.

    Attributes:
        place: prior mean of h of each client [K, d].
        weight: w.
        response: linear response of the clip [K, g, d].
    """

    place: Tensor
    weight: float
    response: LinearResponse


def _expected(view: View, classes: ClassMeans, books: Codebooks, std: float, round: int, moved: Tensor) -> _Expected:
    """Return the expected uploads of ``round`` under the prior of the labels.

    Args:
        std: of an entry's noise.
        moved: which global nodes got nodes in the round [K, g].
    """
    live = max(1.0, float(moved.double().sum(1).mean().item()))
    weight = cluster_weight(view, round + 1, live, len(moved))
    means, shares = classes.means.double(), classes.shares.double()
    place = torch.einsum("c,kcd->kd", shares, means)
    between = torch.einsum("c,kcd->kd", shares, (means - place.unsqueeze(1)).square())
    # Means of as many nodes.
    within = (classes.spread + classes.randomness) * min(1.0, live * len(moved) / view.public.num_nodes)
    received, uploaded = books.received[round].double(), books.uploaded[round].double()
    mean = (1 - weight) * received + weight * place.unsqueeze(1)
    spread = weight * (between + within).sqrt().unsqueeze(1).expand_as(mean)
    clip = UploadClip.of(view, GlobalNodes)
    if clip.bound is not None:
        square = float(uploaded.square().mean().item()) - std**2
        spread = spread * min(_FACTORS, key=lambda factor: abs(clip.response(mean, factor * spread).square() - square))
    return _Expected(place, weight, clip.response(mean, spread))
