"""Feature rows from sums of embeddings whose terms the observer knows.

With the edges known, ``sums = A h + noise`` is linear in the embeddings of the neighbours: the server has one equation
per client and node, a client one per own node. Embeddings are taken for Gaussian, with mean and covariance of those of
the observer's known rows (it has the model that made them), and found by linear regression. A row is more than its few
embedded numbers: it is what ridge regression on known rows expects of the embedding, and of binary rows the one with
the best expected F1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, own_nodes
from fglaudit.adversary.planting import MemoryMessages, planted_rows
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import kept_edges
from fglaudit.attacks.codes.seen_embeddings import (
    embedded,
    encoder,
    models_embeddings,
    noise_level,
    not_stated,
    receivers,
    sees_parts,
    steps,
)
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind, positions
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import SERVER, EmbeddingSums, MessageBatch, ModelUpdate, Payload
from fglaudit.structure import EmbeddedRows
from fglaudit.view import View

_FEWEST = 3
"""Known rows below which no regression is fitted."""
_LARGEST = 6000
"""Unknown embeddings that are solved for together."""
_RIDGE = 0.03


@dataclass(frozen=True)
class EmbeddingSumRows(Attack):
    """Rebuild rows from sums of embeddings."""

    name: ClassVar[str] = "embedding-sum-rows"
    consumes: ClassVar[tuple[type[Payload], ...]] = (EmbeddingSums, ModelUpdate)
    metric: ClassVar[str] = "f1"

    def models(self, fact: Fact) -> bool:
        """As all attacks on these sums."""
        return models_embeddings(fact)

    def unsupported(self, view: View) -> str | None:
        if why := not_stated(view):
            return why
        if view.public.structure.of(EmbeddedRows).code_seed >= 0:
            return "these sums are of public codes, and hold no feature"
        if encoder(view) is None:
            return "the observer sees no model that makes embeddings"
        if len(view.known_rows().nodes) < _FEWEST:
            return "embeddings are decoded by known rows; give the observer some, e.g. auxiliary: 0.1"
        if not len(_equations(view)[0]):
            return "which nodes' embeddings are in a sum is not known; give the observer the topology"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        weight, known = encoder(view), view.known_rows()
        assert weight is not None
        held = embedded(view, known.x, weight)
        center = held.mean(0)
        spread = (held - center).T @ (held - center) / len(held) + 1e-6 * torch.eye(held.shape[1], dtype=held.dtype)
        row, source, sums = _equations(view)
        nodes, place = torch.unique(source, return_inverse=True)
        given = positions(known.nodes, view.public.num_nodes)
        seen = given[nodes] >= 0
        sums = sums.index_add(0, row[seen[place]], -held[given[source[seen[place]]]])
        open_ = ~seen
        unknown = nodes[open_][:_LARGEST]
        column = positions(open_.nonzero().squeeze(1)[:_LARGEST], len(nodes))
        use = column[place] >= 0
        given_to = [each.to(device) for each in (row[use], column[place[use]], sums, center, spread)]
        found = _solved(*given_to, count=len(unknown), std=noise_level(view, _up(view))).cpu()
        return Reconstruction(_decoded(view, found, held), unknown, torch.zeros(len(unknown)))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant rows of a few kinds, and sums of one embedding each, over a matching that the observer knows."""
        n, kinds = view.public.num_nodes, max(2, min(view.public.num_classes, 8))
        shape = next(iter(view.public.layout.values()))
        size = sum(int(torch.tensor(part).prod()) for part in view.public.layout.values())
        model = torch.randn(size, generator=rng)
        weight = model[: shape[0] * shape[1]].view(shape)[: view.public.num_features]
        prototypes = planted_rows(view, torch.full((kinds,), -1), rng)
        x = prototypes[torch.arange(n) % kinds]
        mine = own_nodes(view)
        others = (~mine).nonzero().squeeze(1)
        others = others[torch.randperm(len(others), generator=rng)]
        if sees_parts(view):
            count = len(others) // 2
            node, source = others[:count], others[count : 2 * count]
        else:
            own = mine.nonzero().squeeze(1)
            count = min(len(own), len(others))
            node, source = own[:count], others[:count]
        hidden = x @ weight
        hidden = hidden / hidden.norm(dim=1, keepdim=True).clamp(min=1e-12)
        aux = dataclasses.replace(view.auxiliary, x=x[view.auxiliary.nodes])
        known = torch.zeros(n, dtype=torch.bool)
        known[view.auxiliary.nodes] = True
        payload, splits = EmbeddingSums(node, hidden[source]), torch.tensor([0, count])
        other = next((k for k in range(view.public.num_clients) if k not in view.observer.clients), 0)
        sender, receiver = (other, SERVER) if sees_parts(view) else (SERVER, view.observer.clients[0])
        sent = MessageBatch(1, torch.tensor([sender]), torch.tensor([receiver]), payload, splits)
        told = other if sees_parts(view) else receiver
        models = MessageBatch(0, torch.tensor([SERVER]), torch.tensor([told]), ModelUpdate(model.unsqueeze(0)))
        edges = torch.stack([torch.cat([node, source]), torch.cat([source, node])])
        own_graphs = tuple(
            dataclasses.replace(c, x=x[c.nodes], edge_index=c.edge_index[:, :0], boundary=c.boundary[:, :0])
            for c in view.own
        )
        planted = dataclasses.replace(
            view,
            messages=MemoryMessages((models, sent)),
            own=own_graphs,
            own_inputs=(),
            auxiliary=aux,
            topology=edges,
            degrees=None,
            public=dataclasses.replace(view.public, facts=()),
        )
        targets = source[~known[source]]
        return Planted(planted, x[targets], targets)


def _up(view: View) -> bool:
    """Whether what clients send is read, rather than totals."""
    return sees_parts(view)


def _equations(view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Return, of the first step, the terms of the sums that the observer sees - their row and node [E] - and the sums
    [R, D]; no terms where it knows none."""
    first = steps(view, _up(view))
    if not first:
        none = torch.empty(0, dtype=torch.long)
        return none, none, torch.empty(0, 0, dtype=torch.double)
    step, n = first[0], view.public.num_nodes
    node, source = kept_edges(view, known_edges(view), known_degrees(view))
    others = node != source
    node, source = node[others], source[others]
    owner = receivers(view)
    whose = owner[source] if _up(view) and bool((owner >= 0).any()) else torch.full_like(source, -1)
    if _up(view) and not bool((owner >= 0).any()):
        step = step._replace(sender=torch.full_like(step.sender, -1))
    codes, order = torch.sort((step.sender + 1) * n + step.node)
    wanted = (whose + 1) * n + node
    at = torch.searchsorted(codes, wanted).clamp(max=max(0, len(codes) - 1))
    there = codes[at] == wanted
    return order[at[there]], source[there], step.sums


def _solved(
    row: Tensor, column: Tensor, sums: Tensor, center: Tensor, spread: Tensor, *, count: int, std: float
) -> Tensor:
    """Return the embeddings [count, D] expected of ``sums`` [R, D], of which the terms are entries ``row``, ``column``
    of a matrix of ones."""
    if count == 0:
        return sums[:0]
    used, line = torch.unique(row, return_inverse=True)
    matrix = sums.new_zeros(len(used), count)
    matrix[line, column] = 1.0
    values, base = torch.linalg.eigh(spread)  # in its own directions every number is on its own
    target = (sums[used] - matrix.sum(1, keepdim=True) * center) @ base
    gram, right = matrix.T @ matrix, matrix.T @ target
    found = sums.new_empty(count, len(values))
    noise, eye = max(std, 1e-3) ** 2, torch.eye(count, dtype=sums.dtype, device=sums.device)
    for number, value in enumerate(values.clamp(min=1e-9).tolist()):
        found[:, number] = torch.linalg.solve(gram + noise / value * eye, right[:, number])
    result: Tensor = found @ base.T + center
    return result


def _decoded(view: View, found: Tensor, held: Tensor) -> Tensor:
    """Return the rows [R, F] that known rows with embeddings ``held`` [K, D] make expect of ``found`` [R, D]."""
    known = view.known_rows().x
    real = view.public.features is FeatureKind.REAL
    x = known.double() if real else (known != 0).double()
    center, mean = held.mean(0), x.mean(0)
    ridge = _RIDGE * len(held) / held.shape[1] * torch.eye(held.shape[1], dtype=held.dtype)
    scale = ((held - center).square().sum() / len(held)).clamp(min=1e-12)  # known rows may all be equal
    weight = torch.linalg.solve((held - center).T @ (held - center) + ridge * scale, (held - center).T @ (x - mean))
    rows: Tensor = mean + (found - center) @ weight
    if real:
        return rows.float()
    level = feature_prior(view, torch.tensor([0])).level
    return (best_f1_bits(rows.clamp(0, 1)) * level).float()
