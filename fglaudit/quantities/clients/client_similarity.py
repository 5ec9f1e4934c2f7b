"""Which clients have alike data: subjects are pairs of clients [S, 2], an estimate is a score [S] (higher: more alike).

Asked about are all pairs of clients that are not observing and have labels. Two are alike whose label distributions are
nearer, by total variation, than the middle one of all pairs asked about. So a threshold is not chosen, half of the
pairs are alike under every partition, and a ranking of pairs is asked for, not a scale; what it says of clients whose
nodes are drawn alike is luck of the draw. (Whether two clients have the same most frequent class needs no threshold
either, but of ten or twenty clients hardly a pair has, or all have.)

The metric is the area under the ROC curve. The guess says the same of every pair; where clients of about one size are
more often alike, these are the control: who averages by size knows the sizes without a message. Which of the two stands
is decided by the truth, in favour of the guess.

A client is in many pairs, so pairs are not independent; clients are. The spread that an interval is made of is that of
leaving out a client with all of its pairs (Snijders and Borgatti, Connections 1999; Fafchamps and Gubert, J. Dev. Econ.
2007): a pair counts for one of its two clients and moves the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.quantities.base import Attempt, Comparison, ObserverTruth, Question, Scores
from fglaudit.quantities.clients.label_distributions import histogram
from fglaudit.quantities.negatives import Negatives
from fglaudit.quantities.ranking import RankedQuantity, against

MOST_CLIENTS = 200
_EQUAL = 1e-9
"""Distances that differ by no more are equal: that is rounding."""


@dataclass(frozen=True, kw_only=True)
class PairQuestion(Question):
    """A question about pairs; ``clusters`` holds one client of each, evenly the one or the other.

    Attributes:
        partners: the cluster of the other client [S].
        sizes: how many labels the two have [S, 2].
    """

    partners: Tensor
    sizes: Tensor


class ClientSimilarity(RankedQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "client-similarity"

    def ask(self, truth: ObserverTruth) -> PairQuestion | str:
        graph = truth.graph
        counts = torch.stack([histogram(graph.y[ids], graph.num_classes) for ids in graph.clients])
        others = truth.others()
        others = others[counts[others].sum(1) > 0]
        if len(others) < 3:
            return "with fewer than three other clients that have labels no pair of them is nearer than another"
        if len(others) > MOST_CLIENTS:
            return f"asked of pairs among at most {MOST_CLIENTS} clients: of {len(others)} there are too many"
        pairs = torch.combinations(others)
        near = alike(counts, pairs)
        if not bool(near.any()):
            return "all pairs of other clients have label distributions that are equally far apart"
        sizes = counts.sum(1)[pairs]
        one, partner = _dealt(pairs)
        clusters, partners = truth.clusters_of(one), truth.clusters_of(partner)
        return PairQuestion(pairs, near.double(), clusters, partners=partners, sizes=sizes)

    def planted(self, planted: Planted) -> PairQuestion:
        one, partner = _dealt(planted.nodes)
        sizes = torch.ones(planted.nodes.shape, dtype=torch.double)
        return PairQuestion(planted.nodes, planted.rows, one, partners=partner, sizes=sizes)

    def estimated(self, question: Question, result: Inference, guess: Inference) -> Tensor:
        """See the base class; a pair's two orders are one pair."""
        ordered = replace(result, subjects=result.subjects.sort(1).values) if result is not guess else result
        return super().estimated(question, ordered, guess)

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        scores = super().judge(question, estimate)
        assert isinstance(question, PairQuestion) and scores.negatives is not None
        true = question.truth > 0
        apart = question.partners != question.clusters  # else one party observes both, and the pair counts once
        of_partner = against(estimate[true].double(), estimate[~true].double(), question.partners[~true])
        ones = torch.ones_like(scores.values)
        again = Negatives(scores.values, question.partners[true], ones, torch.zeros(len(ones), dtype=torch.long))
        moved = [_among(of_partner, apart[~true]), _among(again, apart[true])]
        return scores._replace(negatives=Negatives.joined([scores.negatives, *moved]))

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        # What the attack left open is filled in first: another guess must not change its answer.
        filled = [each._replace(result=self._filled(each)) for each in attempts]
        sized = [each._replace(guess=_by_size(each.question)) for each in filled]
        return super().compare(attack, max(filled, sized, key=self._guessed))

    def _filled(self, attempt: Attempt) -> Inference:
        question = attempt.question
        return Inference(self.name, question.subjects, self.estimated(question, attempt.result, attempt.guess))

    def _guessed(self, attempts: Sequence[Attempt]) -> float:
        """Return the sum of the guesses' scores."""
        return sum(float(self.score(q, guess, guess).values.sum().item()) for _, q, _, guess in attempts)


def alike(counts: Tensor, pairs: Tensor) -> Tensor:
    """Return which ``pairs`` [S, 2] of clients have label distributions nearer than the middle one of them [S].

    Args:
        counts: labels of every class at every client [K, C].
    """
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    distance = torch.cdist(shares, shares, p=1)[pairs[:, 0], pairs[:, 1]] / 2
    return distance < distance.quantile(0.5) - _EQUAL


def _dealt(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Return one client of each of ``pairs`` [S, 2] and the other, so that all clients come first about as often."""
    odd = (pairs.sum(1) % 2 == 1).long().unsqueeze(1)
    return pairs.gather(1, odd).squeeze(1), pairs.gather(1, 1 - odd).squeeze(1)


def _among(part: Negatives, kept: Tensor) -> Negatives:
    return Negatives(*(each[kept] for each in part))


def _by_size(question: PairQuestion) -> Inference:
    """Return the guess that clients are alike the more, the nearer their sizes are to each other."""
    ratio = question.sizes.log().diff(dim=1).squeeze(1).abs()
    return Inference(ClientSimilarity.name, question.subjects, -ratio)
