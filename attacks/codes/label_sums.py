"""Labels of training nodes from sums of labels, as label propagation publishes them.

Rows of step 0 are the labels of neighbours at other clients; who knows the edges solves rows of later steps for those
of nodes farther off (:mod:`fglaudit.attacks.codes.spread_labels`). Labels that were found count as known, and all other
nodes get what label propagation over the known edges makes of them. Where labels were sent by k-ary response, what is
found are the responses, and they are worth what responses of known nodes are.

What is observed: a client sees rows of its remote neighbours, after every step. The server is sent every label as it
leaves its client; sums tell it nothing beside these.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import known_edges, own_nodes
from fglaudit.adversary.known_labels import known_labels, with_labels
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.reported_classes import Seen
from fglaudit.attacks.codes.seen_reports import evidence, models_reports
from fglaudit.attacks.codes.spread_labels import STEPS, SURE, solved_labels
from fglaudit.facts import EDGES, Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, ClassReports, HopSums, MessageBatch, Payload
from fglaudit.structure import Reports, SpreadReports
from fglaudit.view import View

_PLANTED = 200
"""Rows of the self-test at most, so that a large graph asks no more of it."""


@dataclass(frozen=True)
class LabelSums(Attack):
    """Infer labels from rows of label propagation."""

    name: ClassVar[str] = "label-sums"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HopSums,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"
    first_rounds: ClassVar[int | None] = STEPS

    def models(self, fact: Fact) -> bool:
        """Responses are worth what known ones are; edges are taken to be those of the whole graph."""
        return models_reports(fact) and fact.target != EDGES

    def unsupported(self, view: View) -> str | None:
        if missing := view.public.structure.missing(SpreadReports, Reports):
            return missing
        if view.public.structure.of(Reports).of != "label":
            return "what is propagated are no labels"
        if next((b for b in view.messages.of(HopSums) if len(b.payload.tensors()["nodes"])), None) is None:
            return "the observer sees no row of a node"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = solved_labels(view, device)
        assert found is not None
        told = found.known & (found.labels.amax(1) > 0) & ~own_nodes(view)
        responses = Seen(told.nonzero().squeeze(1), found.labels[told].argmax(1))
        nodes = (~own_nodes(view)).nonzero().squeeze(1)
        if view.public.structure.of(Reports).keep < 1:
            return Inference(self.quantity, nodes, propagate_labels(view, nodes, evidence(view, responses)))
        return Inference(self.quantity, nodes, propagate_labels(with_labels(view, *responses), nodes))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant labels of nodes that rows are about, and of a further neighbour of each where edges are known and there
        is no second one; the rows of the first step are made of them as stated."""
        n, classes = view.public.num_nodes, view.public.num_classes
        spread = view.public.structure.of(SpreadReports).spread
        mine = own_nodes(view)
        row, column = known_edges(view)
        about = torch.zeros(n, dtype=torch.bool)
        about[column[mine[row] & ~mine[column]]] = True
        if not bool(about.any()):
            about[torch.randperm(n, generator=rng)[: max(1, n // 2)]] = True
        some = about.nonzero().squeeze(1)
        about[some[torch.randperm(len(some), generator=rng)[_PLANTED:]]] = False
        label, centres = about.clone(), about
        scale = torch.bincount(row, minlength=n).double().rsqrt()
        if view.topology is not None:
            lone, centres = _lone_neighbours(row, column, about, mine, spread * scale[row] * scale[column])
            label |= lone
        y = torch.randint(classes, (n,), generator=rng)
        labelled, known = known_labels(view)
        y[labelled] = known
        held = label & (torch.rand(n, generator=rng) < 0.5)
        held[label.nonzero()[0]] = True
        asked = held.clone()
        asked[labelled] = False
        asked = (asked if bool(asked.any()) else held).nonzero().squeeze(1)
        reports = one_hot(y, classes).double() * held.unsqueeze(1)
        scale = scale.unsqueeze(1)
        mean = scale * torch.zeros_like(reports).index_add_(0, row, (scale * reports)[column])
        steps = (reports, about), (spread * mean + (1 - spread) * reports, centres)
        public = dataclasses.replace(view.public, facts=(), structure=view.public.structure.replace(Reports, keep=1.0))
        messages = tuple(_sent(view, t, nodes.nonzero().squeeze(1), rows) for t, (rows, nodes) in enumerate(steps))
        planted = dataclasses.replace(view, messages=MemoryMessages(messages), public=public)
        return Planted(planted, y[asked], asked)


def _lone_neighbours(
    row: Tensor, column: Tensor, about: Tensor, mine: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return nodes [N] that rows are not about and that one row or more shows alone, with ``weights`` [E] enough, and
    those of the rows ``about`` [N] that show one such node at most."""
    strange = about[row] & ~about[column] & ~mine[column]
    count = torch.bincount(row[strange], minlength=len(about))
    shows = strange & (count[row] == 1)
    lone = torch.zeros(len(about), dtype=torch.bool)
    lone[column[shows & (weights > SURE)]] = True
    centres = about & (count <= 1)
    centres[row[shows & (weights <= SURE)]] = False
    return lone, centres


def _sent(view: View, step: int, nodes: Tensor, rows: Tensor) -> MessageBatch:
    """Return the server's message of the rows of ``nodes`` [n] after ``step``, to the first observing client."""
    receiver = view.observer.clients[0] if view.observer.clients else 0
    payload = HopSums(nodes, rows[nodes].float())
    ends = torch.tensor([0, len(nodes)])
    return MessageBatch(step, torch.tensor([SERVER]), torch.tensor([receiver]), payload, ends)
