"""Classes of nodes from the class that they report.

What a report is worth is learned from nodes whose label and report are both known: how often class y reports r, with
two further reports per class that follow the stated k-ary response, or the label itself where none is stated. That
covers both what the encoder gets wrong and what the response changes. Neighbours are mostly of one class, so that a
node's class shows in its neighbours' reports too, and errors of single reports, random ones included, average out over
them: reports are propagated over the edges that the observer knows, along with the known labels. The control propagates
these labels alone: the advantage is what reports add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.reported_classes import seen_reports
from fglaudit.attacks.codes.seen_reports import evidence, models_reports, sent_reports, without_edges
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ClassReports, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class ReportLabels(Attack):
    """Infer labels from reports."""

    name: ClassVar[str] = "report-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"

    def models(self, fact: Fact) -> bool:
        """Responses are learned with the classes; facts about rows, gradients and edges change what is learned."""
        return models_reports(fact)

    def unsupported(self, view: View) -> str | None:
        foreign = ~own_nodes(view)[seen_reports(view).nodes]
        return None if bool(foreign.any()) else "the observer sees no report of a node of others"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        seen = seen_reports(view)
        foreign = ~own_nodes(view)
        if view.topology is None:  # nothing leads to nodes that did not report
            foreign &= torch.isin(torch.arange(len(foreign)), seen.nodes)
        nodes = foreign.nonzero().squeeze(1)
        return Inference(self.quantity, nodes, propagate_labels(view, nodes, evidence(view, seen)))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant reports that are the labels, of all nodes, in a graph of which nothing is known."""
        n, classes = view.public.num_nodes, view.public.num_classes
        y = torch.randint(classes, (n,), generator=rng)
        known = view.known_rows()
        y[known.nodes] = known.y.clamp(min=0)
        y[view.labels.nodes] = view.labels.y.clamp(min=0)
        strangers = torch.ones(n, dtype=torch.bool)
        strangers[torch.cat([known.nodes, view.labels.nodes])] = False
        nodes = strangers.nonzero().squeeze(1)
        planted = without_edges(view, MemoryMessages((sent_reports(view, torch.arange(n), one_hot(y, classes)),)))
        return Planted(planted, y[nodes], nodes)
