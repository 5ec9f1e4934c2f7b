"""The rows that clients' first layers read: :mod:`fglaudit.quantities.unplaced.unplaced_rows`.

For FedGCN these are the sums ``S_i`` of the training nodes and the own neighbours in reach, for FedGAT the feature rows
of their neighbourhoods, where features stay at home what training nodes have of them: over the edges that are trained
with, where a defense drops some. Asked about are the clients that are not observing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch

from fglaudit.interfaces import Attack
from fglaudit.payloads import ModelUpdate
from fglaudit.quantities.base import Attempt, Comparison, ObserverTruth, Question
from fglaudit.quantities.unplaced.unplaced_rows import UnplacedRows


class LayerInputs(UnplacedRows):
    """See the module docstring."""

    name: ClassVar[str] = "layer-inputs"

    def ask(self, truth: ObserverTruth) -> Question | str:
        found = truth.layer_inputs()
        if found is None:
            return f"{type(truth.protocol).name} does not say which rows its first layer reads"
        clients, rows = found
        others = torch.isin(clients, truth.others()) & rows.any(1)
        if not bool(others.any()):
            return "no other client has training nodes with features in reach"
        clients, rows = clients[others], rows[others]
        index = torch.arange(len(clients)) - torch.searchsorted(clients, clients)
        return Question(torch.stack([clients, index], 1), rows, truth.clusters_of(clients))

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        """Also tell clients whose rows fit within the rank of what the attack reads from the others."""
        compared = super().compare(attack, attempts)
        view = attempts[0].view
        _, width = next(iter(view.public.layout.values()))
        rounds = getattr(attack, "rounds", None) or type(attack).first_rounds or 1
        seen = {batch.round for batch in view.messages.of(ModelUpdate)} - {0}  # 0: the first model, nobody's step
        limit = width * min(rounds, len(seen))
        owners = [each.question.subjects[:, 0] for each in attempts]
        sizes = torch.cat([torch.bincount(owner)[owner] for owner in owners])
        groups = {f"at most {limit}": sizes <= limit, f"more than {limit}": sizes > limit}
        shares = compared.among(groups)
        return dataclasses.replace(compared, breakdown={"rows of the client (rank limit)": shares})
