"""Which messages of different rounds come from the same client, where a shuffler hides the senders: subjects are pairs
of message codes [S, 2] (see ``fglaudit.shuffling``), an estimate is a score [S] (higher: more likely the same client).

Asked about are all pairs of messages of two of the first ten rounds. The metric is the area under the ROC curve. A
guess says the same of every pair.
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, ObserverTruth, Question, Scores
from fglaudit.quantities.ranking import ranked
from fglaudit.shuffling import message_codes, shuffled
from fglaudit.view import View

ROUNDS = 10
MOST_CLIENTS = 200


class Linkage(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "linkage"
    metric: ClassVar[str] = "auc"

    def ask(self, truth: ObserverTruth) -> Question | str:
        others = torch.tensor([k for k in range(truth.graph.num_clients) if k not in truth.observer.clients])
        rounds = min(truth.protocol.num_rounds, ROUNDS)
        if len(others) < 2:
            return "with fewer than two other clients there is nothing to tell apart"
        if len(others) > MOST_CLIENTS:
            return f"linkage is asked of at most {MOST_CLIENTS} clients: the pairs of their messages are too many"
        if rounds < 2:
            return "with a single round there is nothing to link"
        pairs, same, owners = [], [], []
        count = len(others)
        for first, second in itertools.combinations(range(1, rounds + 1), 2):
            senders, later = others[shuffled(first, count)], others[shuffled(second, count)]
            pairs.append(torch.cartesian_prod(message_codes(first, count), message_codes(second, count)))
            same.append((senders.unsqueeze(1) == later).flatten())
            owners.append(senders.repeat_interleave(count))
        answer, clusters = torch.cat(same).double(), torch.cat(owners)
        if truth.pooled:
            clusters = torch.full_like(clusters, truth.observer.clients[0])
        return Question(torch.cat(pairs), answer, clusters)

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        return Inference(self.name, subjects, torch.zeros(len(subjects), dtype=torch.double))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return ranked(question, estimate)
