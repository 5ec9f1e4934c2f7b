"""Feature rows from reported classes: the row that a node of that class is expected to have.

A report says nothing of a row but the class that it predicts. The row with the best expected F1 under class means of
the observer's known rows, weighted by how likely each class is after the report (``report-labels``), is all that can be
said; real-valued rows get the mean.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

from fglaudit.adversary.class_means import class_means
from fglaudit.adversary.expected_f1 import best_f1_bits
from fglaudit.adversary.feature_prior import feature_prior
from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import MemoryMessages, planted_rows
from fglaudit.attacks.codes.seen_reports import models_reports, reporting, seen_reports, sent_reports, without_edges
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import ClassReports, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class ReportRows(Attack):
    """Rebuild rows from reported classes."""

    name: ClassVar[str] = "report-rows"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    metric: ClassVar[str] = "f1"

    def models(self, fact: Fact) -> bool:
        """As ``report-labels``; a row that was changed before use predicts the report all the same."""
        return models_reports(fact)

    def unsupported(self, view: View) -> str | None:
        known = view.known_rows().y
        if len(torch.unique(known[known >= 0])) < 2:
            return "class means need known rows of at least two classes; give the observer some, e.g. auxiliary: 0.1"
        if bool(own_nodes(view)[seen_reports(view).nodes].all()):
            return "the observer sees no report of a node of others"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        seen, known, classes = seen_reports(view), view.known_rows(), view.public.num_classes
        foreign = ~own_nodes(view)[seen.nodes]
        nodes, reported = seen.nodes[foreign], seen.reported[foreign]
        labelled = known.y >= 0
        kinds = one_hot(known.y[labelled], classes).double()
        real = view.public.features is FeatureKind.REAL
        x = known.x[labelled].double() if real else (known.x[labelled] != 0).double()
        means = class_means(x, kinds)
        shares = (kinds.sum(0) + 1) / (kinds.sum(0) + 1).sum()
        after = reporting(view, seen) * shares.unsqueeze(1)
        after = after / after.sum(0)
        rows = after.T @ means  # of every class that may be reported [C, F]
        if not real:
            rows = best_f1_bits(rows) * feature_prior(view, nodes[:1]).level
        confidence = torch.zeros(len(nodes))
        return Reconstruction(rows[reported].float(), nodes, confidence)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant rows that are the same within a class, and reports of the class of every node."""
        n, classes = view.public.num_nodes, view.public.num_classes
        prototypes = planted_rows(view, torch.full((classes,), -1), rng)
        y = torch.randint(classes, (n,), generator=rng)
        known = view.known_rows()
        seen = torch.unique(known.y[known.y >= 0])
        y = seen[y % len(seen)]
        y[known.nodes] = known.y.clamp(min=0)
        strangers = torch.ones(n, dtype=torch.bool)
        strangers[known.nodes] = False
        nodes = strangers.nonzero().squeeze(1)
        messages = MemoryMessages((sent_reports(view, torch.arange(n), one_hot(y, classes)),))
        planted = without_edges(view, messages)
        aux = dataclasses.replace(view.auxiliary, x=prototypes[view.auxiliary.y.clamp(min=0)])
        own = tuple(dataclasses.replace(c, x=prototypes[c.y.clamp(min=0)]) for c in planted.own)
        return Planted(dataclasses.replace(planted, own=own, auxiliary=aux), prototypes[y[nodes]], nodes)
