"""The contract of a quantity: who is asked about, what is true, what a guess achieves, how an estimate is scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Inference, Planted
from fglaudit.view import Auxiliary, Observer, View


@dataclass(frozen=True)
class Truth:
    """What is true about a run, and about whom one observer is asked. For the scorer alone.

    Attributes:
        trained: see ``fglaudit.interfaces.Trained.truth``.
        pooled: whether the observer is one client of "each client in turn".
    """

    graph: FederatedGraph
    protocol: FederatedProtocol
    observer: Observer
    auxiliary: Auxiliary
    trained: Mapping[str, Tensor]
    pooled: bool

    def strangers(self) -> Tensor:
        """Return ids of the nodes of which the observer holds no row: neither its own nor auxiliary."""
        known = torch.zeros(self.graph.num_nodes, dtype=torch.bool)
        known[self.auxiliary.nodes] = True
        for k in self.observer.clients:
            known[self.graph.clients[k]] = True
        return (~known).nonzero().squeeze(1)

    def clusters(self, nodes: Tensor) -> Tensor:
        """Return the cluster of everything asked about ``nodes`` [S], for intervals: the observing client where every
        client is one in turn, otherwise the client that owns the node (the last one where clients overlap)."""
        if self.pooled:
            return torch.full_like(nodes, self.observer.clients[0])
        owner = torch.full((self.graph.num_nodes,), -1)
        for k, ids in enumerate(self.graph.clients):
            owner[ids] = k
        return owner[nodes]


@dataclass(frozen=True)
class Question:
    """What one observer is asked.

    Attributes:
        subjects: ids [S], or pairs of ids [S, 2].
        truth: [S] or [S, D].
        clusters: [S].
        rest: how many further subjects there are, all of them negative; not listed because they are too many (pairs of
            nodes without an edge).
        among: which nodes these pairs are made of, a mask [N]; None where subjects are no pairs or all nodes count.
    """

    subjects: Tensor
    truth: Tensor
    clusters: Tensor
    rest: int = 0
    among: Tensor | None = None


class Scores(NamedTuple):
    """Scores of one or several questions.

    Attributes:
        values: the primary metric per scored subject [V]; its mean is the finding's value.
        clusters: of the scored subjects [V].
        columns: further columns of ``findings.csv``.
    """

    values: Tensor
    clusters: Tensor
    columns: Mapping[str, float]


class Quantity(ABC):
    """One quantity."""

    name: ClassVar[str]
    metric: ClassVar[str]
    """Name of the primary metric; the larger the better, 1 is perfect."""

    @abstractmethod
    def ask(self, truth: Truth) -> Question | str:
        """Return whom the observer is asked about and what is true, or why there is nothing to ask."""

    @abstractmethod
    def guess(self, view: View, subjects: Tensor) -> Inference:
        """Return an estimate from side knowledge alone; ``view.messages`` is not read.

        Args:
            subjects: those of the question, where listing them gives nothing away; the answer may be about others.
        """

    @abstractmethod
    def judge(self, question: Question, estimate: Tensor) -> Scores:
        """Score ``estimate`` [S] or [S, D], aligned with ``question.subjects``."""

    def planted(self, planted: Planted) -> Question:
        """Return the question that a self-test's planted answer belongs to."""
        return Question(planted.nodes, planted.rows, torch.zeros(len(planted.nodes), dtype=torch.long))

    def score(self, question: Question, result: Inference, guess: Inference) -> Scores:
        """Score ``result``; where it says nothing about a subject, the guess stands."""
        estimate = guess.estimate.clone()
        codes, wanted = subject_codes(result.subjects, question.subjects)
        if len(codes):
            order = torch.argsort(codes, stable=True)
            source = order[torch.searchsorted(codes[order], wanted).clamp(max=len(codes) - 1)]
            found = codes[source] == wanted
            estimate[found] = result.estimate[source[found]].to(estimate)
        return self.judge(question, estimate)


def subject_codes(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return one integer per subject of both lists ([S] or [S, 2]), equal where the subjects are equal."""
    if first.dim() == 1:
        return first, second
    width = int(max(first.max().item() if first.numel() else 0, second.max().item() if second.numel() else 0)) + 1
    return first[:, 0] * width + first[:, 1], second[:, 0] * width + second[:, 1]


def similarity_scores(question: Question, estimate: Tensor) -> Scores:
    """Score vectors [S, D] by their cosines with the truth; a vector of zeros counts as 0."""
    estimate, truth = estimate.double(), question.truth.double()
    cosine = torch.nan_to_num(torch.cosine_similarity(estimate, truth, dim=1))
    error = (estimate - truth).norm(dim=1) / truth.norm(dim=1).clamp(min=1e-12)
    columns = {"cosine": float(cosine.mean().item()), "relative_error": float(error.mean().item())}
    return Scores(cosine, question.clusters, columns)
