"""Shadow clients: what clients of known properties upload when they start from the models that the attacked ones got.

The observer deals the graph that it knows (:class:`.shadow_federations.KnownGraph`) to clients that differ in what is
asked: each class is shared out by a Dirichlet distribution of a drawn concentration (Hsu, Qi and Brown, 2019), and a
client prefers nodes of high or of low degree. How many nodes train is drawn too. The public training code then runs
on each federation, through a fresh bind of the public defense, and its clients receive the recorded models: their
changes are made at the very weights at which the attacked ones were (as in Melis et al., S&P 2019, section 4.3).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor

from fglaudit.adversary.group_means import less_group_means
from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads.held import follow_from_averages, sent_models
from fglaudit.adversary.uploads.means import ModelRound
from fglaudit.attacks.models.shadow_federations import KnownGraph
from fglaudit.attacks.models.update_statistics import UpdateReader
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.partition.assign import lists_of, numpy_seed
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.rng import split
from fglaudit.view import Messages, View

_CONCENTRATIONS = (0.3, 30.0)
_TILT = 1.0
"""Largest spread of clients' preference for nodes of high degree, per standard deviation of log degrees."""
_FEWEST_TRAINING = 0.02
"""Smallest share of the nodes that train; it is drawn between this and all, evenly in its logarithm."""
_TRAITS = 3
_BALANCE = 0.5
"""Spread of how often nodes of a class train, in its logarithm."""


@dataclass(frozen=True)
class Uploads:
    """What clients uploaded, averaged over rounds.

    Attributes:
        clients: [S].
        sketches, statistics: of :class:`.update_statistics.UpdateReader`, [S, d] each.
    """

    clients: Tensor
    sketches: Tensor
    statistics: Tensor


@dataclass(frozen=True)
class ShadowClients:
    """Shadow clients beside the attacked ones.

    Attributes:
        attacked, shadow: uploads of S attacked and of M shadow clients.
        federation: number of each shadow client's federation [M].
        shares: of the classes among their training nodes [M, C].
        degrees: mean degrees of their nodes [M].
    """

    attacked: Uploads
    shadow: Uploads
    federation: Tensor
    shares: Tensor
    degrees: Tensor


def unrehearsable(view: View) -> str | None:
    """Return why no shadow clients can be trained, or None."""
    if view.public.rehearse is None:
        return (
            "shadow clients need the public training function; this view has public.rehearse None; add what"
            " fglaudit.wire.rehearsal.rehearsal(protocol, defense) returns to its public facts"
        )
    if follow_from_averages(view):
        return (
            "the upload follows from averages that the observer's clients are sent; shadow clients are sent the run's"
            " models, so that theirs do not follow"
        )
    if view.topology is None:
        return "shadow clients hold parts of the graph that the observer knows; give it topology: true"
    if not len(view.known_rows().nodes):
        return "shadow clients hold rows and labels that the observer knows; give it some, e.g. auxiliary: 0.2"
    return None


def shadow_clients(
    view: View, federations: int, rounds: int, rng: torch.Generator, device: torch.device
) -> ShadowClients:
    """Train ``federations`` shadow federations, and read ``rounds`` rounds of their uploads.

    The first half is drawn blindly. What these tell of a federation's traits from its uploads says what the attacked
    federation is like, and the other half, which is returned, is drawn about there.
    """
    graph = with_known_rows(view, KnownGraph.of(view, split(rng, "known graph")), split(rng, "rows"))
    reader = UpdateReader.of(view, split(rng, "sketch"))
    attacked = _read(view, reader, rounds, device)
    half = federations // 2
    draws = split(rng, "traits")

    def trained(traits: Tensor, purpose: str) -> tuple[list[FederatedGraph], list[Uploads]]:
        graphs, found = [], []
        for index, one in enumerate(traits):
            own = split(rng, f"{purpose} {index}")
            graphs.append(drawn_federation(view, graph, one, own))
            found.append(_read(_rehearsed(view, graphs[-1], rounds, own, device), reader, rounds, device))
        return graphs, found

    blind = torch.rand(half, _TRAITS, generator=draws, dtype=torch.double)
    _, first = trained(blind, "blind")
    mean, spread = guessed_traits(torch.stack([_summary(f) for f in first]), blind, _summary(attacked))
    near = (mean + spread * torch.randn(half, _TRAITS, generator=draws, dtype=torch.double)).clamp(0, 1)
    graphs, found = trained(near, "near")
    sizes = torch.tensor([len(uploads.clients) for uploads in found])
    shadow = Uploads(
        torch.cat([u.clients for u in found]),
        torch.cat([u.sketches for u in found]),
        torch.cat([u.statistics for u in found]),
    )
    owners = [(g, k) for g, uploads in zip(graphs, found, strict=True) for k in uploads.clients.tolist()]
    degrees = [mean_degrees(g, uploads.clients) for g, uploads in zip(graphs, found, strict=True)]
    return ShadowClients(
        attacked,
        shadow,
        torch.repeat_interleave(torch.arange(len(found)), sizes),
        torch.stack([training_shares(g, k) for g, k in owners]),
        torch.cat(degrees),
    )


def guessed_traits(summaries: Tensor, traits: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Return the traits [t] of a federation of which only the summary ``asked`` [s] is seen, and their errors [t], by
    ridge regression on B others, ``summaries`` [B, s] with ``traits`` [B, t]."""
    mean, spread = summaries.mean(0), summaries.std(0).clamp(min=1e-9)
    inputs = ((summaries - mean) / spread).numpy()
    outer = torch.from_numpy(inputs).abs().amax(0)
    one = torch.minimum((asked - mean) / spread, outer).maximum(-outer)
    fitted = RidgeCV(10.0 ** np.arange(-1, 6), store_cv_results=True).fit(inputs, traits.numpy())
    best = int(np.argmin(fitted.cv_results_.mean((0, 1))))
    errors = torch.from_numpy(fitted.cv_results_[:, :, best].mean(0)).sqrt()
    return torch.from_numpy(fitted.predict(one[None].numpy())[0]).clamp(0, 1), errors


def _summary(uploads: Uploads) -> Tensor:
    """Return what a federation's uploads are like altogether: means and spreads of their statistics [s]."""
    statistics = uploads.statistics.double()
    parts = [statistics.mean(0), statistics.std(0, correction=0).clamp(min=1e-6).log()]
    apart = uploads.sketches.double() - uploads.sketches.double().mean(0)
    return torch.cat([*parts, apart.square().mean().clamp(min=1e-30).log()[None]])


def with_known_rows(view: View, graph: KnownGraph, rng: torch.Generator) -> KnownGraph:
    """Return ``graph`` with a known row of the same label in the place of every row that is made up: words of real rows
    go together."""
    known = view.known_rows()
    if not len(graph.made_up):
        return graph
    chance = torch.rand(len(graph.made_up), len(known.nodes), generator=rng)
    alike = graph.y[graph.made_up][:, None] == known.y[None, :]
    x = graph.x.clone()
    x[graph.made_up] = known.x[(chance + alike).argmax(1)].float()
    return dataclasses.replace(graph, x=x)


def drawn_federation(view: View, graph: KnownGraph, traits: Tensor, rng: torch.Generator) -> FederatedGraph:
    """Return a federation of the known graph whose clients differ in classes and degrees, each with a training node.

    Args:
        traits: in [0, 1]: how evenly classes are shared out, how much clients prefer high or low degrees, and how few
            nodes train [3].
    """
    owner, mine = graph.owner.clone(), own_nodes(view)
    places = ((owner >= 0) & ~mine).nonzero().squeeze(1)
    strangers = torch.unique(owner[places])
    low, high = (math.log(value) for value in _CONCENTRATIONS)
    concentration = math.exp(low + (high - low) * float(traits[0].item()))
    pieces = np.random.default_rng(numpy_seed(rng)).dirichlet(
        np.full(len(strangers), concentration), size=view.public.num_classes
    )
    shares = torch.from_numpy(pieces).clamp(min=1e-12).log()
    size = torch.bincount(graph.edges[0], minlength=len(owner)).double()[places].log1p()
    size = less_group_means(size, graph.y[places].clamp(min=0))
    size = size / size.std().clamp(min=1e-6)
    tilt = _TILT * traits[1] * torch.randn(len(strangers), generator=rng, dtype=torch.double)
    score = shares[graph.y[places].clamp(min=0)] + size[:, None] * tilt
    chosen = (score - torch.rand(score.shape, generator=rng, dtype=torch.double).log().neg().log()).argmax(1)
    # One node each, whoever prefers it: a client without nodes uploads nothing.
    chosen[torch.randperm(len(places), generator=rng)[: len(strangers)]] = torch.arange(len(strangers))
    owner[places] = strangers[chosen]
    share = _FEWEST_TRAINING ** float(traits[2].item())
    # Which classes are labelled more often than they occur is not known either.
    odds = torch.randn(view.public.num_classes, generator=rng).mul(_BALANCE).exp()
    labelled = graph.y >= 0
    chance = share * odds[graph.y.clamp(min=0)] / odds.mean()
    members = (torch.rand(len(owner), generator=rng) < chance) & labelled & ~mine
    first = torch.rand(len(owner), generator=rng) + (~labelled).float()
    held = lists_of(owner, view.public.num_clients)
    for k in strangers.tolist():
        nodes = held[k]
        members[nodes[first[nodes].argmin()]] = True
    members[graph.own_training] = True
    return graph.held(view, owner, members & labelled)


def _rehearsed(view: View, federation: FederatedGraph, rounds: int, rng: torch.Generator, device: torch.device) -> View:
    """Return ``view`` with the models that the clients of ``federation`` send when they get the recorded ones."""
    rehearse = view.public.rehearse
    if rehearse is None:
        raise FglauditError(unrehearsable(view) or "")
    messages, _ = rehearse(
        federation,
        view.observer,
        [ModelUpdate],
        rounds=rounds,
        received=view.messages.of(ModelUpdate),
        rng=split(rng, "training"),
        device=device,
        defended=view.public.release is not None,
    )
    return dataclasses.replace(view, messages=_as_received(view, messages))


def _as_received(view: View, messages: Messages) -> MemoryMessages:
    """Return ``messages`` of a rehearsal with the models that its clients were given, those of ``view``, in the place
    of what its own server sent."""
    known = {b.round: b for b in view.messages.of(ModelUpdate) if bool((b.senders == SERVER).all())}
    found = []
    for batch in messages.of(ModelUpdate):
        given = known.get(batch.round) if bool((batch.senders == SERVER).all()) else None
        if given is not None:
            # Whoever was sent none in the attacked run got the first one's.
            place = (given.receivers[None, :] == batch.receivers[:, None]).long().argmax(1)
            vector = next(iter(given.payload.tensors().values()))[place]
            batch = dataclasses.replace(batch, payload=ModelUpdate(vector))
        found.append(batch)
    return MemoryMessages(tuple(found))


def _read(view: View, reader: UpdateReader, rounds: int, device: torch.device) -> Uploads:
    """Return what the clients of ``view`` uploaded in the first ``rounds`` rounds, each client's mean over its own."""
    total: dict[int, tuple[Tensor, Tensor, int]] = {}
    for clients, models in sent_models(view, rounds):
        moved = ModelRound(models.received.to(device), models.change.to(device))
        sketches, statistics = reader.sketch(moved).cpu(), reader.statistics(moved).cpu()
        for place, client in enumerate(clients.tolist()):
            one, two, count = total.get(client, (0 * sketches[place], 0 * statistics[place], 0))
            total[client] = one + sketches[place], two + statistics[place], count + 1
    order = sorted(total)
    return Uploads(
        torch.tensor(order),
        torch.stack([total[k][0] / total[k][2] for k in order]),
        torch.stack([total[k][1] / total[k][2] for k in order]),
    )


def training_shares(graph: FederatedGraph, client: int) -> Tensor:
    """Return the shares of the classes [C] among the training nodes of ``client``."""
    y = graph.y[graph.clients[client]][graph.train[client]]
    counts = torch.bincount(y[y >= 0], minlength=graph.num_classes).double()
    return counts / counts.sum().clamp(min=1)


def mean_degrees(graph: FederatedGraph, clients: Tensor) -> Tensor:
    """Return the mean degree of the nodes of each of ``clients`` [k], over all edges."""
    degrees = graph.degrees().double()
    return torch.stack([degrees[graph.clients[k]].mean() for k in clients.tolist()])
