"""The rows that clients' first layers read: subjects are pairs (client, index) [S, 2], an estimate is a row [S, F].

For FedGCN these are the sums ``S_i`` of the training nodes and the own neighbours in reach, for FedGAT the feature rows
of their neighbourhoods. Which node a row belongs to is not asked, nor its length, which no update shows: a row is exact
if, both scaled to a largest entry of 1, no entry is off by more than 1e-3. Rows of an attack are matched to the true
ones of the client that it names (-1: of anybody) one to one; of more rows than there are true ones the first count.
Asked about are the clients that are not observing. A guess is the mean of the rows that the observer knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.interfaces import Attack, Inference
from fglaudit.payloads import ModelUpdate
from fglaudit.quantities.base import Comparison, InferredQuantity, Question, Scores, Truth
from fglaudit.view import View

TOLERANCE = 1e-3
"""Of the largest entry."""
ANYBODY = -1


class LayerInputs(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "layer-inputs"
    metric: ClassVar[str] = "exact_rate"

    def ask(self, truth: Truth) -> Question | str:
        found = truth.protocol.layer_inputs(truth.graph)
        if found is None:
            return f"{type(truth.protocol).name} does not say which rows its first layer reads"
        clients, rows = found
        others = ~torch.isin(clients, torch.tensor(truth.observer.clients, dtype=torch.long)) & rows.any(1)
        if not bool(others.any()):
            return "no other client has training nodes with features in reach"
        clients, rows = clients[others], rows[others]
        index = torch.arange(len(clients)) - torch.searchsorted(clients, clients)
        clusters = torch.full_like(clients, truth.observer.clients[0]) if truth.pooled else clients
        return Question(torch.stack([clients, index], 1), rows, clusters)

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        known = view.known_rows().x
        row = known.double().mean(0) if len(known) else torch.ones(view.public.num_features, dtype=torch.double)
        return Inference(self.name, subjects, row.expand(len(subjects), -1))

    def score(self, question: Question, result: Inference, guess: Inference) -> Scores:
        """Score rows; a true row that no row is left for gets what the guess has for it."""
        estimate = guess.estimate.double().clone()
        for client in torch.unique(result.subjects[:, 0]).tolist():
            given = (result.subjects[:, 0] == client).nonzero().squeeze(1)
            wanted = torch.arange(len(question.truth))
            if client != ANYBODY:
                wanted = (question.subjects[:, 0] == client).nonzero().squeeze(1)
            given = given[: len(wanted)]
            if not len(given):
                continue
            rows = result.estimate[given].double()
            likeness = normalize(question.truth[wanted].double(), dim=1) @ normalize(rows, dim=1).T
            truth, found = (torch.from_numpy(i) for i in linear_sum_assignment(likeness.numpy(), maximize=True))
            estimate[wanted[truth]] = rows[found]
        return self.judge(question, estimate)

    def compare(
        self,
        attack: Attack,
        views: Sequence[View],
        asked: Sequence[Question],
        results: Sequence[Inference],
        guesses: Sequence[Inference],
    ) -> Comparison:
        """Also tell clients whose rows fit within the rank of what the attack reads from the others."""
        compared = super().compare(attack, views, asked, results, guesses)
        _, width = next(iter(views[0].public.layout.values()))
        rounds = getattr(attack, "rounds", None) or type(attack).first_rounds or 1
        seen = {batch.round for batch in views[0].messages.of(ModelUpdate)} - {0}  # 0: the first model, nobody's step
        limit = width * min(rounds, len(seen))
        sizes = torch.cat([torch.bincount(question.subjects[:, 0])[question.subjects[:, 0]] for question in asked])
        groups = {f"at most {limit}": sizes <= limit, f"more than {limit}": sizes > limit}
        shares = {name: float(compared.values[mask].mean().item()) for name, mask in groups.items() if bool(mask.any())}
        return dataclasses.replace(compared, breakdown={"rows of the client (rank limit)": shares})

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        found, truth = _scaled(estimate.double()), _scaled(question.truth.double())
        exact = ((found - truth).abs().amax(1) <= TOLERANCE).double()
        cosine = torch.nan_to_num(torch.cosine_similarity(found, truth, dim=1))
        columns = {"exact_rate": float(exact.mean().item()), "cosine": float(cosine.mean().item())}
        return Scores(exact, question.clusters, columns)


def _scaled(rows: Tensor) -> Tensor:
    """Return rows [S, F] with a largest entry of 1."""
    return rows / rows.abs().amax(1, keepdim=True).clamp(min=1e-300)
