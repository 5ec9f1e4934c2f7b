"""Feature rows from reported classes: the row that a node of that class is expected to have.

A report says nothing of a row but the class that it predicts. Means of the observer's known rows by class, weighted by
how likely each class is after the report and before it by the edges (``report-labels``), and the rows of a node's known
neighbours (:mod:`fglaudit.adversary.priors.class_prior`) are all that can be said.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.planting import MemoryMessages, planted_rows
from fglaudit.adversary.priors.class_prior import rows_of_labels
from fglaudit.adversary.reported_classes import seen_reports
from fglaudit.attacks.codes.seen_reports import models_reports, reporting, sent_reports, without_edges
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
        seen = seen_reports(view)
        foreign = ~own_nodes(view)[seen.nodes]
        nodes, reported = seen.nodes[foreign], seen.reported[foreign]
        after = propagate_labels(view, nodes) * reporting(view, seen)[:, reported].T
        after = after / after.sum(1, keepdim=True)
        return Reconstruction(rows_of_labels(view, nodes, after), nodes, torch.zeros(len(nodes)))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant rows that are the same within a class, and reports of the class of every node. Real-valued ones must be
        found by direction: what is expected of a row is a mean, and never the row itself.

        Known rows are dealt out to the classes evenly: of a class with one known row beside many of another not even
        the right class tells the row.
        """
        n, classes = view.public.num_nodes, view.public.num_classes
        known = view.known_rows()
        labelled = known.nodes[known.y >= 0]
        seen = torch.unique(known.y[known.y >= 0])
        real = view.public.features is FeatureKind.REAL
        prototypes = _opposed_rows(view, seen, rng) if real else planted_rows(view, torch.full((classes,), -1), rng)
        y = torch.randint(classes, (n,), generator=rng)
        y = seen[y % len(seen)]
        y[labelled] = seen[torch.arange(len(labelled)) % len(seen)]
        strangers = torch.ones(n, dtype=torch.bool)
        strangers[known.nodes] = False
        nodes = strangers.nonzero().squeeze(1)
        messages = MemoryMessages((sent_reports(view, torch.arange(n), one_hot(y, classes)),))
        planted = without_edges(view, messages)
        aux = dataclasses.replace(view.auxiliary, x=prototypes[y[view.auxiliary.nodes]], y=y[view.auxiliary.nodes])
        own = tuple(dataclasses.replace(c, x=prototypes[y[c.nodes]], y=y[c.nodes]) for c in planted.own)
        labels = dataclasses.replace(view.labels, y=y[view.labels.nodes])
        planted = dataclasses.replace(planted, own=own, auxiliary=aux, labels=labels)
        return Planted(planted, prototypes[y[nodes]], nodes, "cosine" if real else "exact_rate")


def _opposed_rows(view: View, seen: Tensor, rng: torch.Generator) -> Tensor:
    """Return a row per class [C, F], of which those of the classes ``seen`` sum to zero: means that lean towards each
    other keep their direction, and one guess for all classes has cosine 0."""
    rows = torch.randn(view.public.num_classes, view.public.num_features, generator=rng)
    return rows - rows[seen].mean(0)
