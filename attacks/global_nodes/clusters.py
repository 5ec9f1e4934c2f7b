"""Which of FedGT's clusters got nodes in a round, and the weight of these nodes in the centroid (Algorithm 1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.adversary.modelled import about, decides, fewer_edges, message_clip
from fglaudit.adversary.uploads.held import Codebooks, upload_noise_std
from fglaudit.facts import (
    ROWS,
    Additive,
    Clipped,
    Correlated,
    Fact,
    Field,
    Memoised,
    Rounded,
    Scaled,
    Sealed,
)
from fglaudit.payloads import GlobalNodes, ModelUpdate
from fglaudit.structure import Centroids
from fglaudit.view import View

_STAYED = 1e-5
"""A global node that moved by less than this, relative to its length, got no nodes."""
_SURELY = 5.0
"""Standard deviations of the squared length of an error."""


_RETURNED = (Additive, Clipped, Correlated, Memoised, Rounded, Scaled, Sealed)


def received_models(fact: Fact) -> bool:
    """Whether ``fact`` is about models, of which no more is read than what the server returned to each client: that is
    what the client went on from, whatever was done to it or to the models that it was made of."""
    return about(fact, ModelUpdate) and type(fact) in _RETURNED


def upload_error(view: View, books: Codebooks) -> float:
    """Return the standard deviation of noise and rounding on an entry of an uploaded global node."""
    return upload_noise_std(view, GlobalNodes, books.uploaded.flatten(0, 1))


def uploaded_with_error(fact: Fact) -> bool:
    """Whether :func:`upload_error` allows for ``fact``: noise or rounding of what clients upload."""
    sent = isinstance(fact.target, Field) and fact.target.direction == "up" and about(fact, GlobalNodes)
    noise = isinstance(fact, Additive) and fact.distribution in ("gaussian", "laplace", "uniform")
    return sent and (noise or isinstance(fact, Rounded))


def allowed_in_clusters(fact: Fact) -> bool:
    """Whether attacks that read clusters, and known rows through the models behind them, allow for ``fact``: noise,
    rounding and clips of what is uploaded, and what is done to rows before, where rows are decided. A node's input is
    its own row, whichever neighbours it keeps, beside an encoding of its place that counts as noise of known size."""
    if fact.target == ROWS:
        return decides(fact)
    kinds = (fewer_edges, received_models, uploaded_with_error)
    return message_clip(fact, GlobalNodes) or any(kind(fact) for kind in kinds)


def moved_clusters(view: View, books: Codebooks, std: float) -> Tensor:
    """Return which global nodes got nodes [T, K, g].

    With an error of ``std`` those that surely moved in some round, later ones being shorter, at clients that have any;
    all of them where a clip moves every one.
    """
    change = (books.uploaded - books.received).norm(dim=3)
    if std == 0:
        moved: Tensor = change > _STAYED * books.received.norm(dim=3)
        return moved
    dimensions = books.uploaded.shape[3]
    sure: Tensor = change.square() > std**2 * (dimensions + _SURELY * math.sqrt(2 * dimensions))
    clipped = KnownClip.of(view, GlobalNodes, direction="up") is not None
    ever = sure.any(0, keepdim=True)
    return torch.ones_like(sure) if clipped else ever.logical_or(~ever.any(2, keepdim=True)).expand_as(sure)


def moved_behind_clip(books: Codebooks, bound: float, std: float) -> Tensor:
    """Return :func:`moved_clusters` [T, K, g] where every coordinate was clipped to ``bound``.

    A global node without nodes is sent as its clipped self. Where a client's steps are all hidden by clip and noise,
    each of its global nodes may have got nodes.
    """
    received = books.received.clamp(-bound, bound)
    change = (books.uploaded - received).norm(dim=3)
    sure = change > _STAYED * received.norm(dim=3) + std * (received.shape[3] ** 0.5 + _SURELY)
    ever = sure.any(0, keepdim=True)
    moved: Tensor = ever.logical_or(~ever.any(2, keepdim=True)).expand_as(sure)
    return moved


def cluster_weight(view: View, round: int, live: float, clients: int) -> float:
    """Return w, the weight of a round's nodes in a global node.

    Each of ``live`` clusters is assumed to get an equal share of an average client's nodes in every round.
    """
    momentum = view.public.structure.of(Centroids).momentum
    size = view.public.num_nodes / clients / live
    count, weight = 1.0, 0.0
    for _ in range(round):
        weight = (1 - momentum) * size / (momentum * count + (1 - momentum) * size)
        count = momentum * count + (1 - momentum) * size
    return weight
