"""Equations on feature rows from received hidden embeddings, linear in the rows but for the attention.

FedGAT's clients exchange first-layer embeddings ``ELU(sum_k alpha_jk W' h_k)`` under every global model, which the
receiver has too. ELU is inverted entry by entry. The result is the mean of the rows of j's closed neighbourhood under
known weights W, with attention coefficients that follow from the rows themselves: ``y_j sum_k e_jk = W' sum_k e_jk
h_k`` with ``e_jk = f(b_1 . h_j + b_2 . h_k)``, f the public series. Every round gives another 64 numbers (8 heads of 8
units) about the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.adversary.public_rules import noise_std
from fglaudit.adversary.server_models import server_models
from fglaudit.attacks.neighborhoods.recovered_rows import unknown_scale
from fglaudit.graph import first_of_each
from fglaudit.nn.chebyshev import Series, attention_series
from fglaudit.payloads import SERVER, Embeddings, ModelUpdate
from fglaudit.structure import Attention
from fglaudit.view import View

_WEIGHT, _OWN, _NEIGHBOR = "layers.0.weight", "layers.0.attention_own", "layers.0.attention_neighbor"


@dataclass(frozen=True)
class EmbeddingEquations:
    """Equations about the closed neighbourhoods of J nodes over R rounds, with D units in H heads each.

    Attributes:
        nodes: [J], ascending.
        means: embeddings before the activation [J, R D], float64.
        weight: [F, R D].
        own, neighbor: ``b_1`` and ``b_2`` of every round and head [R H, F].
        series: f.
        std: standard deviation of the noise on ``means``.
    """

    nodes: Tensor
    means: Tensor
    weight: Tensor
    own: Tensor
    neighbor: Tensor
    series: Series
    std: float

    def per_unit(self, heads: Tensor) -> Tensor:
        """Repeat values per head [..., R H] for each of its units [..., R D]."""
        return heads.repeat_interleave(self.weight.shape[1] // len(self.own), -1)

    def to(self, device: torch.device) -> EmbeddingEquations:
        """Return the equations on ``device``."""
        fields = ("nodes", "means", "weight", "own", "neighbor")
        return replace(self, **{name: getattr(self, name).to(device) for name in fields})

    def among(self, keep: Tensor) -> EmbeddingEquations:
        """Return the equations of the nodes where ``keep`` [J] is true."""
        return replace(self, nodes=self.nodes[keep], means=self.means[keep])


def missing_embeddings(view: View) -> str | None:
    """Return why there are no equations in ``view``, or None."""
    layout = view.public.layout
    if any(name not in layout for name in (_WEIGHT, _OWN, _NEIGHBOR)):
        return "the protocol's first layer is not graph attention with a public layout"
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    if not any(bool((~torch.isin(b.senders, mine)).any()) for b in view.messages.of(Embeddings)):
        return "the observer received no Embeddings from another party"
    if next(iter(view.messages.of(ModelUpdate)), None) is None:
        return "the observer saw no model, so the weights behind the embeddings are unknown"
    return unknown_scale(view)


def embedding_equations(view: View, rounds: int, before: int | None = None) -> EmbeddingEquations | None:
    """Return the equations of at most ``rounds`` rounds, evenly spaced among those with a model and embeddings.

    Only rounds below ``before`` are read. None where :func:`missing_embeddings` names a reason. Nodes missing from one
    of these rounds are left out.
    """
    if missing_embeddings(view) is not None:
        return None
    first: dict[int, None] = {}
    for batch in view.messages.of(Embeddings):
        first.setdefault(batch.round)
    with_model = {b.round for b in view.messages.of(ModelUpdate) if bool((b.senders == SERVER).any())}
    both = [r for r in first if r in with_model and (before is None or r < before)]
    if not both:
        return None
    step = max(1.0, (len(both) - 1) / max(1, rounds - 1))
    chosen = sorted({both[round(i * step)] for i in range(rounds) if round(i * step) < len(both)})
    values = _embeddings(view, chosen)
    vectors = _models(view, chosen)
    nodes = values[chosen[0]][0]
    for ids, _ in values.values():
        nodes = nodes[torch.isin(nodes, ids)]
    means = torch.cat([rows[torch.searchsorted(ids, nodes)] for ids, rows in (values[r] for r in chosen)], 1)
    weight, own, neighbor = zip(*(_first_layer(view, vectors[r]) for r in chosen), strict=True)
    stated = view.public.structure.of(Attention)
    series = attention_series(stated.degree, stated.domain, stated.smooth_over)
    return EmbeddingEquations(
        nodes=nodes,
        means=torch.where(means > 0, means, means.clamp(min=1e-7 - 1).log1p()),
        weight=torch.cat(weight, 1),
        own=torch.cat(own),
        neighbor=torch.cat(neighbor),
        series=series,
        std=noise_std(view, Embeddings),
    )


def _embeddings(view: View, rounds: list[int]) -> dict[int, tuple[Tensor, Tensor]]:
    """Return by round the nodes of other parties, ascending, and their first hidden layer."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for batch, payload in view.sent(Embeddings):
        if batch.round in found or batch.round not in rounds:
            continue  # a round's first batch is the first layer's
        foreign = ~torch.isin(batch.senders, mine)[batch.entry_messages()]
        ids, _, first = first_of_each(payload.nodes[foreign])
        found[batch.round] = ids, payload.values[foreign][first].double()
    return found


def _models(view: View, rounds: list[int]) -> dict[int, Tensor]:
    """Return by round the global model as the observer received it."""
    return {round: model.double() for round, model in server_models(view) if round in rounds}


def _first_layer(view: View, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W [F, D], ``b_1`` and ``b_2`` [H, F] of a model [parameters]."""
    layout = view.public.layout
    lengths = [math.prod(shape) for shape in layout.values()]
    parts = dict(zip(layout, torch.split(vector, lengths), strict=True))
    weight, own, neighbor = (parts[name].view(layout[name]) for name in (_WEIGHT, _OWN, _NEIGHBOR))
    per_head = weight.view(len(weight), *own.shape)
    return weight, torch.einsum("fho,ho->hf", per_head, own), torch.einsum("fho,ho->hf", per_head, neighbor)
