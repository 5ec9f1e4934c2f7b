"""A node that was alone in its cluster, read off a global node: Algorithm 1 moves the centroid a known part of the way to it.

A global node goes from r (known: the server returned it) to ``mu = r + w (h - r)``, ``w = (1 - gamma) n / (gamma c + (1 -
gamma) n)``, with h the mean of the n nodes in its cluster and c a count that starts at 1. Where r is a random vector longer
than any node's representation, the share of r left in mu tells n. A single node's ``h = W_x' x + W_p' p + b`` is a compressed
measurement of its sparse row: the weights are those that the server returned, its positional encoding p is projected away, and
approximate message passing with a Bernoulli prior finds x. A row that repeats all measurements to rounding is its own proof and
is claimed; whose row it is stays unknown beyond the client. Noise hides n: it is taken to be 1 in the first round, and nothing
is claimed.

Only clients that make one step in the round (batches as large as their training set) use exactly the returned weights for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks._feature_prior import feature_prior
from fglaudit.attacks._global_node_planting import planted_rounds
from fglaudit.attacks._global_node_rounds import Codebooks, codebooks, input_map, missing_uploads, model_rounds, noise_std
from fglaudit.attacks._message_passing import Measurements, bernoulli, message_passing
from fglaudit.attacks._planting import planted_rows
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import GlobalNodes, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.view import View

_STAYED = 1e-6
_LONG = 3.0
"""How much longer than the shortest global node r must be for n, and so the next count, to be read off it surely."""
_ROUNDING = 2.0**-20
_DISTURBANCE = 0.3
_PLANTED_ONES = 10


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


@dataclass(frozen=True)
class OneNodeClusters(Attack):
    """Rebuild rows of nodes that were alone in a cluster.

    Attributes:
        sweeps: of message passing.
        restarts: further tries from disturbed priors.
    """

    name: ClassVar[str] = "one-node-clusters"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes, ModelUpdate)
    metric: ClassVar[str] = "direction_rate"
    first_rounds: ClassVar[int | None] = 5

    sweeps: int = 60
    restarts: int = 4

    def unsupported(self, view: View) -> str | None:
        if view.public.features is not FeatureKind.BINARY:
            return "rows are searched for among binary ones; these features are not"
        if "input.weight" not in view.public.layout or "momentum" not in view.public.hyperparameters:
            return "global nodes are read as FedGT's online clusters of a known input layer; this protocol has none"
        return missing_uploads(view, GlobalNodes, ModelUpdate)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        books = codebooks(view, type(self).first_rounds)
        alone = single_moves(view, books)
        prior = feature_prior(view, torch.tensor([-1]))
        parts = [torch.zeros(0, view.public.num_features)]
        found = [torch.zeros(0, dtype=torch.bool)]
        for index, models in enumerate(model_rounds(view, len(books.uploaded))):
            where = alone[index] > 0
            if not bool(where.any()):
                continue
            singles = _measure(view, books, index, alone[index], models.received)
            chance = prior.mean.float().expand(len(singles.values), -1) if prior.informed else _density(singles)
            rows, fits = self._solve(singles, chance.clamp(1e-5, 1 - 1e-5), noise_std(view, GlobalNodes), rng)
            parts.append(rows)
            found.append(fits)
        rows, fits = torch.cat(parts), torch.cat(found)
        return Reconstruction(rows, torch.full((len(rows),), -1), fits.float(), claimed=fits)

    def _solve(self, singles: Singles, chance: Tensor, std: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return rows [U, F] and which repeat their measurements [U]."""
        rows = torch.zeros_like(chance)
        fits = torch.zeros(len(chance), dtype=torch.bool)
        for attempt in range(1 + self.restarts):
            rest = (~fits).nonzero().squeeze(1)
            if len(rest) == 0 or (attempt and std > 0):
                break
            odds = chance[rest].logit()
            if attempt:
                odds = odds + _DISTURBANCE * torch.randn(odds.shape, generator=rng)
            measurements, values = Measurements(singles.matrix[rest]), singles.values[rest]
            prior = odds.sigmoid()
            variance = singles.tolerance[rest].square().unsqueeze(1)
            start = (prior, prior * (1 - prior))
            found = message_passing(measurements, values, variance, start, bernoulli(odds), sweeps=self.sweeps)
            bits = (found.mean > 0.5).float()
            error = (measurements.forward(bits) - values).abs().amax(1)
            rows[rest] = bits
            fits[rest] = (error <= singles.tolerance[rest]) & (bits.sum(1) > 0) & (std == 0)
        return rows, fits

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one node alone in the first cluster of every client."""
        count = len(codebooks(view, 1).clients)
        known = torch.zeros(view.public.num_nodes, dtype=torch.bool)
        known[view.known_rows().nodes] = True
        nodes = (~known).nonzero().squeeze(1)[:count]
        rows = planted_rows(view, nodes, split(rng, "rows"))
        rows = rows * (rows.cumsum(1) <= _PLANTED_ONES)  # few enough to be found without any prior
        gamma = float(view.public.hyperparameters["momentum"])

        def move(models: Tensor, global_nodes: Tensor) -> tuple[Tensor, Tensor]:
            weight, bias = input_map(view, models[: len(nodes)])
            place = (rows.unsqueeze(1) @ weight + bias).squeeze(1)
            moved = global_nodes.clone()
            moved[: len(nodes), 0] = gamma * moved[: len(nodes), 0] + (1 - gamma) * place
            return moved, rows

        planted, rows = planted_rounds(view, rng, move)
        return Planted(planted, rows, nodes)


def single_moves(view: View, books: Codebooks) -> Tensor:
    """Return w where a global node moved towards a single node, else 0 [T, K, g]."""
    gamma, std = float(view.public.hyperparameters["momentum"]), noise_std(view, GlobalNodes)
    received, uploaded = books.received.double(), books.uploaded.double()
    length = received.norm(dim=3)
    moved = (uploaded - received).norm(dim=3) > _STAYED * length
    share = (uploaded * received).sum(3) / length.square().clamp(min=1e-12)
    typical = float(uploaded.norm(dim=3).amin().item())
    counts = torch.ones_like(share[0])
    sure = torch.ones_like(moved[0])
    result = torch.zeros_like(share)
    for t in range(len(share)):
        size = gamma * counts * (1 / share[t].clamp(1e-6, 1) - 1) / (1 - gamma)
        size = torch.where(moved[t], size, 0.0)
        one = sure & moved[t] & (size > 0.5) & (size < 1.5) if std == 0 else sure & moved[t] & (t == 0)
        result[t] = torch.where(one, (1 - gamma) / (gamma * counts + (1 - gamma)), 0.0)
        counts = gamma * counts + (1 - gamma) * size.round()
        sure = sure & ((length[t] > _LONG * typical) | ~moved[t])  # whether the counts are still known
    return result


def _measure(view: View, books: Codebooks, index: int, weights: Tensor, models: Tensor) -> Singles:
    """Return the measurements of the nodes behind ``weights`` [K, g] that are not 0, in round ``index``."""
    client, place = weights.nonzero(as_tuple=True)
    w = weights[client, place].unsqueeze(1)
    received, uploaded = books.received[index, client, place].double(), books.uploaded[index, client, place].double()
    features, bias = input_map(view, models)
    values = received + (uploaded - received) / w - bias[client].squeeze(1).double()
    whole = unflatten(models, view.public.layout)["input.weight"].double()
    encoding = whole[:, view.public.num_features :]
    # The last d - p columns of a complete orthonormal basis are orthogonal to all that the encoding can add.
    basis = torch.linalg.qr(encoding.mT, mode="complete").Q[:, :, encoding.shape[1] :]
    matrix = torch.einsum("kfd,kdm->kmf", features.double(), basis)
    size = (received.abs().amax(1) + uploaded.abs().amax(1)) / w.squeeze(1)
    projected = torch.einsum("ud,udm->um", values, basis[client])
    return Singles(projected.float(), matrix[client].float(), (_ROUNDING * size * values.shape[1] ** 0.5).float())


def _density(singles: Singles) -> Tensor:
    """Return the share of ones that the lengths of the measurements show [U, F], for an observer without any known row."""
    ones = singles.values.square().sum(1) / singles.matrix.square().sum(1).mean(1)
    features = singles.matrix.shape[2]
    return (ones / features).clamp(1 / features, 0.5).unsqueeze(1).expand(-1, features)
