"""Shadow models as one batch: the model axis is a tensor dimension, so that dozens take seconds.

Every shadow model is one GCN that takes the steps which the clients of a federation take together: rounds times local
steps of SGD on the mean over clients of their mean losses. For a GCN that sees whole neighbourhoods and one local step
this is federated averaging itself, for several it is close to it. Where clients see edges among their own nodes alone,
every model has the edges within its own drawn clients. Adam's first steps follow the signs of every client's
own gradient; their mean is no step of anybody's Adam, so it is refused. No message is sent and no defense takes part:
under one that changes the training, :mod:`fglaudit.attacks.models.shadow_federations` has the protocol train.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.nn.gcn_ensemble import EnsembleSettings, OwnGraphs, SharedGraph, train_ensemble
from fglaudit.payloads import ModelUpdate
from fglaudit.rng import split
from fglaudit.shapes import EdgeIndex
from fglaudit.structure import Training
from fglaudit.view import View

_ENTRIES = 2**24
"""Most hidden units of all nodes and models that train as one batch."""


def unbatched(view: View) -> str | None:
    """Return why the stated training is not retraced as one batch, or None."""
    if (missing := view.public.structure.missing(Training)) is not None:
        return missing
    stated = view.public.structure.of(Training)
    odd = [name for name in ("momentum", "feature_dropout", "proximal") if getattr(stated, name)]
    if stated.optimizer != "sgd" or stated.local_steps < 1:
        odd = ["optimizer" if stated.optimizer != "sgd" else "local_steps", *odd]
    if odd:
        return f"shadow models as one batch do not retrace {odd[0]}: {getattr(stated, odd[0])}; use batched: false"
    return None


def batched_shadows(
    view: View,
    x: Tensor,
    y: Tensor,
    edges: EdgeIndex,
    weights: Tensor,
    rng: torch.Generator,
    device: torch.device,
    owners: Tensor | None = None,
) -> Tensor:
    """Return M models [M, D], trained on rows ``x`` [N, F], labels ``y`` [N] and ``edges`` [2, E].

    Args:
        weights: of every node's loss in every model [M, N], see :func:`client_weights`.
        owners: of every node in every model [M, N], where clients see edges among their own nodes alone.
    """
    settings, layout = retraced(view), view.public.layout
    size = max(1, _ENTRIES // max(1, len(x) * settings.hidden))
    drawn = split(rng, "ensemble")
    rows, pairs = x.to(device), edges.to(device)
    graphs: Iterable[SharedGraph | OwnGraphs]
    if owners is None:
        graphs = itertools.repeat(SharedGraph.of(rows, pairs))
    else:
        graphs = (OwnGraphs.of(rows, pairs, _within(part, edges).to(device)) for part in torch.split(owners, size))
    parts = [
        train_ensemble(graph, layout, y.clamp(min=0).to(device), part.to(device), settings, drawn).cpu()
        for part, graph in zip(torch.split(weights, size), graphs, strict=False)
    ]
    return torch.cat(parts)


def _within(owners: Tensor, edges: EdgeIndex) -> Tensor:
    """Return which of ``edges`` [2, E] have both ends at one of ``owners`` [m, N], in each of m models [m, E]."""
    return owners[:, edges[0]] == owners[:, edges[1]]


def client_weights(members: Tensor, owners: Tensor, clients: int) -> Tensor:
    """Return the weights [M, N] with which losses of training nodes are in the mean over clients of their mean losses.

    Args:
        members: who trains in each model [M, N].
        owners: of every node in each model [M, N]; those of ``members`` are not negative.
        clients: how many there are.
    """
    place = owners.clamp(min=0)
    counts = torch.zeros(len(members), clients, dtype=torch.double).scatter_add_(1, place, members.double())
    weight = members.double() / counts.gather(1, place).clamp(min=1)
    return (weight / (counts > 0).sum(1, keepdim=True).clamp(min=1)).float()


def retraced(view: View) -> EnsembleSettings:
    """Return the steps of one model that stand for those of the federation in ``view``."""
    stated = view.public.structure.of(Training)
    rounds = max((batch.round for batch in view.messages.of(ModelUpdate)), default=0)
    if rounds < 1:
        raise FglauditError("the number of rounds is read off the models; none was seen; choose another observer")
    shapes = list(view.public.layout.values())
    return EnsembleSettings(
        hidden=max(shape[-1] for shape in shapes),
        layers=len(shapes),
        steps=rounds * stated.local_steps,
        learning_rate=stated.learning_rate,
        weight_decay=stated.weight_decay,
        dropout=stated.dropout,
        optimizer=stated.optimizer,
    )
