"""A self-test problem for attacks that bring none: every own node has one neighbour at another client, and that
neighbour has no other; for an observer without clients all nodes are alone. Whatever is sent shows one row
at a time."""

from __future__ import annotations

import torch

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
    pairs = torch.stack([own[: len(others)], others[: len(own)]])
    targets = (pairs[1] if len(own) else others).sort().values
    x = with_own_rows(view, torch.zeros(view.public.num_nodes, view.public.num_features))
    rows = planted_rows(view, targets, rng)
    x[targets] = rows
    planted, edges = planted_graph(view, pairs, inner_edges=True)
    graph = planted_federation(view, x, edges, dealt(view, others), rng)
    reads = type(attack).reads()
    last = [type(attack).last_round(payload) for payload in reads]
    rounds = max((ROUNDS if each is None else min(each, ROUNDS) for each in last), default=0)
    return Planted(rehearsed(planted, graph, reads, rng, rounds=rounds), rows, targets)
