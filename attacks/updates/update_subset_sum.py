"""Single feature rows from model updates: what update-inversion finds, the sums of a GCN's first layer, taken apart.

A row of ``S = A X`` follows from a client's upload up to a factor
(:mod:`fglaudit.attacks.updates.update_inversion`). With symmetric normalisation and binary features its values show
the degrees of the neighbours, and these who has which word (:mod:`fglaudit.attacks.updates.sum_terms`), but for
neighbours of equal degree. What comes out are rows of training nodes, of their neighbours, and of own neighbours' in
reach, wherever they are held: the observer is told neither whose rows they are nor at which client.

``python -m bench update-inversion`` measures it on Cora.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.uploads.means import EVERYBODY
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.updates.planted_changes import planted_clients, planted_messages, separable_rows
from fglaudit.attacks.updates.sum_terms import sum_terms
from fglaudit.attacks.updates.update_inversion import ROUNDS, UpdateInversion
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind, first_of_each
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload
from fglaudit.rng import split
from fglaudit.structure import NORMALISED, Codes, Convolutions, Sums
from fglaudit.view import View

_PLANTED_WORDS, _PLANTED_DEGREES = 4, (2, 3, 2, 5)


@dataclass(frozen=True)
class UpdateSubsetSum(Attack):
    """Take the rows that update-inversion finds apart into feature rows.

    Attributes:
        rounds: how many are read, at most 8.
    """

    name: ClassVar[str] = "update-subset-sum"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"
    quantity: ClassVar[str] = "held-rows"
    first_rounds: ClassVar[int | None] = ROUNDS
    least: ClassVar[Mapping[str, float]] = {"rounds": 1}

    rounds: int = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Weights are those of the degrees in the whole graph, so that sums over fewer edges are taken apart alike."""
        return UpdateInversion().models(fact)

    def unsupported(self, view: View) -> str | None:
        if (missing := view.public.structure.missing(Convolutions)) is not None:
            return missing
        stated = view.public.structure.get(Sums)
        if stated is not None and stated.weighting != NORMALISED:
            return f"{stated.weighting} have no weights to tell neighbours apart; update-inversion finds the sums"
        if view.public.structure.get(Codes) is not None:
            return "what clients train on is smoothed over the graph: no sum of a few neighbours to take apart"
        if view.public.features is not FeatureKind.BINARY:
            return "sums are taken apart because all entries of all rows are 1; these features are not binary"
        if view.public.num_features < len(_PLANTED_DEGREES):
            return f"neighbours are told apart by words of their own; {view.public.num_features} features are too few"
        return UpdateInversion(self.rounds).unsupported(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        sums = UpdateInversion(self.rounds).run(view, rng=rng, device=device).estimate
        found = [sum_terms(row) for row in sums]
        none = torch.zeros(0, view.public.num_features, dtype=torch.bool)
        single = torch.cat([none, *(terms.bits[terms.most == 1] for terms in found)])
        several = torch.cat([none, *(terms.bits[terms.most > 1] for terms in found)])
        rows = torch.cat([_distinct(single), _distinct(several)]).float()
        order = torch.arange(len(rows))
        return Inference(type(self).quantity, torch.stack([torch.full_like(order, EVERYBODY), order], 1), rows)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients whose first layers read two sums of two neighbours each, of which the first share a word. Of
        rows that are equal, as many are where features are few, one is asked about: so are they found."""
        rng = split(rng, "plant")
        features, clients = view.public.num_features, planted_clients(view)
        own = min(_PLANTED_WORDS, max(1, (features - 1) // len(_PLANTED_DEGREES)))
        rows = torch.zeros(len(clients), len(_PLANTED_DEGREES), features)
        for place in range(len(clients)):
            words = torch.randperm(features, generator=rng)
            for index in range(len(_PLANTED_DEGREES)):
                rows[place, index, words[index * own : (index + 1) * own]] = 1
            rows[place, :2, words[-1]] = 1
        weighted = rows * torch.tensor(_PLANTED_DEGREES).rsqrt()[:, None]
        sums = torch.stack([weighted[:, :2].sum(1), weighted[:, 2:].sum(1)], 1)[:, : separable_rows(view)]
        messages = planted_messages(view, sums, rng)
        subjects = torch.cartesian_prod(clients, torch.arange(2 * sums.shape[1]))
        answer = rows[:, : 2 * sums.shape[1]].flatten(0, 1)
        asked = first_of_each(answer)[2].sort().values
        return Planted(without_defense(view, messages), answer[asked], subjects[asked])


def _distinct(rows: torch.Tensor) -> torch.Tensor:
    """Return the different ones of ``rows`` [R, F] that have an entry, in the order of their first occurrence."""
    rows = rows[rows.any(1)]
    return rows[first_of_each(rows)[2].sort().values] if len(rows) else rows
