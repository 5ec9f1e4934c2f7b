"""Row of a node that was alone in its cluster, from the step of the global node towards it (Algorithm 1).

A global node goes from r (known: the server returned it) to ``mu = r + w (h - r)``, ``w = (1 - gamma) n / (gamma c + (1
- gamma) n)``, with h the mean of the n nodes in its cluster and c a count that starts at 1. Where r is a random vector
longer than any node's representation, the share of r left in mu determines n; elsewhere n = 1 is tried. A single node's
``h = W_x' x + W_p' p + b`` is a compressed measurement of its sparse row: the weights are those that the server
returned, its positional encoding p is projected out, and approximate message passing with a Bernoulli prior finds x. A
row that repeats all measurements to rounding proves itself, and n = 1 with it, and is claimed; which of the client's
nodes has it stays unknown. A cluster whose n stays unknown has an unknown c from then on and is skipped. Noise,
rounding and clips of single coordinates (:mod:`clipped_singles`) hide n: it is taken to be 1 in the first round, their
size enters the message passing, and nothing is claimed. Of codebooks scaled down to a norm it is unknown how far they
moved.

Only clients that make one step in the round (batches as large as their training set) use exactly the returned weights
for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.bit_recovery import PERTURBATION, determined
from fglaudit.adversary.message_passing import Measurements, bernoulli, message_passing
from fglaudit.adversary.modelled import fewer_edges, message_clip
from fglaudit.adversary.planting import planted_rows
from fglaudit.adversary.priors.feature_prior import FeaturePrior, feature_prior
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import (
    Codebooks,
    codebooks,
    input_map,
    missing_uploads,
    model_rounds,
    rounding_growth,
)
from fglaudit.attacks.global_nodes.clipped_singles import Layer, unclipped, weighted
from fglaudit.attacks.global_nodes.clusters import (
    moved_behind_clip,
    moved_clusters,
    received_models,
    upload_error,
    uploaded_with_error,
)
from fglaudit.attacks.global_nodes.planting import dealt_nodes, first_nodes, rehearsed_round
from fglaudit.facts import Clipped, Fact, Field
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Centroids
from fglaudit.view import View

_LONG = 3.0
"""How much longer than the shortest global node r must be to determine n."""
_NEAR = 0.5
_MARGIN = 1.5
_ROUNDING = 2.0**-20
_PLANTED_ONES = 10
_COMPARED = 10
"""Features up to which all rows are compared: message passing is an approximation for many."""


@dataclass(frozen=True)
class Singles:
    """Measurements of U nodes that were alone: ``values = matrix @ x`` up to ``tolerance``.

    Attributes:
        values: [U, M].
        matrix: [U, M, F].
        tolerance: [U].
    """

    values: Tensor
    matrix: Tensor
    tolerance: Tensor

    def of(self, rows: Tensor) -> Singles:
        """Return those of ``rows`` (mask or ids)."""
        return Singles(self.values[rows], self.matrix[rows], self.tolerance[rows])


@dataclass(frozen=True)
class Steps:
    """Steps of U global nodes in one round, each towards a single node.

    Attributes:
        received, uploaded: each global node before and after [U, d].
        client: whose it is [U].
        weight: w of each [U].
        models: that the clients received [K, D].
        std: of the noise on an entry of ``uploaded``.
    """

    received: Tensor
    uploaded: Tensor
    client: Tensor
    weight: Tensor
    models: Tensor
    std: float


@dataclass(frozen=True)
class OneNodeClusters(Attack):
    """Rebuild rows of nodes that were alone in a cluster.

    Attributes:
        sweeps: of message passing.
        restarts: further tries from perturbed priors, where n is known to be 1.
    """

    name: ClassVar[str] = "one-node-clusters"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "direction_rate"
    first_rounds: ClassVar[int | None] = 5
    least: ClassVar[Mapping[str, float]] = {"sweeps": 1, "restarts": 0}

    sweeps: int = 60
    restarts: int = 4

    def models(self, fact: Fact) -> bool:
        """Noise, rounding and clips of single coordinates of what is uploaded."""
        up = isinstance(fact.target, Field) and fact.target.direction == "up" and message_clip(fact, GlobalNodes)
        clip = up and isinstance(fact, Clipped) and fact.norm == "elementwise"
        return clip or any(kind(fact) for kind in (fewer_edges, received_models, uploaded_with_error))

    def unsupported(self, view: View) -> str | None:
        if view.public.features is not FeatureKind.BINARY:
            return "rows are searched for among binary ones; these features are not"
        if "input.weight" not in view.public.layout:
            return "global nodes are read as FedGT's online clusters of a known input layer; this protocol has none"
        inputs, width = view.public.layout["input.weight"]
        if width <= (unknown := inputs - view.public.num_features):
            return (
                f"of {width} numbers of a global node {unknown} could be a node's positional encoding, which is not"
                " known: none is left that shows its features"
            )
        return missing_uploads(view, GlobalNodes, ModelUpdate) or view.public.structure.missing(Centroids)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        books = codebooks(view, type(self).first_rounds)
        std, clip = upload_error(view, books), UploadClip.of(view, GlobalNodes)
        inexact = std > 0 or clip.bound is not None
        moved, sizes = moved_clusters(view, books, std), _sizes_by_length(books)
        if clip.bound is not None:
            moved = moved_behind_clip(books, clip.bound, std)
        prior = feature_prior(view, torch.tensor([-1]))
        gamma = view.public.structure.of(Centroids).momentum
        counts = torch.ones(books.uploaded.shape[1:3], dtype=torch.double)  # NaN once it is not known
        parts = [torch.zeros(0, view.public.num_features)]
        found = [torch.zeros(0, dtype=torch.bool)]
        for index, models in enumerate(model_rounds(view, len(books.uploaded))):
            if inexact and index:
                break
            share = gamma * counts / (1 - gamma)
            size = share * sizes[index]
            tried = moved[index] & ~counts.isnan() & (size.isnan() | (size - 1).abs().lt(_NEAR) | inexact)
            client, place = tried.nonzero(as_tuple=True)
            received, uploaded = (each[index, client, place].double() for each in (books.received, books.uploaded))
            steps = Steps(received, uploaded, client, 1 / (1 + share[client, place]), models.received, std)
            singles = _measure(view, steps) if clip.bound is None else _measure_clipped(view, steps, prior, clip)
            chance = prior.mean.float().expand(len(singles.values), -1) if prior.informed else _density(singles)
            keep = _short_enough(view, singles)
            singles, chance = singles.of(keep), chance[keep]
            certain_size = ~size[client, place].isnan()[keep]
            rows, fits = self._solve(singles, chance.clamp(1e-5, 1 - 1e-5), inexact, certain_size, rng)
            if not inexact:
                rows, claimed = rows[fits | certain_size], fits[fits | certain_size]
                nodes = torch.where(moved[index], size.round(), 0.0)
                nodes[client[keep][fits], place[keep][fits]] = 1.0
                counts = gamma * counts + (1 - gamma) * nodes
                fits = claimed
            parts.append(rows)
            found.append(fits)
        rows, fits = torch.cat(parts), torch.cat(found)
        return Reconstruction(rows, torch.full((len(rows),), -1), fits.float(), claimed=fits)

    def _solve(
        self, singles: Singles, chance: Tensor, inexact: bool, again: Tensor, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return rows [U, F] and which repeat their measurements [U].

        Args:
            chance: prior probability of a one [U, F].
            inexact: whether measurements have errors beyond rounding.
            again: rows that are restarted until they fit [U].
        """
        rows = torch.zeros_like(chance)
        fits = torch.zeros(len(chance), dtype=torch.bool)
        provable = len(chance) > 0 and not inexact and determined(Measurements(singles.matrix))
        for attempt in range(1 + (self.restarts if provable else 0)):
            rest = (~fits & again if attempt else ~fits).nonzero().squeeze(1)
            if len(rest) == 0:
                break
            odds = chance[rest].logit()
            if attempt:
                odds = odds + PERTURBATION * torch.randn(odds.shape, generator=rng)
            measurements, values = Measurements(singles.matrix[rest]), singles.values[rest]
            prior = odds.sigmoid()
            variance = singles.tolerance[rest].square().unsqueeze(1)
            start = (prior, prior * (1 - prior))
            if chance.shape[1] <= _COMPARED:
                bits = _nearest_row(singles.of(rest), odds)
            else:
                found = message_passing(measurements, values, variance, start, bernoulli(odds), sweeps=self.sweeps)
                bits = (found.mean > 0.5).float()
            rows[rest] = bits
            if provable:
                error = (measurements.forward(bits) - values).abs().amax(1)
                fits[rest] = (error <= singles.tolerance[rest]) & (bits.sum(1) > 0)
        return rows, fits

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients of which one node alone reaches a cluster."""
        owner = dealt_nodes(view)
        nodes = first_nodes(owner, codebooks(view, 1).clients)
        rows = planted_rows(view, nodes, split(rng, "rows"))
        known = (view.known_rows().x != 0).sum(1)
        ones = min(_PLANTED_ONES, max(1, int(known.max().item()))) if len(known) else _PLANTED_ONES
        rows = rows * (rows.cumsum(1) <= ones)  # few enough to be found without a prior, no longer than known ones
        x = torch.zeros(len(owner), view.public.num_features)
        x[nodes] = rows
        return Planted(rehearsed_round(view, x, owner, rng), rows, nodes)


def _nearest_row(singles: Singles, odds: Tensor) -> Tensor:
    """Return the likeliest of all binary rows [U, F] under prior log odds [U, F]."""
    features = odds.shape[1]
    rows = (torch.arange(2**features).unsqueeze(1) >> torch.arange(features) & 1).float()
    error = torch.einsum("umf,cf->ucm", singles.matrix, rows) - singles.values.unsqueeze(1)
    variance = singles.tolerance.square().clamp(min=1e-30).unsqueeze(1)
    return rows[(odds @ rows.T - error.square().sum(2) / (2 * variance)).argmax(1)]


def _sizes_by_length(books: Codebooks) -> Tensor:
    """Return ``1 / share - 1`` [T, K, g], share that of r left in mu: n times the value of a single node.

    NaN where r is too short.
    """
    received, uploaded = books.received.double(), books.uploaded.double()
    length = received.norm(dim=3)
    share = (uploaded * received).sum(3) / length.square().clamp(min=1e-12)
    long = length > _LONG * uploaded.norm(dim=3).amin()
    return torch.where(long, 1 / share.clamp(1e-6, 1) - 1, torch.nan)


def _measure(view: View, steps: Steps) -> Singles:
    """Return the measurements of the single nodes that ``steps`` go to."""
    received, uploaded, client, weight = steps.received, steps.uploaded, steps.client, steps.weight
    features, bias = input_map(view, steps.models)
    values = received + (uploaded - received) / weight.unsqueeze(1) - bias[client].squeeze(1).double()
    whole = unflatten(steps.models, view.public.layout)["input.weight"].double()
    encoding = whole[:, view.public.num_features :]
    # The last d - p columns of a complete orthonormal basis are orthogonal to all that the encoding can add.
    basis = torch.linalg.qr(encoding.mT, mode="complete").Q[:, :, encoding.shape[1] :]
    matrix = torch.einsum("kfd,kdm->kmf", features.double(), basis)
    size = (received.abs().amax(1) + uploaded.abs().amax(1)) / weight
    projected = torch.einsum("ud,udm->um", values, basis[client])
    tolerance = torch.hypot(_ROUNDING * rounding_growth(view) * size * values.shape[1] ** 0.5, steps.std / weight)
    return Singles(projected.float(), matrix[client].float(), tolerance.float())


def _measure_clipped(view: View, steps: Steps, prior: FeaturePrior, clip: UploadClip) -> Singles:
    """Return what :func:`_measure` does where every coordinate was clipped.

    Args:
        prior: of a row nobody knows.
    """
    received, client, w = steps.received, steps.client, steps.weight.unsqueeze(1)
    features, bias = input_map(view, steps.models)
    whole = unflatten(steps.models, view.public.layout)["input.weight"].double()
    encoding = whole[:, view.public.num_features :]
    layer = Layer(features.double()[client], encoding[client], bias[client].squeeze(1).double())
    few = min(0.5, _PLANTED_ONES / view.public.num_features)
    chance = prior.mean[0].double() if prior.informed else torch.full((view.public.num_features,), few).double()
    image = layer.images(chance, len(steps.models) / view.public.num_nodes)  # eigenvectors of a client have length 1
    mu, error = unclipped(received, steps.uploaded, w, image, clip, steps.std)
    values, matrix, tolerance = weighted(received + (mu - received) / w - layer.bias, error / w, layer)
    return Singles(values.float(), matrix.float(), tolerance.float())


def _ones(singles: Singles) -> Tensor:
    """Return the number of ones [U] estimated from the norms of the measurements."""
    noise = singles.values.shape[1] * singles.tolerance.square()
    return (singles.values.square().sum(1) - noise).clamp(min=0) / singles.matrix.square().sum(1).mean(1)


def _short_enough(view: View, singles: Singles) -> Tensor:
    """Return which measurements [U] are no longer than those of a row with half as many ones again as any known one."""
    known = view.known_rows().x
    if len(known) == 0:
        return torch.ones(len(singles.values), dtype=torch.bool)
    return _ones(singles) <= _MARGIN * (known != 0).sum(1).max()


def _density(singles: Singles) -> Tensor:
    """Return the share of ones [U, F] from the norms of the measurements, for an observer without known rows."""
    features = singles.matrix.shape[2]
    return (_ones(singles) / features).clamp(1 / features, 0.5).unsqueeze(1).expand(-1, features)
