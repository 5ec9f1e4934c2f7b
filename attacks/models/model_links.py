"""Edges among known nodes, from the last model alone.

The observer knows rows, not edges. The first layer of the clients' GCN was trained on sums over neighbourhoods: it
weighs words by what they say of a node's surroundings. Pairs are ranked by the cosines of their rows and of the rows'
images under that layer, added in units of their spreads (:mod:`fglaudit.attacks.models.link_scores`). The control is
the rows' cosine alone. Where neighbours are unlike each other (heterophily) the model misleads, and the figure says so.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.modelled import decides
from fglaudit.attacks.models.link_scores import directions, likely_pairs
from fglaudit.attacks.models.planting import learned_view, without_edges
from fglaudit.attacks.models.shadow_federations import KnownGraph, received_model
from fglaudit.errors import FglauditError
from fglaudit.facts import ROWS, Fact, is_built_in
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Convolutions, Models
from fglaudit.view import Auxiliary, View

_GROUP = 4
_MOST_GROUPS = 3


@dataclass(frozen=True)
class ModelLinks(Attack):
    """Rank pairs of known nodes by how alike their rows and the model's images of them are.

    Attributes:
        pairs: most pairs that are listed, those of highest score.
    """

    name: ClassVar[str] = "model-links"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "edges"
    last_rounds: ClassVar[int | None] = 1
    on_request: ClassVar[bool] = True

    pairs: int = 4_000_000

    def __post_init__(self) -> None:
        if self.pairs < 1:
            raise FglauditError(f"pairs counts the pairs that are listed; got {self.pairs}; use at least 1")

    def models(self, fact: Fact) -> bool:
        """Whatever is built in and leaves rows alone: the model is read as it came. Rows that were made random are
        known as they were."""
        return is_built_in(fact) and (fact.target != ROWS or decides(fact))

    def unsupported(self, view: View) -> str | None:
        if (missing := view.public.structure.missing(Models, Convolutions)) is not None:
            return missing
        if view.public.structure.of(Models).upload != "weights":
            return "the model is read as the server sends it; this protocol's server sends changes"
        if received_model(view) is None:
            return "the observer sees no model that the server sends"
        if len(_strangers(view).nodes) < 2:
            return "links are looked for among rows the observer knows; give it some, e.g. auxiliary: 0.5"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        known, model = _strangers(view), received_model(view)
        assert model is not None  # see unsupported
        first = next(iter(unflatten(model.unsqueeze(0).float(), view.public.layout).values()))[0]
        rows = known.x.float()
        parts = [directions(rows).to(device), directions(rows @ first).to(device)]
        pairs, scores = likely_pairs(parts, self.pairs)
        return Inference(type(self).quantity, known.nodes[pairs.cpu()], scores.cpu())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant a clique of nodes per class, with words that no other clique has; the protocol learns their classes."""
        rng = split(rng, "plant")
        public = view.public
        bare, others = without_edges(view)
        groups = min(_MOST_GROUPS, public.num_classes, public.num_features, max(1, len(others) // _GROUP))
        chosen = others[torch.randperm(len(others), generator=rng)][: groups * _GROUP]
        group = torch.arange(len(chosen)) % groups
        words = torch.arange(public.num_features) % groups
        x = torch.zeros(public.num_nodes, public.num_features)
        drawn = torch.rand(len(chosen), public.num_features, generator=rng) < 0.7
        rows = ((words == group[:, None]) & drawn).float()
        rows[torch.arange(len(chosen)), group] = 1  # nobody is without a word
        x[chosen] = rows / rows.sum(1, keepdim=True) if public.features is FeatureKind.SCALED_BINARY else rows
        first, second = torch.triu_indices(len(chosen), len(chosen), offset=1)
        same = group[first] == group[second]
        links = chosen[torch.stack([first[same], second[same]])]
        y = torch.full((public.num_nodes,), -1)
        y[chosen] = group
        bare = dataclasses.replace(bare, auxiliary=Auxiliary(chosen, x[chosen], y[chosen]), topology=links)
        graph = KnownGraph.of(bare, split(rng, "known graph"))
        graph = dataclasses.replace(graph, x=x, y=y, edges=torch.cat([links, links.flip(0)], 1))
        members = torch.zeros(public.num_nodes, dtype=torch.bool)
        members[chosen] = True
        federation = graph.federation(bare, members, split(rng, "owners"))
        planted = learned_view(dataclasses.replace(bare, topology=view.topology), federation, rng)
        return Planted(planted, torch.ones(links.shape[1]), links.T)


def _strangers(view: View) -> Auxiliary:
    """Return the known rows of nodes that are not the observer's own."""
    known = view.auxiliary
    keep = ~own_nodes(view)[known.nodes]
    return Auxiliary(known.nodes[keep], known.x[keep], known.y[keep])
