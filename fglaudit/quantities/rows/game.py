"""The question about feature rows, and the figures of rebuilt rows against its truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Reconstruction
from fglaudit.interfaces.outcomes import PREDICTED_CLASSES
from fglaudit.quantities.base import ObserverTruth, Question
from fglaudit.quantities.rows.metrics import RowScores, auc_of_entries, directions, matched_exact, score_rows


@dataclass(frozen=True)
class Game(Question):
    """What one observer is asked about feature rows.

    Attributes:
        subjects: global node ids [T] whose rows the observer is to learn: exposed nodes without its own and auxiliary
            ones. A node with S samples stands there S times, once per sample.
        truth: their features [T, F].
        clusters: [T], the cluster each target belongs to for intervals.
        kind: what the levels of features are.
        labels, degrees, owners: of the targets, for breakdowns.
        known: how many exposed nodes are no targets, since the observer knows their rows beforehand.
        predicted: the class that each node of the graph predicts [N], where nodes report it; empty otherwise.
        every: the rows of all nodes of the graph [M, F], of which ``truth`` is part.
    """

    kind: FeatureKind = FeatureKind.REAL
    labels: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    degrees: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    owners: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    known: int = 0
    predicted: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    every: Tensor = field(default_factory=lambda: torch.empty(0, 0))

    @property
    def targets(self) -> Tensor:
        """The subjects [T]."""
        return self.subjects

    @staticmethod
    def of(truth: ObserverTruth) -> Game:
        """Set up the game of the truth's observer. A cluster is the observing client where every client is one in turn,
        otherwise the client that owns the target."""
        graph, auxiliary = truth.graph, truth.auxiliary
        exposed = truth.protocol.exposed(graph, truth.observer)
        known = auxiliary.nodes if truth.partial is None else torch.cat([auxiliary.nodes, truth.partial.nodes])
        targets = exposed[~torch.isin(exposed, known)]
        samples = graph.x.shape[1] if graph.x.dim() == 3 else 1
        rows = graph.x[targets].reshape(-1, graph.num_features)
        labels = graph.y[targets] if graph.y.dim() == 1 else graph.y[targets].flatten()
        targets = targets.repeat_interleave(samples)
        if len(labels) < len(targets):
            labels = labels.repeat_interleave(samples)
        owners = truth.owners()[targets]
        clusters = torch.full_like(targets, truth.observer.clients[0]) if truth.pooled else owners
        return Game(
            targets,
            rows,
            clusters,
            kind=graph.features,
            labels=labels,
            degrees=graph.degrees()[targets],
            owners=owners,
            known=len(exposed) - len(targets) // samples,
            predicted=truth.trained.get(PREDICTED_CLASSES, labels[:0]),
            every=graph.x.reshape(-1, graph.num_features),
        )

    @staticmethod
    def about(nodes: Tensor, rows: Tensor, kind: FeatureKind) -> Game:
        """Return the game of guessing ``rows`` [T, F] of ``nodes`` [T], all one cluster."""
        none = torch.zeros_like(nodes)
        return Game(nodes, rows, none, kind=kind, labels=none, degrees=none, owners=none, every=rows)

    def answer(self, result: Reconstruction) -> tuple[Tensor, Tensor, Tensor]:
        """Return the attack's rows in the order of the targets [T, F], which of them it gave [T], and which it proved
        [T].

        Where the attack gives several rows for a node, its most confident one counts. Of a node with several samples
        the order is unknowable: as many rows as it has samples are matched to them by the largest sum of cosines.
        """
        if len(result.nodes) == 0:
            none = torch.zeros(len(self.targets), dtype=torch.bool)
            return torch.zeros_like(self.truth), none, none
        if len(self.targets) > 1 and bool((self.targets[1:] == self.targets[:-1]).any()):
            return self._answer_samples(result)
        position = positions(self.targets, int(max(self.targets.max().item(), result.nodes.max().item())) + 2)
        place = position[result.nodes]  # an unassigned row (-1) indexes the spare last entry, which is -1
        order = torch.argsort(result.confidence, stable=True)
        order = order[place[order] >= 0]
        rank = torch.full((len(self.targets),), -1).scatter_reduce(0, place[order], torch.arange(len(order)), "amax")
        present = rank >= 0
        source = torch.where(present, order[rank], -1) if len(order) else rank
        rows = torch.zeros_like(self.truth)
        rows[present] = result.rows[source[present]].to(rows.dtype)
        proven = torch.zeros_like(present)
        if result.proven is not None:
            proven[present] = result.proven[source[present]]
        return rows, present, proven

    def _answer_samples(self, result: Reconstruction) -> tuple[Tensor, Tensor, Tensor]:
        rows, present = torch.zeros_like(self.truth), torch.zeros(len(self.targets), dtype=torch.bool)
        proven = torch.zeros_like(present)
        order = torch.argsort(result.confidence, descending=True, stable=True)
        order = order[torch.argsort(result.nodes[order], stable=True)]  # of one node, the most confident first
        nodes, counts = torch.unique(self.targets, return_counts=True)
        begin, end = (torch.searchsorted(result.nodes[order], nodes, right=right) for right in (False, True))
        end = torch.minimum(end, begin + counts)
        groups = torch.split(torch.argsort(self.targets, stable=True), counts.tolist())
        for wanted, first, last in zip(groups, begin.tolist(), end.tolist(), strict=True):
            given = order[first:last]
            found = result.rows[given].to(rows.dtype)
            cosine = directions(found) @ directions(self.truth[wanted]).T
            row, column = (
                torch.from_numpy(index) for index in linear_sum_assignment(cosine.double().numpy(), maximize=True)
            )
            place = wanted[column]
            rows[place], present[place] = found[row], True
            if result.proven is not None:
                proven[place] = result.proven[given[row]]
        return rows, present, proven


class Score(NamedTuple):
    """Figures over all targets of one or several games."""

    rows: RowScores
    auc: float | None
    matched_rate: float
    proven: Tensor | None  # [T]: which rows the attack called proven; None where it does not prove
    false_proofs: int  # of these, how many are wrong: a broken attack


def score(games: Sequence[Game], results: Sequence[Reconstruction], *, matching: bool = True) -> Score:
    """Score one attack over the pooled targets of ``games``, e.g. of every client in turn."""
    parts, answers, proofs, hits, wrong = [], [], [], 0, 0
    for game, result in zip(games, results, strict=True):
        if len(game.targets) == 0:
            continue
        rows, present, proven = game.answer(result)
        scored = score_rows(rows, present, game.truth, game.kind)
        parts.append(scored)
        answers.append(rows)
        proofs.append(proven)
        wrong += int((proven & (scored.exact_rate == 0)).sum().item())
        if matching:
            mine = torch.isin(result.nodes, game.targets) | (result.nodes < 0)
            best = torch.argsort(result.confidence[mine], descending=True, stable=True)[: len(game.targets)]
            hits += matched_exact(result.rows[mine][best].to(game.truth.dtype), game.truth, game.kind)
    pooled = RowScores.pool(parts)
    total = len(pooled.exact_rate)
    return Score(
        rows=pooled,
        auc=auc_of_entries(answers, [g.truth for g in games if len(g.targets)], games[0].kind),
        matched_rate=hits / total,
        proven=torch.cat(proofs) if any(r.proven is not None for r in results) else None,
        false_proofs=wrong,
    )
