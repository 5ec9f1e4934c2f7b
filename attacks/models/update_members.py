"""Membership in training from uploads: which nodes' loss gradients an upload is made of.

The observer knows rows, labels and edges, and so the gradient that every known node's loss would have under the model
that a client received. A client's uploads are a weighted sum of these, with a weight for its training nodes and none
for all others (:mod:`fglaudit.attacks.models.loss_gradients`). The weights are solved for, none negative, client by
client; a node's score is the largest of them. No shadow model is trained. Where single uploads are not seen (secure
aggregation), the change of the global model is taken apart in their place.

Where clients train on edges among their own nodes alone (FedGCN without hops), which edges these are is not known: the
upload is taken apart on all edges and on none, and the graph is kept that leaves less of it unexplained. Of ten clients
a node's own row says nearly all, since nine neighbours in ten are elsewhere.

Of steps of Adam the signs are read, with the sizes that entries typically have
(:mod:`fglaudit.attacks.models.adam_gradients`).

Rows that the observer does not know are drawn from the prior: what their gradients leave in the uploads is noise to it.
``fglaudit run update-members`` measures it on Cora.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.attacks.models.loss_edges import possible_edges
from fglaudit.attacks.models.loss_gradients import unreadable_updates
from fglaudit.attacks.models.planting import planted_twins
from fglaudit.attacks.models.shadow_federations import KnownGraph, few_candidates
from fglaudit.attacks.models.upload_attack import OPTIMIZERS, Explained, UploadAttack, taught
from fglaudit.interfaces import Inference, Planted
from fglaudit.rng import split
from fglaudit.view import View


@dataclass(frozen=True)
class UpdateMembers(UploadAttack):
    """Infer membership in training from uploads, taken apart into loss gradients of known nodes."""

    name: ClassVar[str] = "update-members"
    quantity: ClassVar[str] = "training-membership"

    def unsupported(self, view: View) -> str | None:
        return unreadable_updates(view, OPTIMIZERS) or few_candidates(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        graph = KnownGraph.of(view, split(rng, "known graph"))
        x, y = graph.x.to(device), graph.y.to(device)
        choices = possible_edges(view, graph.edges)
        tried = [Explained.of(view, x, y, edges.to(device), self.rounds) for edges in choices]
        weights = min(tried, key=lambda each: each.missed).weights.cpu().double()
        # Clients with fewer training nodes give each a larger weight: all are brought to one size.
        weights = weights / weights.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)
        return Inference(type(self).quantity, graph.candidates, weights.amax(0)[graph.candidates])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes that were trained on, and twins of theirs with another label."""
        return planted_twins(view, rng, taught(view))
