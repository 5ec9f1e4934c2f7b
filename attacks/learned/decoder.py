"""Rows straight from messages: ridge regression of known rows on what was sent for their nodes.

For payloads that no specialised attack reads and for secrets of the run that no pair of messages shows: all that is
used is which message belongs to which node.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.adversary.priors.prior_only import best_entry_count
from fglaudit.attacks.learned.entries import float_fields
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.view import View

_ROUNDS = 3
_WIDTH = 2**14
_RIDGES = (1e-6, 1e-3, 1e-1, 1.0, 10.0)
_CONFIDENCE = 0.1


def is_decodable(view: View, payload: type[Payload]) -> bool:
    """Whether any message of ``payload`` is narrow enough; asked of messages as they were sent, as cleaning takes
    time."""
    return any(0 < _width(batch) <= _WIDTH for batch in view.messages.of(payload))


def _width(batch: MessageBatch) -> int:
    """Return how many real numbers a message about a node has."""
    shapes = batch.payload.shapes()
    return sum(math.prod(shapes[name][1:]) for name in float_fields(batch))


def messages_of_nodes(view: View, payload: type[Payload]) -> tuple[Tensor, Tensor] | None:
    """Return the nodes that have messages [n] and what was sent about each [n, D], upwards first: messages about named
    nodes are added up over their senders; otherwise a node is its sender, where every node is a client. None where
    messages belong to no node."""
    num, parts = view.public.num_nodes, []
    per_node = view.public.num_clients == num
    seen = torch.zeros(num, dtype=torch.bool)
    count = 0
    for batch in view.messages.of(payload):
        tensors = batch.payload.tensors()
        ids = batch.payload.ids()
        if ids is None and not (per_node and bool((batch.senders != SERVER).all())):
            continue
        owners = batch.senders if ids is None else ids
        width = _width(batch)
        if not 0 < width <= _WIDTH or len(owners) == 0:
            continue
        flat = [tensors[name].double().reshape(len(owners), -1) for name in float_fields(batch)]
        parts.append(torch.zeros(num, width, dtype=torch.double).index_add_(0, owners, torch.cat(flat, dim=1)))
        seen[owners] = True
        count += 1
        if count == _ROUNDS:
            break
    if not parts:
        return None
    nodes = seen.nonzero().squeeze(1)
    return nodes, torch.cat(parts, dim=1)[nodes]


def decoded_rows(view: View, payload: type[Payload], device: torch.device) -> Reconstruction | None:
    """Return rows of the nodes with messages that the observer does not know, None where nothing can be learned."""
    found, known = messages_of_nodes(view, payload), view.known_rows()
    if found is None or len(known.nodes) < 3:
        return None
    nodes, sent = found
    place = positions(nodes, view.public.num_nodes)
    use = place[known.nodes] >= 0
    if int(use.sum()) < 3:
        return None
    y = sent[place[known.nodes[use]]].to(device)
    z = known.x[use].double().to(device)
    target = nodes[~torch.isin(nodes, known.nodes)]
    if float(y.std(0).max().item()) == 0:  # nothing is told
        return None
    rows = _ridge(y, z, sent[place[target]].to(device)).float().cpu()
    if not bool(torch.isfinite(rows).all()):
        return None
    if view.public.features is not FeatureKind.REAL:
        rows = _likeliest(rows, z.float().cpu())
    confidence = torch.full((len(target),), _CONFIDENCE)
    return Reconstruction(rows, target, confidence, torch.zeros(len(target), dtype=torch.bool))


def _likeliest(scores: Tensor, known: Tensor) -> Tensor:
    """Return rows with as many entries as a guess has, the highest of ``scores`` [m, F]: what knows no more than the
    known rows' mean is then no better than the control."""
    frequency = known.mean(0).expand(known.shape)
    count = max(1, best_entry_count(frequency, known != 0))
    rows = torch.zeros_like(scores)
    return rows.scatter_(1, scores.topk(count, dim=1).indices, float(known[known != 0].mean().nan_to_num(1.0).item()))


def _ridge(y: Tensor, z: Tensor, new: Tensor) -> Tensor:
    """Return the rows of ``new`` [m, D] by ridge regression of ``z`` [n, F] on ``y`` [n, D], whose penalty has the
    least leave-one-out error (Allen's PRESS, Technometrics 16, 1974)."""
    scale = y.std(0).clamp(min=1e-12)
    center, shift = y.mean(0), z.mean(0)
    y, new = (y - center) / scale, (new - center) / scale
    values, vectors = torch.linalg.eigh(y @ y.T / y.shape[1])
    best, chosen = float("inf"), None
    for ridge in _RIDGES:
        inverse = vectors / (values.clamp(min=0) + ridge) @ vectors.T
        weights = inverse @ (z - shift)
        error = float((weights / inverse.diagonal()[:, None].clamp(min=1e-300)).square().mean().item())
        if error < best:
            best, chosen = error, weights
    assert chosen is not None
    rows: Tensor = (new @ y.T / y.shape[1]) @ chosen + shift
    return rows
