"""Inversion of first-layer embeddings with known weights; only ``Embeddings`` and the global models are read.

FedGAT lets clients exchange the first layer's output for the second layer ("nodes are permitted to view the
embeddings"), every round under a new model which they all have. ELU is inverted; the result are linear equations about
the attention-weighted sum of the rows of the sender's closed neighbourhood, 64 in each round
(:mod:`fglaudit.attacks.neighborhoods.embedding_equations`). The observer's own nodes among the neighbours are
subtracted. For the rest, q rows together, the posterior mean of their sum under a Gaussian prior from known rows is
found; for small q, least squares on the largest entries alone follows (rows are sparse). Attention is then recomputed
from the result.

A public rule that drops small cross-client neighbourhoods is allowed for as far as the observer knows its effect: with
enough neighbours at the observer's client a node kept them all; one whose neighbours are all there, and too few, lost
them all. Other rows are not claimed under such a rule, and none where a defense changes the rows themselves.
Real-valued rows are claimed where there are equations for every entry; with fewer the prior fills in the rest.

A node whose neighbours are all the observer's has q = 1: the sum is its own row, and discrete rows come out exact. For
q > 1 the row is one of q in a sum; the estimate is the mean share, which names the features of the whole neighbourhood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, knows_no_foreign_degree, own_nodes
from fglaudit.adversary.modelled import about, dropped_edges, training_changed
from fglaudit.adversary.public_rules import fewest_neighbors, rows_unaltered
from fglaudit.attacks.neighborhoods.embedding_equations import (
    EmbeddingEquations,
    embedding_equations,
    missing_embeddings,
)
from fglaudit.attacks.neighborhoods.embedding_planting import plant_lone_embeddings
from fglaudit.attacks.neighborhoods.modelled_facts import changed_rows, received_models, sealed_finely
from fglaudit.attacks.neighborhoods.row_levels import as_bits, known_rows_as_sent, to_levels
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Embeddings, MaskedMatrices, MaskedVectors, ModelUpdate, Payload, RawFeatures
from fglaudit.view import View

_REPEATS = 1e-3
"""Error of an explained embedding, relative to its largest entry: float32, amplified where ELU is flat."""
_KEPT = 1e-10
"""Directions of the weights with less than this share of the largest prior variance are lost in float32."""
_NOISE = 1e-9
_CANDIDATES = 5
"""Entries fitted by least squares, as a multiple of the expected number of non-zero ones."""
_REFITS = 2
_RIDGE = 1e-6
_LEAST_ENTRY = 0.15
"""Entries below this share of a row's largest are zero."""
_SPARSE_UP_TO = 2
"""Largest number of rows whose sum counts as sparse."""
_NODES_AT_ONCE = 64


@dataclass(frozen=True)
class EmbeddingInversion(Attack):
    """Rebuild the rows of nodes whose embeddings arrive.

    Attributes:
        rounds: rounds read, spread evenly over the training.
        refinements: how often attention is recomputed.
    """

    name: ClassVar[str] = "embedding-inversion"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Embeddings,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, MaskedMatrices, MaskedVectors)
    metric: ClassVar[str] = "f1"
    least: ClassVar[Mapping[str, float]] = {"rounds": 1, "refinements": 0}

    rounds: int = 24
    refinements: int = 10

    def models(self, fact: Fact) -> bool:
        """Noise on what clients start from enters embeddings through attention, which is not modelled; nor is noise on
        rows, of which those known beforehand are then not those that were used."""
        if about(fact, ModelUpdate):
            return received_models(fact)
        sealed = sealed_finely(fact, RawFeatures)
        return dropped_edges(fact) or changed_rows(fact) or training_changed(fact) or sealed

    def unsupported(self, view: View) -> str | None:
        if knows_no_foreign_degree(view):
            return "without the degrees of other parties' nodes it is unknown of how many rows an embedding is the mean"
        return missing_embeddings(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        equations = embedding_equations(view, self.rounds)
        assert equations is not None
        degrees = known_degrees(view)
        equations = equations.among(degrees[equations.nodes] >= 0).to(device)
        nodes, known = equations.nodes.cpu(), known_rows_as_sent(view)
        place = positions(nodes, view.public.num_nodes)
        source = torch.full_like(place, -1)
        source[known.nodes] = torch.arange(len(known.nodes))
        row, column = known_edges(view)
        use = (place[row] >= 0) & (source[column] >= 0) & (row != column)
        ours = torch.bincount(place[row[use & own_nodes(view)[column]]], minlength=len(nodes))
        fewest = fewest_neighbors(view)
        lost = (ours < fewest) & (ours == degrees[nodes])
        use &= ~(lost[place[row]] & (place[row] >= 0))
        pairs = torch.stack([place[row[use]], source[column[use]]])
        rows_in = torch.where(lost, 0, degrees[nodes]) + 1
        missing = (rows_in - torch.bincount(pairs[0], minlength=len(nodes))).clamp(min=1)
        sure = (lost | (ours >= fewest) | (fewest == 1)) & rows_unaltered(view)
        discrete = view.public.features is not FeatureKind.REAL
        problem = _Problem(equations, known.x.double().to(device), pairs.to(device), missing.to(device))
        system = _System.of(equations.weight, problem.known.var(0) + 1e-5)
        rows = self._solve(problem, system, discrete).cpu()
        alone = (missing == 1) & sure & (discrete or system.determines)
        bits = as_bits(rows).float()
        sent = bits / bits.norm(dim=1, keepdim=True).clamp(min=1) if discrete else rows
        alone &= problem.repeats(sent.double().to(device)).cpu()
        rows = to_levels(view, rows, nodes, torch.zeros(len(rows)), unit_ball=True)
        foreign = ~torch.isin(nodes, known.nodes)
        return Reconstruction(rows.float()[foreign], nodes[foreign], (1 / missing)[foreign], claimed=alone[foreign])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_embeddings(view, rng, self.rounds)

    def _solve(self, problem: _Problem, system: _System, sparse: bool) -> Tensor:
        """Return the mean of the missing rows [J, F]; ``sparse``: they have few non-zero entries."""
        known, missing, count = problem.known, problem.missing, problem.missing.double()[:, None]
        mean = known.mean(0)
        expected = float((known != 0).sum(1).double().mean().item())
        rows = mean.expand(len(count), -1)
        for _ in range(1 + self.refinements):
            rest = problem.remainder(rows)
            rows = system.posterior_mean(rest / count, mean)
            for few in range(1, _SPARSE_UP_TO + 1) if sparse else ():
                chosen = (missing == few).nonzero().squeeze(1)
                for low in range(0, len(chosen), _NODES_AT_ONCE):
                    part = chosen[low : low + _NODES_AT_ONCE]
                    rows[part] = system.sparse(rest[part] / few, rows[part], few * expected)
        return rows


@dataclass(frozen=True)
class _Problem:
    """Embeddings, and what is known of the neighbourhoods behind them.

    Attributes:
        equations: of J nodes.
        known: known rows [K, F].
        pairs: (place among the equations, place among the known rows) of known members [2, E].
        missing: number of unknown members, the node itself included [J].
    """

    equations: EmbeddingEquations
    known: Tensor
    pairs: Tensor
    missing: Tensor

    def remainder(self, rows: Tensor) -> Tensor:
        """Return the joint contribution of the unknown rows, ``sum of rows @ weight`` [J, R D].

        Args:
            rows: mean of a node's unknown rows, from which attention is computed [J, F].
        """
        equations, pairs, count = self.equations, self.pairs, self.missing.double()[:, None]
        unit, shares, neighbor = equations.per_unit, self.known @ equations.weight, self.known @ equations.neighbor.T
        own = rows @ equations.own.T
        attention = equations.series(own + rows @ equations.neighbor.T)
        each = equations.series(own[pairs[0]] + neighbor[pairs[1]])
        total = (count * attention).index_add(0, pairs[0], each)
        sums = (equations.means * 0).index_add(0, pairs[0], unit(each) * shares[pairs[1]])
        rest: Tensor = (equations.means * unit(total) - sums) / unit(attention)
        return rest

    def repeats(self, rows: Tensor) -> Tensor:
        """Return which rows explain the embeddings up to rounding [J].

        Args:
            rows: of nodes with one row missing, as sent [J, F].
        """
        rest = self.remainder(rows)
        error: Tensor = (rows @ self.equations.weight - rest).abs().amax(1)
        return error <= _REPEATS * rest.abs().amax(1)


@dataclass(frozen=True)
class _System:
    """``values = rows @ weight`` [J, R D] in the directions that float32 resolves, scaled to prior variance 1.

    Attributes:
        directions: weights in these d directions [F, d].
        project: from values to directions [R D, d].
        precision: weight of each direction, below 1 where rounding matters [d].
        variance: prior variance of an entry [F].
    """

    directions: Tensor
    project: Tensor
    precision: Tensor
    variance: Tensor

    @property
    def determines(self) -> bool:
        """Whether the values determine every entry of a row whatever it holds."""
        return self.directions.shape[0] == self.directions.shape[1]

    @staticmethod
    def of(weight: Tensor, variance: Tensor) -> _System:
        value, vector = torch.linalg.eigh(weight.T @ (variance[:, None] * weight))
        keep = value > _KEPT * value[-1]
        project = vector[:, keep] / value[keep].sqrt()
        precision = value[keep] / (value[keep] + _NOISE * value[-1])
        return _System(weight @ project, project, precision, variance)

    def posterior_mean(self, values: Tensor, mean: Tensor) -> Tensor:
        """Return the posterior mean of the rows [J, F] behind ``values`` [J, R D] under a Gaussian prior."""
        rest = values @ self.project - mean @ self.directions
        rows: Tensor = mean + (rest * self.precision) @ (self.variance[:, None] * self.directions).T
        return rows

    def sparse(self, values: Tensor, rows: Tensor, expected: float) -> Tensor:
        """Return least-squares rows [J, F] in which only the largest entries are not zero.

        Args:
            values: [J, R D].
            rows: first estimates, which select the entries [J, F].
            expected: expected number of non-zero entries of a row.
        """
        root = self.precision.sqrt()
        weights, target = self.directions * root, (values @ self.project) * root
        if self.determines:  # every entry of any row, sparse or not, by one matrix that all rows share
            gram = weights @ weights.T
            gram.diagonal().add_(_RIDGE)
            fitted: Tensor = torch.linalg.solve(gram, weights @ target.T).T
        else:
            most = max(1, min(int(_CANDIDATES * expected), weights.shape[1] // 2))
            place = rows.topk(most, dim=1).indices
            fitted = _fitted(weights, target, place, torch.ones_like(place, dtype=torch.bool))
        for _ in range(_REFITS):
            kept = _large(fitted)
            width = max(1, int(kept.sum(1).max().item()))
            if width > weights.shape[1] // 2:  # rows that are not sparse are as well off without
                break
            place = torch.where(kept, fitted, -1.0).topk(width, dim=1).indices
            fitted = _fitted(weights, target, place, kept.gather(1, place))
        return torch.where(_large(fitted), fitted, 0.0).clamp(min=0)


def _large(fitted: Tensor) -> Tensor:
    """Return which entries of rows [J, F] are not zero, as far as their size says."""
    return fitted > _LEAST_ENTRY * fitted.amax(1, keepdim=True)


def _fitted(weights: Tensor, target: Tensor, place: Tensor, used: Tensor) -> Tensor:
    """Return the rows [J, F] with ``row @ weights`` nearest to ``target``, all entries but some being zero.

    Args:
        weights: [F, d].
        target: [J, d].
        place: entries that may differ from zero [J, n].
        used: which of these may [J, n].
    """
    columns = weights[place].mT * used.unsqueeze(1)  # [J, d, n]
    gram = columns.mT @ columns + torch.diag_embed(_RIDGE + (~used).double())
    solved = torch.linalg.solve(gram, columns.mT @ target.unsqueeze(2)).squeeze(2) * used
    return target.new_zeros(len(target), len(weights)).scatter(1, place, solved)
