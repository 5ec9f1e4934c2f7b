"""Constraint propagation between members of neighbourhoods and the rows found in them.

See :mod:`fglaudit.attacks.neighborhoods.row_assignment`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_COINCIDENCE = -15.0
"""Score of a row for every neighbourhood in which another node must have the same row."""

Scorer = Callable[[Tensor], Tensor]
"""From the types settled so far [n], -1 while open, to a score of every option [O], in units of log likelihood."""

Evidence = Callable[[Tensor, Tensor, Tensor, Tensor], Scorer | None]
"""From nodes [n], their types settled by the rules [n], and options (local node, type) [O] each to their scorer."""


@dataclass(frozen=True)
class Matching:
    """Of every node that got a row: node id, type, whether the rules settled it, confidence, all [n]."""

    nodes: Tensor
    types: Tensor
    settled: Tensor
    confidence: Tensor


@dataclass
class _State:
    """Working state.

    Options are (node, type) pairs that may hold; slots are (neighbourhood, type) pairs with a number of rows. A use is
    one option in one slot: the node is a member of the neighbourhood and the type occurs in it.
    """

    option_node: Tensor
    option_type: Tensor
    extra: Tensor  # neighbourhoods with the type beyond those of the node: another node has the same row there
    alive: Tensor
    chosen: Tensor  # option of every local node, -1 while open
    use_option: Tensor
    use_slot: Tensor
    supply: Tensor
    whole_slot: Tensor  # all members of the slot's neighbourhood are known
    bound: Tensor  # the node must have a row in the neighbourhoods it belongs to

    def taken(self) -> Tensor:
        """Return which options are chosen."""
        mask = torch.zeros_like(self.alive)
        mask[self.chosen[self.chosen >= 0]] = True
        return mask

    def left(self) -> Tensor:
        """Return how many rows of every slot are not assigned."""
        used = self.taken()[self.use_option].long()
        return self.supply - torch.zeros_like(self.supply).index_add_(0, self.use_slot, used)

    def choose(self, options: Tensor) -> None:
        """Choose ``options``; of several for one node the first."""
        node = self.option_node[options]
        first = torch.full_like(self.chosen, len(self.alive)).scatter_reduce(0, node, options, "amin")
        new = (first < len(self.alive)) & (self.chosen < 0)
        self.chosen = torch.where(new, first, self.chosen)
        self.alive &= (self.chosen[self.option_node] < 0) | self.taken()

    def types(self) -> Tensor:
        """Return the chosen type of every local node, -1 while open."""
        return torch.where(self.chosen >= 0, self.option_type[self.chosen], -1) if len(self.alive) else self.chosen

    def compact(self) -> _State:
        """Return the state without dead options."""
        place = torch.where(self.alive, self.alive.cumsum(0) - 1, -1)
        use = self.alive[self.use_option]
        return dataclasses.replace(
            self,
            option_node=self.option_node[self.alive],
            option_type=self.option_type[self.alive],
            extra=self.extra[self.alive],
            alive=self.alive[self.alive],
            chosen=torch.where(self.chosen >= 0, place[self.chosen], -1) if len(place) else self.chosen,
            use_option=place[self.use_option[use]],
            use_slot=self.use_slot[use],
        )

    def drop_spent(self) -> None:
        """Rule out rows that are used up in a neighbourhood for its other members."""
        spent = (self.left() <= 0)[self.use_slot] & ~self.taken()[self.use_option]
        self.alive[self.use_option[spent]] = False

    def propagate(self) -> None:
        """Apply the rules until nothing changes."""
        while True:
            before = (int(self.alive.sum().item()), int((self.chosen >= 0).sum().item()))
            self.drop_spent()
            open_option = self.alive & ~self.taken()
            number = torch.bincount(self.option_node[self.alive], minlength=len(self.chosen))
            single = open_option & (number == 1)[self.option_node] & self.bound[self.option_node]
            self.choose(single.nonzero().squeeze(1))
            left, open_option = self.left(), self.alive & ~self.taken()
            asked = torch.zeros_like(left).index_add_(0, self.use_slot, open_option[self.use_option].long())
            forced = ((asked <= left) & (left > 0) & self.whole_slot)[self.use_slot] & open_option[self.use_option]
            self.choose(torch.unique(self.use_option[forced]))
            if before == (int(self.alive.sum().item()), int((self.chosen >= 0).sum().item())):
                return


def match_members(
    members: Tensor,
    rows: Tensor,
    sizes: Tensor,
    known_nodes: Tensor,
    known_types: Tensor,
    rng: torch.Generator,
    evidence: Evidence | None = None,
) -> Matching:
    """Assign one of the types found in a neighbourhood to each of its members.

    Args:
        members: (neighbourhood, node) pairs [2, M].
        rows: (neighbourhood, type) of every row found [2, R].
        sizes: rows per neighbourhood [G]; where fewer were found, its members need not have one of those.
        known_nodes, known_types: nodes whose type is known [K].
        evidence: further evidence on the options; without it guesses rest on the neighbourhoods alone.
    """
    nodes, local = torch.unique(members[1], return_inverse=True)
    listed = torch.bincount(members[0], minlength=len(sizes))
    whole = torch.bincount(rows[0], minlength=len(sizes)) >= sizes
    state = _options(members[0], local, rows, (listed <= sizes) & whole, listed >= sizes, len(nodes))
    state.choose(_named(state, nodes, known_nodes, known_types))
    state.propagate()
    settled = state.chosen >= 0
    confidence = settled.double()
    state = state.compact()
    scorer = None
    if evidence is not None and bool((state.chosen < 0).any()):
        scorer = evidence(nodes, state.types(), state.option_node, state.option_type)
    _guess(state, confidence, 1.0, rng, scorer)
    types = state.types()
    if bool((types < 0).any()):  # contradictory nodes: any unassigned row in one of their neighbourhoods
        state = _options(
            members[0], local, rows, torch.zeros_like(listed, dtype=torch.bool), listed >= sizes, len(nodes)
        )
        done = types >= 0
        state.choose(_named(state, nodes, nodes[done], types[done]))
        state.drop_spent()
        state = state.compact()
        _guess(state, confidence, 0.5, rng)
        types = state.types()
    done = types >= 0
    return Matching(nodes[done], types[done], settled[done], confidence[done].float())


def _options(group: Tensor, node: Tensor, rows: Tensor, covered: Tensor, whole: Tensor, count: int) -> _State:
    """Set up slots, options and uses.

    Args:
        group, node: neighbourhood and local node of every membership [M].
        rows: (neighbourhood, type) of every row found [2, R].
        covered: whether every listed member has a row in the neighbourhood [G].
        whole: whether every row in the neighbourhood belongs to a listed member [G].
        count: number of local nodes.
    """
    kinds = int(rows[1].max().item()) + 1 if rows.numel() else 1
    slot, supply = torch.unique(rows[0] * kinds + rows[1], return_counts=True)
    slot_group, slot_type = slot // kinds, slot % kinds
    per_group = torch.bincount(slot_group, minlength=len(covered))
    start = per_group.cumsum(0) - per_group
    repeats = per_group[group]
    use_member = torch.arange(len(group)).repeat_interleave(repeats)
    within = torch.arange(len(use_member)) - (repeats.cumsum(0) - repeats)[use_member]
    use_slot = start[group[use_member]] + within
    option, use_option = torch.unique(node[use_member] * kinds + slot_type[use_slot], return_inverse=True)
    binding = covered[group]
    needed = torch.bincount(node[binding], minlength=count)
    seen = torch.bincount(use_option[binding[use_member]], minlength=len(option))
    option_node, option_type = option // kinds, option % kinds
    extra = torch.bincount(slot_type, minlength=kinds)[option_type] - torch.bincount(node, minlength=count)[option_node]
    return _State(
        option_node=option_node,
        option_type=option_type,
        extra=extra,
        alive=seen >= needed[option_node],
        chosen=torch.full((count,), -1),
        use_option=use_option,
        use_slot=use_slot,
        supply=supply,
        whole_slot=whole[slot_group],
        bound=needed > 0,
    )


def _named(state: _State, nodes: Tensor, known_nodes: Tensor, known_types: Tensor) -> Tensor:
    """Return the options that are known to hold."""
    if len(nodes) == 0 or len(known_nodes) == 0:
        return torch.empty(0, dtype=torch.long)
    place = torch.searchsorted(nodes, known_nodes).clamp(max=len(nodes) - 1)
    here = nodes[place] == known_nodes
    known = torch.full((len(nodes),), -1)
    known[place[here]] = known_types[here]
    return (known[state.option_node] == state.option_type).nonzero().squeeze(1)


def _guess(
    state: _State, confidence: Tensor, factor: float, rng: torch.Generator, scorer: Scorer | None = None
) -> None:
    """Choose for open nodes, some that share no neighbourhood at a time, with the rules applied in between.

    Args:
        confidence: of every local node [n]; filled in for those chosen here.
        factor: confidence of a certain choice.
        scorer: of the options; None: only coincidences count.
    """
    while True:
        number = torch.bincount(state.option_node[state.alive], minlength=len(state.chosen))
        pending = (state.chosen < 0) & (number > 0)
        if not bool(pending.any()):
            return
        if scorer is None:
            score = _COINCIDENCE * state.extra.abs().double()
        else:
            score = scorer(state.types()).double() + _COINCIDENCE * state.extra.abs()
        score = score.masked_fill(~state.alive, -torch.inf)
        guess = _apart(state, pending, score, scorer is not None, rng)
        node = state.option_node[guess]
        confidence[node] = factor / number[node].double() if scorer is None else factor * _chance(state, score)[guess]
        state.choose(guess)
        state.propagate()
        confidence[(state.chosen >= 0) & (confidence == 0)] = 0.5 * factor


def _chance(state: _State, score: Tensor) -> Tensor:
    """Return the posterior probability of every option of a node under its options' log likelihoods ``score`` [O]."""
    best = torch.full((len(state.chosen),), -torch.inf, dtype=torch.double)
    best = best.scatter_reduce(0, state.option_node, score, "amax")
    weight = torch.where(state.alive, (score - best[state.option_node]).exp(), 0.0)
    total = torch.zeros_like(best).index_add_(0, state.option_node, weight)
    return weight / total.clamp(min=1e-300)[state.option_node]


def _apart(state: _State, pending: Tensor, score: Tensor, by_lead: bool, rng: torch.Generator) -> Tensor:
    """Return one option for each of several pending nodes that share no neighbourhood with each other.

    It is the option of highest score. Nodes go first whose best option leads the second by most (``by_lead``), or whose
    best option scores highest. Scores without evidence are highest for types that occur in exactly the neighbourhoods
    of the node.

    Args:
        pending: open nodes [n].
        score: of the options [O].
    """
    n, node = len(pending), state.option_node
    shaken = torch.rand(len(score), generator=rng, dtype=torch.double)
    order = torch.argsort(shaken)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(node[order], stable=True)]  # by node, best option first, ties at random
    counts = torch.bincount(node, minlength=n)
    start = counts.cumsum(0) - counts
    have = counts > 0
    best = torch.full((n,), -torch.inf, dtype=torch.double)
    best[have] = score[order[start[have]]]
    second = torch.full((n,), -torch.inf, dtype=torch.double)
    several = counts > 1
    second[several] = score[order[start[several] + 1]]
    urgency = torch.where(pending, best - second if by_lead else best, -torch.inf)
    turn = torch.randperm(n, generator=rng)
    rank = torch.empty_like(turn)
    rank[turn[torch.argsort(urgency[turn], descending=True, stable=True)]] = torch.arange(n)
    user = node[state.use_option]
    waiting = torch.where(pending[user], rank[user], n)
    lowest = torch.full_like(state.supply, n).scatter_reduce(0, state.use_slot, waiting, "amin")
    beaten = torch.zeros_like(pending)
    beaten[user[lowest[state.use_slot] < rank[user]]] = True
    return order[start[pending & ~beaten]]
