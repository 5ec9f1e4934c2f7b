"""Which messages of different rounds come from the same client, where a shuffler hides the senders: subjects are pairs
of message codes [S, 2] (see ``fglaudit.shuffling``), an estimate is a score [S] (higher: more likely the same client).

Asked about are all pairs of messages of two of the first ten rounds. The metric is the area under the ROC curve. A
guess says the same of every pair.
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import torch

from fglaudit.quantities.base import ObserverTruth, Question
from fglaudit.quantities.ranking import RankedQuantity
from fglaudit.shuffling import message_codes, shuffled

ROUNDS = 10
MOST_CLIENTS = 200


class Linkage(RankedQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "linkage"

    def ask(self, truth: ObserverTruth) -> Question | str:
        others = truth.others()
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
        return Question(torch.cat(pairs), torch.cat(same).double(), truth.clusters_of(torch.cat(owners)))
