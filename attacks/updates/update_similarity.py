"""Which clients have alike data, from how alike their models change: client similarity, as clustered federated learning
computes it (Sattler, Mueller and Samek, IEEE TNNLS 2021, section III; Xie et al. 2021, GCFL).

What all clients have in common is subtracted: the mean change of a round. What is left of the last layer's change,
added up over rounds so that noise averages out, points where a client's own classes pull; the score of a pair is the
cosine. Other layers also tell which features and neighbourhoods clients have; on Cora they say less of labels.

What is observed: whoever sees single uploads of several clients. Nothing is asked of the optimiser or the network.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import normalize

from fglaudit.adversary.uploads.held import sent_models
from fglaudit.attacks.updates.client_pairs import ClientPairs, pair_scores
from fglaudit.attacks.updates.update_shares import last_layer
from fglaudit.interfaces import Inference
from fglaudit.view import View


@dataclass(frozen=True)
class UpdateSimilarity(ClientPairs):
    """Rank pairs of clients by the cosine of the changes of their last layers."""

    name: ClassVar[str] = "update-similarity"
    first_rounds: ClassVar[int | None] = 10

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        start = _last_layer_start(view)
        size = sum(math.prod(shape) for shape in view.public.layout.values())
        total = torch.zeros(view.public.num_clients, size - start, dtype=torch.double, device=device)
        sent = torch.zeros(view.public.num_clients, dtype=torch.bool)
        for clients, models in sent_models(view, type(self).first_rounds):
            change = models.change[:, start:].to(total)
            total.index_add_(0, clients.to(device), change - change.mean(0))
            sent[clients] = True
        # Models of a training that diverged hold no numbers, and look like no other ones.
        marks = normalize(total, dim=1).nan_to_num(0.0)
        return pair_scores(sent.nonzero().squeeze(1), (marks @ marks.T).cpu())


def _last_layer_start(view: View) -> int:
    """Return at which entry of a model the last layer that clients send begins: its weight, and what follows it."""
    shapes = list(view.public.layout.items())
    known = last_layer(view)  # a GAT's attention vectors belong to the weights before them
    weights = [name for name, shape in shapes if len(shape) > 1]
    name = known.name if known is not None else weights[-1] if weights else shapes[0][0]
    return sum(math.prod(shape) for _, shape in itertools.takewhile(lambda each: each[0] != name, shapes))
