"""Building blocks of self-tests: rows drawn from the prior, planted cross-client edges, and the messages about them.

The messages are the protocol's own: it is rehearsed, undefended, on the planted graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_clients
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph, canonical_edges
from fglaudit.partition.assign import lists_of
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

_BLIND_DENSITY = 0.02
_FEWEST_ENTRIES = 3


@dataclass(frozen=True)
class MemoryMessages:
    """Messages held in memory."""

    batches: tuple[MessageBatch, ...]

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order."""
        return (batch for batch in self.batches if isinstance(batch.payload, payload))


def planted_rows(view: View, nodes: Tensor, rng: torch.Generator) -> Tensor:
    """Draw rows for ``nodes`` from the prior [R, F]; discrete rows have at least three entries (or all F)."""
    prior = feature_prior(view, nodes)
    if view.public.features is FeatureKind.REAL:
        noise = torch.randn(prior.mean.shape, generator=rng, dtype=torch.double)
        return (prior.mean + prior.variance.sqrt() * noise).float()
    chance = prior.mean if prior.informed else torch.full_like(prior.mean, _BLIND_DENSITY)
    score = torch.rand(chance.shape, generator=rng, dtype=torch.double)
    rows = (score < chance).float()
    extra = score.topk(min(_FEWEST_ENTRIES, score.shape[1]), dim=1, largest=False).indices
    rows.scatter_(1, extra, 1.0)
    return rows / rows.sum(1, keepdim=True) if view.public.features is FeatureKind.SCALED_BINARY else rows


def different_first(kinds: Tensor) -> Tensor:
    """Return an order [A] of nodes of ``kinds`` [A, F] that begins with one of each kind, goes on with the second ones,
    and so on; it keeps the order within a kind."""
    which = torch.unique(kinds, dim=0, return_inverse=True)[1]
    order: Tensor = (which.unsqueeze(1) == which).tril(-1).sum(1).argsort(stable=True)
    return order


def dealt(view: View, others: Tensor) -> Tensor:
    """Return the client of every node [N]: of the observer's own nodes as they are, of ``others`` in turn one that does
    not belong to the observer, and -1 for the rest."""
    strangers = [k for k in range(view.public.num_clients) if k not in view.observer.clients]
    owner = own_clients(view)
    owner[others] = torch.tensor(strangers, dtype=torch.long)[torch.arange(len(others)) % max(1, len(strangers))]
    return owner


def with_own_rows(view: View, x: Tensor) -> Tensor:
    """Return ``x`` [N, F] with the observer's own rows in their places."""
    x = x.clone()
    for client in view.own:
        x[client.nodes] = client.x.to(x)
    return x


def planted_federation(view: View, x: Tensor, edges: Tensor, owner: Tensor, rng: torch.Generator) -> FederatedGraph:
    """Return the planted graph split over the cell's clients: what a rehearsal trains on.

    The first node of every client is for training, all are for testing. Labels of others are drawn at random.

    Args:
        x: rows of all nodes [N, F], the observer's own among them.
        edges: [2, E].
        owner: client of every node [N], -1 for nodes that take no part.
    """
    public, n = view.public, view.public.num_nodes
    y = torch.randint(public.num_classes, (n,), generator=rng)
    for client in view.own:
        y[client.nodes] = client.y.clamp(min=0)
    clients = tuple(lists_of(owner, public.num_clients))
    first = tuple(torch.arange(len(nodes)) == 0 for nodes in clients)
    none = tuple(torch.zeros_like(mask) for mask in first)
    return FederatedGraph(
        x=x,
        y=y,
        edge_index=canonical_edges(edges, n),
        clients=clients,
        train=first,
        val=none,
        test=tuple(torch.ones_like(mask) for mask in first),
        name="planted",
        num_classes=public.num_classes,
        features=public.features,
    )


def rehearsed(
    view: View,
    graph: FederatedGraph,
    payloads: Iterable[type[Payload]],
    rng: torch.Generator,
    *,
    rounds: int = 0,
    **settings: object,
) -> View:
    """Return ``view`` with the messages of types ``payloads`` that the protocol sends on ``graph``.

    Args:
        rounds: the last round of messages; 0: what is sent before training.
        settings: hyperparameters of the rehearsal, public as the cell's; those that the protocol lacks are left out.

    Raises:
        FglauditError: the view comes without the protocol.
    """
    rehearse = view.public.rehearse
    if rehearse is None:
        raise FglauditError(
            "a self-test plants its leak through the messages of the view's protocol; this view has public.rehearse"
            " None; add what fglaudit.wire.rehearsal.rehearsal(protocol) returns to its public facts"
        )
    cpu = torch.device("cpu")
    seed = split(rng, "rehearsal")
    messages, structure = rehearse(
        graph, view.observer, payloads, rounds=rounds, settings=settings, rng=seed, device=cpu
    )
    public = dataclasses.replace(view.public, structure=structure)
    return dataclasses.replace(view, messages=messages, public=public)


def without_known_rows(auxiliary: Auxiliary) -> Auxiliary:
    """Return ``auxiliary`` with no row left."""
    return dataclasses.replace(auxiliary, nodes=auxiliary.nodes[:0], x=auxiliary.x[:0], y=auxiliary.y[:0])


def planted_graph(
    view: View, pairs: Tensor, *, inner_edges: bool, outer_edges: Tensor | None = None
) -> tuple[View, Tensor]:
    """Return ``view`` without known rows and defense, with planted cross-client edges, and all edges [2, E].

    Args:
        pairs: (own node, remote node) of the cross-client edges [2, P].
        inner_edges: whether the edges between the observer's own nodes stay.
        outer_edges: planted edges between nodes of others [2, M], each once.
    """
    n, own = view.public.num_nodes, view.own
    if not inner_edges:
        own = tuple(dataclasses.replace(client, edge_index=client.edge_index[:, :0]) for client in own)
    cross = pairs if outer_edges is None else torch.cat([pairs, outer_edges], dim=1)
    edges = torch.cat([cross, cross.flip(0), *(client.nodes[client.edge_index] for client in own)], dim=1)
    degrees = torch.bincount(edges[0], minlength=n)
    clients = tuple(_planted_client(client, pairs, degrees) for client in own)
    if view.observer.degrees is False:
        clients = tuple(dataclasses.replace(client, remote_degrees=None) for client in clients)
    planted = dataclasses.replace(
        view,
        own=clients,
        auxiliary=without_known_rows(view.auxiliary),
        public=dataclasses.replace(view.public, facts=()),
        topology=None if view.topology is None else edges[:, (edges[0] * n + edges[1]).argsort()],
        degrees=None if view.degrees is None else degrees,
    )
    return planted, edges


def _planted_client(client: ClientGraph, pairs: Tensor, degrees: Tensor) -> ClientGraph:
    """Return ``client`` with the planted cross-client edges in place of its own."""
    position = torch.searchsorted(client.nodes, pairs[0]).clamp(max=len(client.nodes) - 1)
    here = client.nodes[position] == pairs[0]
    remote, remote_position = torch.unique(pairs[1, here], return_inverse=True)
    return dataclasses.replace(
        client,
        degrees=degrees[client.nodes],
        remote_nodes=remote,
        remote_degrees=degrees[remote],
        boundary=torch.stack([position[here], remote_position]),
    )
