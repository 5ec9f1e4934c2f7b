"""A self-test problem for attacks that bring none: every own node has one neighbour at another client, and that
neighbour has no other; for an observer without clients all nodes are alone, or, where nothing is sent of such nodes,
every second one has a row and an empty neighbour at another client. Whatever is sent shows one row at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import dealt, planted_federation, planted_graph, planted_rows, rehearsed, with_own_rows
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Attack, Planted
from fglaudit.rng import split
from fglaudit.view import View

ROUNDS = 2
"""Last round that is rehearsed where an attack does not say how many it reads."""


def planted_for(attack: Attack, view: View, rng: torch.Generator) -> Planted:
    """Return the problem that ``attack`` plants, or the default one.

    Raises:
        FglauditError: it plants none and infers something else than feature rows.
    """
    own = attack.plant(view, rng=rng)
    return plant_lone_rows(attack, view, rng) if own is None else own


def plant_lone_rows(attack: Attack, view: View, rng: torch.Generator) -> Planted:
    """Return the problem of the module docstring, with the messages that ``attack`` reads: the protocol's own, without
    a defense.

    Raises:
        FglauditError: the attack infers something else than feature rows.
    """
    if type(attack).quantity != "features":
        raise FglauditError(
            f"only attacks that rebuild feature rows have a default self-test; {type(attack).name} infers"
            f" {type(attack).quantity}; define plant(view, rng=...)"
        )
    rng = split(rng, "plant")
    mine = own_nodes(view)
    own, others = mine.nonzero().squeeze(1), (~mine).nonzero().squeeze(1)
    others = others[torch.randperm(len(others), generator=rng)]
    if len(own):
        pairs = torch.stack([own[: len(others)], others[: len(own)]])
        return _sent(attack, view, pairs, pairs[1], others, rng)
    alone = _sent(attack, view, torch.empty(2, 0, dtype=torch.long), others, others, rng)
    if any(len(batch.entry_messages()) for kind in type(attack).consumes for batch in alone.view.messages.of(kind)):
        return alone
    pairs = others[: len(others) // 2 * 2].view(-1, 2).T  # dealt in turn: the two are at different clients
    return _sent(attack, view, pairs, pairs[0], others, rng)


def _sent(attack: Attack, view: View, pairs: Tensor, targets: Tensor, others: Tensor, rng: torch.Generator) -> Planted:
    """Return the problem in which ``targets`` have drawn rows and ``pairs`` [2, P] of nodes are neighbours."""
    targets = targets.sort().values
    x = with_own_rows(view, torch.zeros(view.public.num_nodes, view.public.num_features))
    rows = planted_rows(view, targets, rng)
    x[targets] = rows
    planted, edges = planted_graph(view, pairs, inner_edges=True)
    graph = planted_federation(view, x, edges, dealt(view, others), rng)
    reads = type(attack).reads()
    last = [type(attack).last_round(payload) for payload in reads]
    rounds = max((ROUNDS if each is None else min(each, ROUNDS) for each in last), default=0)
    return Planted(rehearsed(planted, graph, reads, rng, rounds=rounds), rows, targets)
