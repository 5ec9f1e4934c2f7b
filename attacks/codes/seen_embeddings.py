"""Sums of embeddings as an observer sees them, step by step, and the embeddings of rows that it knows."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import sees_deliveries
from fglaudit.adversary.modelled import about, fewer_edges
from fglaudit.adversary.public_rules import known_as_used, noise_std
from fglaudit.adversary.server_models import server_models
from fglaudit.facts import GRADIENTS, ROWS, Absent, Additive, Clipped, Fact, is_built_in
from fglaudit.payloads import SERVER, EmbeddingSums, ModelUpdate
from fglaudit.structure import EmbeddedRows
from fglaudit.view import View

_EXACT = 1e-4
"""Standard deviation of sums without noise: they are sent in single precision."""


class Step(NamedTuple):
    """One step: client m's sum of node i, or totals.

    Attributes:
        sender: m [R]; -1 of totals.
        node: i [R].
        sums: [R, D].
    """

    sender: Tensor
    node: Tensor
    sums: Tensor


def models_embeddings(fact: Fact) -> bool:
    """Whether an attack on sums of embeddings allows for ``fact``: noise on them, clips of rows (an embedding does not
    know how long its row was), dropped edges and missing clients; what is done to gradients is in the model."""
    noise = type(fact) is Additive and fact.distribution == "gaussian" and about(fact, EmbeddingSums)
    clipped = type(fact) is Clipped and fact.target == ROWS and fact.per == "row" and fact.norm != "elementwise"
    gone = type(fact) is Absent and about(fact, EmbeddingSums)
    trained = is_built_in(fact) and (fact.target == GRADIENTS or about(fact, ModelUpdate))
    return noise or clipped or gone or trained or fewer_edges(fact)


def noise_level(view: View, up: bool) -> float:
    """Return the standard deviation of what is added to a sum as the observer sees it, sent ``up`` or returned.

    What the clients added is in the totals too, once for every client that may have sent something.
    """
    if up:
        return max(noise_std(view, EmbeddingSums, "sums", "up"), _EXACT)
    senders = view.public.num_clients if view.public.structure.of(EmbeddedRows).padded else 1
    at_clients = noise_std(view, EmbeddingSums, "sums", "up") * math.sqrt(senders)
    return max(at_clients, noise_std(view, EmbeddingSums, "sums", "down"), _EXACT)


def steps(view: View, up: bool) -> list[Step]:
    """Return the sums that clients send (``up``), or totals, of every step that the observer sees."""
    found: dict[int, list[Step]] = {}
    for batch, payload in view.sent(EmbeddingSums):
        sender = batch.senders[batch.entry_messages()]
        if bool((batch.senders != SERVER).all()) is up:
            found.setdefault(batch.round, []).append(Step(sender, payload.nodes, payload.sums.double()))
    return [Step(*(torch.cat(parts) for parts in zip(*found[round], strict=True))) for round in sorted(found)]


def receivers(view: View) -> Tensor:
    """Return the client of every node [N] that is sent a total, -1 for others and where totals are not seen."""
    owner = torch.full((view.public.num_nodes,), -1)
    for batch, payload in view.sent(EmbeddingSums):
        if bool((batch.senders == SERVER).all()):
            owner[payload.nodes] = batch.receivers[batch.entry_messages()]
    return owner


def encoder(view: View) -> Tensor | None:
    """Return the map [F, D] from rows to embeddings before they are brought to length 1; None if no model was seen."""
    first = next((batch.round for batch in view.messages.of(EmbeddingSums)), None)
    model: Tensor | None = None
    for round, sent in server_models(view):
        if first is None or round > first:
            break
        model = sent
    if model is None:
        return None
    shape = next(iter(view.public.layout.values()))
    return model[: shape[0] * shape[1]].view(shape)[: view.public.num_features].double()


def embedded(view: View, rows: Tensor, weight: Tensor) -> Tensor:
    """Return the embeddings [R, D] of ``rows`` [R, F]."""
    hidden = known_as_used(view, rows).double() @ weight
    length: Tensor = hidden.norm(dim=1, keepdim=True)
    return hidden / length.clamp(min=1e-12)


def not_stated(view: View) -> str | None:
    """Return why nothing can be said of these sums, or None."""
    if missing := view.public.structure.missing(EmbeddedRows):
        return missing
    if next(iter(view.messages.of(EmbeddingSums)), None) is None:
        return "the observer sees no sum of embeddings in the clear"
    return None


def sees_parts(view: View) -> bool:
    """Whether the observer sees what each client sends, not totals alone."""
    return sees_deliveries(view)
