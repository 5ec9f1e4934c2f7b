"""Shadow models: the attacked protocol, trained by the observer on graphs of its own.

The observer knows rows and labels of candidate nodes and all edges. It deals the nodes of others to the other clients,
draws who of the candidates trains, and calls the public training function, through a fresh bind of the public defense:
whatever the defense does to the attacked model, it does to the shadow models as well. Rows of nodes that it does not
know are drawn from the prior of those that it knows, their labels are propagated over the edges.

Every model, the attacked one too, is then evaluated by the observer on the same rows and edges
(:mod:`fglaudit.attacks.models.loss_edges`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges, own_nodes
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.adversary.planting import dealt, planted_rows
from fglaudit.adversary.server_models import server_models
from fglaudit.attacks.models.loss_edges import own_edges_alone, read_edges
from fglaudit.attacks.models.shadow_ensemble import batched_shadows, client_weights, unbatched
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, canonical_edges
from fglaudit.nn.gcn_ensemble import SharedGraph, ensemble_logits
from fglaudit.nn.weights import unflatten
from fglaudit.partition.assign import lists_of
from fglaudit.rng import split
from fglaudit.structure import Convolutions, Models
from fglaudit.view import View

FEWEST_CANDIDATES = 2


@dataclass(frozen=True)
class KnownGraph:
    """The graph as far as the observer knows it, the rest made up.

    Attributes:
        x: rows of all nodes [N, F].
        y: labels [N]; -1 where a node takes no part in a loss.
        edges: [2, E], canonical.
        owner: client of every node [N].
        candidates: nodes whose membership is asked [n].
        made_up: nodes whose rows and labels are made up [u].
        own_training: the observer's own training nodes [t].
        own_rest: its own labelled nodes that are none [r].
    """

    x: Tensor
    y: Tensor
    edges: Tensor
    owner: Tensor
    candidates: Tensor
    made_up: Tensor
    own_training: Tensor
    own_rest: Tensor

    @staticmethod
    def of(view: View, rng: torch.Generator) -> KnownGraph:
        """Return what ``view`` shows of the graph; rows of unknown nodes are drawn by ``rng``."""
        known, mine = view.known_rows(), own_nodes(view)
        there = torch.zeros(view.public.num_nodes, dtype=torch.bool)
        there[known.nodes] = True
        x = torch.zeros(view.public.num_nodes, view.public.num_features)
        y = torch.full((view.public.num_nodes,), -1)
        x[known.nodes], y[known.nodes] = known.x.float(), known.y
        made_up = (~there).nonzero().squeeze(1)
        if len(made_up):
            x[made_up] = planted_rows(view, made_up, split(rng, "rows"))
            y[made_up] = propagate_labels(view, made_up).argmax(1)
        training = [client.nodes[client.train & (client.y >= 0)] for client in view.own]
        rest = [client.nodes[~client.train & (client.y >= 0)] for client in view.own]
        none = torch.empty(0, dtype=torch.long)
        return KnownGraph(
            x=x,
            y=y,
            edges=canonical_edges(known_edges(view), view.public.num_nodes),
            owner=dealt(view, (~mine).nonzero().squeeze(1)),
            candidates=known.nodes[~mine[known.nodes] & (known.y >= 0)],
            made_up=made_up,
            own_training=torch.cat([none, *training]),
            own_rest=torch.cat([none, *rest]),
        )

    def owners(self, view: View, rng: torch.Generator) -> Tensor:
        """Return who holds whom [N]; of the nodes of others it is drawn."""
        owner = self.owner.clone()
        places = ((self.owner >= 0) & ~own_nodes(view)).nonzero().squeeze(1)
        owner[places] = owner[places[torch.randperm(len(places), generator=rng)]]
        return owner

    def federation(self, view: View, members: Tensor, rng: torch.Generator) -> FederatedGraph:
        """Return the federation in which the nodes ``members`` [N] train, held by drawn :meth:`owners`."""
        return self.held(view, self.owners(view, rng), members)

    def held(self, view: View, owner: Tensor, members: Tensor) -> FederatedGraph:
        """Return the federation in which the clients ``owner`` [N] hold the nodes, of which ``members`` [N] train."""
        clients = tuple(lists_of(owner, view.public.num_clients))
        none = tuple(torch.zeros(len(nodes), dtype=torch.bool) for nodes in clients)
        return FederatedGraph(
            x=self.x,
            y=self.y,
            edge_index=self.edges,
            clients=clients,
            train=tuple(members[nodes] for nodes in clients),
            val=none,
            test=tuple(torch.arange(len(nodes)) == 0 for nodes in clients),
            name="shadow",
            num_classes=view.public.num_classes,
            features=view.public.features,
        )


@dataclass(frozen=True)
class Shadows:
    """Outputs of the attacked model and of M shadow models on the known graph.

    Attributes:
        nodes: candidates [n].
        target: logits of the attacked model [N, C].
        logits: of the shadow models [M, N, C].
        members: which of them were trained on which candidate [M, n].
        graph: what they were evaluated on.
    """

    nodes: Tensor
    target: Tensor
    logits: Tensor
    members: Tensor
    graph: KnownGraph


def unknown_models(view: View) -> str | None:
    """Return why the models in ``view`` cannot be evaluated on candidates, or None."""
    structure = view.public.structure
    if (missing := structure.missing(Models, Convolutions)) is not None:
        return missing
    if structure.of(Models).upload != "weights":
        return "the model is read as the server sends it; this protocol's server sends changes"
    if view.topology is None:
        return "a node's prediction takes its neighbours; give the observer topology: true"
    if received_model(view) is None:
        return "the observer sees no model that the server sends"
    return few_candidates(view)


def few_candidates(view: View) -> str | None:
    """Return why there is nobody to ask about, or None."""
    strangers = view.auxiliary.nodes[~own_nodes(view)[view.auxiliary.nodes] & (view.auxiliary.y >= 0)]
    if len(strangers) < FEWEST_CANDIDATES:
        return "membership in training is asked of rows the observer knows; give it some, e.g. auxiliary: 0.5"
    return None


def few_others(view: View, fpr: float | None, assumed: float) -> str | None:
    """Return why a false-positive rate ``fpr`` cannot be read off the candidates, or None; None asks for no rate.

    Args:
        assumed: share of the nodes that train, see :func:`training_share`.
    """
    if fpr is None:
        return None
    known = view.auxiliary
    candidates = int((~own_nodes(view)[known.nodes] & (known.y >= 0)).sum().item())
    others = round((1 - training_share(view, assumed)) * candidates)
    if others >= round(1 / fpr):
        return None
    return (
        f"a false-positive rate of {fpr:g} needs at least {round(1 / fpr)} non-members; of the {candidates} nodes asked"
        f" about some {others} are; give the observer more auxiliary rows, or ask for a higher fpr"
    )


def untrainable(view: View, batched: bool = False) -> str | None:
    """Return why no shadow models can be trained, or None."""
    if batched:
        return unbatched(view)
    if view.public.fit is None:
        return (
            "shadow models need the public training function; this view has public.fit None; add what"
            " fglaudit.wire.rehearsal.rehearsal(protocol, defense) returns to its public facts"
        )
    return None


def received_model(view: View) -> Tensor | None:
    """Return the last model [D] that the server sent to anybody, as received; None where the observer saw none."""
    last = None
    for _, model in server_models(view):
        last = model
    return last


def training_share(view: View, assumed: float) -> float:
    """Return the share of labelled nodes that train: that of the observer's own nodes, else the ``assumed`` one."""
    labelled = sum(int((client.y >= 0).sum().item()) for client in view.own)
    training = sum(int((client.train & (client.y >= 0)).sum().item()) for client in view.own)
    return training / labelled if 0 < training < labelled else assumed


def check_rates(training_share: float | None, fpr: float | None) -> None:
    """Raise :class:`FglauditError` unless both, where they are given, are shares in (0, 1)."""
    if training_share is not None and not 0 < training_share < 1:
        raise FglauditError(f"training_share is a share of the nodes in (0, 1); got {training_share:g}; use e.g. 0.5")
    if fpr is not None and not 0 < fpr < 1:
        raise FglauditError(f"fpr is a false-positive rate in (0, 1); got {fpr:g}; use e.g. 0.01")


def models_with(share: float, shadows: int) -> int:
    """Return how many of ``shadows`` models train on a candidate: about ``share`` of them."""
    return min(max(round(share * shadows), 1), shadows - 1)


def needed_shadows(share: float, each: int) -> int:
    """Return how many shadow models it takes so that ``each`` of them train on a candidate and as many do not."""
    least = 2 * each
    while min(models_with(share, least), least - models_with(share, least)) < each:
        least += 1
    return least


def balanced_members(count: int, shadows: int, share: float, rng: torch.Generator) -> Tensor:
    """Return who trains [M, n]: every one of ``count`` candidates in exactly :func:`models_with` of the models, so that
    how often a node trains tells nothing. No model is without one, as far as that goes."""
    rank = torch.rand(shadows, count, generator=rng).argsort(0).argsort(0)
    trains = rank < models_with(share, shadows)
    for _ in range(int((~trains.any(1)).sum().item())):  # where candidates are few
        none, most = int(trains.sum(1).argmin().item()), int(trains.sum(1).argmax().item())
        if int(trains[most].sum().item()) < 2:
            break
        moved = trains[most].nonzero()[0]
        trains[none, moved], trains[most, moved] = True, False
    return trains


def train_shadows(
    view: View, shadows: int, assumed: float, rng: torch.Generator, device: torch.device, *, batched: bool = False
) -> Shadows:
    """Train ``shadows`` models and evaluate them beside the attacked one.

    Args:
        assumed: share of the nodes that train, where the observer has no nodes of its own.
        batched: as one batch, see :mod:`fglaudit.attacks.models.shadow_ensemble`; else the protocol trains each.
    """
    graph = KnownGraph.of(view, split(rng, "known graph"))
    share = training_share(view, assumed)
    candidates = balanced_members(len(graph.candidates), shadows, share, split(rng, "members"))
    members = torch.zeros(shadows, view.public.num_nodes, dtype=torch.bool)
    members[:, graph.candidates] = candidates
    members[:, graph.own_training] = True
    members[:, graph.made_up] = torch.rand(shadows, len(graph.made_up), generator=split(rng, "made up")) < share
    if batched:
        owners = torch.stack([graph.owners(view, split(rng, f"owners {model}")) for model in range(shadows)])
        weights = client_weights(members, owners, view.public.num_clients)
        held = owners if own_edges_alone(view) else None
        found = batched_shadows(view, graph.x, graph.y, graph.edges, weights, rng, device, held)
    else:
        streams = [split(rng, f"shadow {model}") for model in range(shadows)]
        found = torch.stack(
            [
                fitted(view, graph.federation(view, who, split(own, "owners")), own, device)
                for who, own in zip(members, streams, strict=True)
            ]
        )
    vectors = torch.cat([_received(view).unsqueeze(0), found])
    logits = evaluated(view, graph, vectors, device)
    return Shadows(graph.candidates, logits[0], logits[1:], candidates, graph)


def fitted(view: View, graph: FederatedGraph, rng: torch.Generator, device: torch.device) -> Tensor:
    """Return the model [D] that the protocol trains on ``graph``, through the defense where there is one."""
    fit = view.public.fit
    if fit is None:
        raise FglauditError(untrainable(view) or "")
    trained = fit(graph, rng, device, defended=view.public.release is not None)
    return torch.cat([trained.weights[name].flatten().float().cpu() for name in view.public.layout])


def evaluated(view: View, graph: KnownGraph, vectors: Tensor, device: torch.device) -> Tensor:
    """Return the logits [M, N, C] of models ``vectors`` [M, D] on the known graph, computed on ``device``."""
    shared = SharedGraph.of(graph.x.to(device), read_edges(view, graph.edges).to(device))
    weights = unflatten(vectors.to(device), view.public.layout)
    size = max(1, _ENTRIES // (view.public.num_nodes * max(math.prod(w.shape[2:]) for w in weights.values())))
    parts = [
        ensemble_logits(shared, {name: weight[low : low + size] for name, weight in weights.items()})
        for low in range(0, len(vectors), size)
    ]
    return torch.cat(parts).cpu()


def target_outputs(view: View, rng: torch.Generator, device: torch.device) -> tuple[KnownGraph, Tensor]:
    """Return the known graph and the attacked model's logits on it [N, C]."""
    graph = KnownGraph.of(view, split(rng, "known graph"))
    return graph, evaluated(view, graph, _received(view).unsqueeze(0), device)[0]


_ENTRIES = 2**26
"""Most numbers in one layer's outputs of all models together."""


def _received(view: View) -> Tensor:
    model = received_model(view)
    if model is None:
        raise FglauditError("the model is read from what the server sends; none was seen; choose another observer")
    return model.float()
