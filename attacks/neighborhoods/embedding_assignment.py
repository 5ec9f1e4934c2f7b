"""Which of several possible rows is a node's own, according to received embeddings.

A node's own row is among those that explain its embedding (:mod:`fglaudit.attacks.neighborhoods.embedding_members`). Of
several that do, the others are its neighbours' rows, and being neighbours is mutual: if node j has the row c, then c
explains the embedding of just those nodes whose rows explain j's. Nodes whose row is settled are compared in this way
with every option of the others. Where all members of a neighbourhood are found, the attention coefficients also depend
on which of them is the node itself: its equations then hold exactly for one option alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges
from fglaudit.adversary.public_rules import same_neighborhoods, stated
from fglaudit.attacks.neighborhoods.embedding_equations import embedding_equations
from fglaudit.attacks.neighborhoods.embedding_members import MemberFit, explain
from fglaudit.attacks.neighborhoods.modelled_facts import received_models
from fglaudit.attacks.neighborhoods.row_matching import Scorer
from fglaudit.graph import positions
from fglaudit.payloads import Embeddings, ModelUpdate
from fglaudit.view import View

FIRST_ROUNDS = 16
"""Only rounds before this are read, so that a recorder need not keep all."""
_ROUNDS = 6
_FOUND, _DISAGREEMENT, _EXACT = 6.0, 2.0, 8.0
"""Score of an option for explaining the embedding, per one-sided neighbour, and for exact equations."""
_FALSE_MATCHES = 0.3
"""Expected number of embeddings that a row explains by chance."""
_ROUNDING, _CLEARLY = 1e-4, 4.0
"""Misfit of exact equations, and how many times larger that of all other options must be."""


@dataclass(frozen=True)
class EmbeddingEvidence:
    """Scores of (node, type) options.

    Attributes:
        rows: distinct rows (types) [T, F].
        known_nodes, known_types: nodes whose row the observer knew before [K].
    """

    view: View
    rows: Tensor
    known_nodes: Tensor
    known_types: Tensor

    def __call__(self, nodes: Tensor, types: Tensor, option_node: Tensor, option_type: Tensor) -> Scorer | None:
        """Return a scorer of the options, None where the view holds no evidence.

        See :func:`fglaudit.attacks.neighborhoods.row_matching.match_members`.

        Args:
            nodes, types: nodes and their types settled by the rules, -1 while open [n].
            option_node, option_type: the options, as index into ``nodes`` and type [O].
        """
        if len(self.known_nodes) == 0 or not _as_computed(self.view):
            return None
        equations = embedding_equations(self.view, _ROUNDS, FIRST_ROUNDS)
        if equations is None:
            return None
        n, count = self.view.public.num_nodes, len(self.rows)
        settled_type = torch.full((n,), -1)
        settled_type[nodes] = types
        settled_type[self.known_nodes] = self.known_types
        degrees = known_degrees(self.view)
        equations = equations.among(degrees[equations.nodes] >= 0)
        if len(equations.nodes) == 0:
            return None
        place = positions(equations.nodes, n)
        row, column = known_edges(self.view)
        use = (place[row] >= 0) & (row != column) & (settled_type[column] >= 0)
        given = torch.zeros(len(equations.nodes), count, dtype=torch.long)
        given.index_put_((place[row[use]], settled_type[column[use]]), torch.tensor(1), accumulate=True)
        options = torch.zeros(len(equations.nodes), count, dtype=torch.bool)
        at = place[nodes[option_node]]
        options[at[at >= 0], option_type[at >= 0]] = True
        fixed = settled_type[equations.nodes] >= 0
        options[fixed] = torch.nn.functional.one_hot(settled_type[equations.nodes[fixed]], count).bool()
        candidates = torch.zeros(count, dtype=torch.bool)
        candidates[option_type] = True
        candidates[types[(types >= 0) & ~torch.isin(nodes, self.known_nodes)]] = True
        prior = self.rows[self.known_types]
        sizes = degrees[equations.nodes] + 1
        unseen = degrees[nodes] - torch.bincount(row[(row != column) & (settled_type[column] >= 0)], minlength=n)[nodes]
        membership = explain(equations, self.rows, prior, given, options, candidates, sizes)
        return _MutualNeighbors(membership, place[nodes], unseen.clamp(min=0), option_node, option_type)


def _as_computed(view: View) -> bool:
    """Whether embeddings arrive as they were computed, by the models that the observer has, from neighbourhoods in the
    graph."""
    models = all(received_models(fact) for fact in stated(view, ModelUpdate))
    return same_neighborhoods(view) and models and not stated(view, Embeddings)


class _MutualNeighbors:
    """Scores the options given what is settled so far."""

    def __init__(
        self, membership: MemberFit, place: Tensor, unseen: Tensor, option_node: Tensor, option_type: Tensor
    ) -> None:
        """Prepare the scores.

        Args:
            membership: of the types, according to the embeddings.
            place: index of every node among the embeddings, -1 for none [n].
            unseen: number of its unknown neighbours [n].
            option_node, option_type: the options [O].
        """
        self.found, self.place, self.unseen = membership.found.float(), place, unseen.float()
        self.node, self.type, self.at = option_node, option_type, place[option_node]
        self.seen = self.at >= 0
        at, kind = self.at[self.seen], self.type[self.seen]
        error = membership.misfit[at, kind]
        two = membership.misfit.topk(min(2, membership.misfit.shape[1]), dim=1, largest=False).values
        second = two[at, -1]
        exact = (error <= _ROUNDING) & (second > _CLEARLY * error) & (error == two[at, 0])
        self.base = torch.zeros(len(option_node))
        self.base[self.seen] = _FOUND * self.found[at, kind] + _EXACT * exact.float()

    def __call__(self, types: Tensor) -> Tensor:
        """Return the scores [O] given the types settled so far [n], -1 while open."""
        settled = ((types >= 0) & (self.place >= 0)).nonzero().squeeze(1)
        at, kind = self.at[self.seen], self.type[self.seen]
        explained = self.found[:, types[settled]][at]  # settled node k's row explains the option's node
        explains = self.found[self.place[settled]].T[kind]  # the option's row explains settled node k
        score = self.base.clone()
        # Without an embedding of its own, a node's degree gives the expected number of others that its row explains (a
        # Poisson variable).
        times = self.found.sum(0)
        rate = (
            (times[types[settled]].mean() - 1).clamp(min=0) / self.unseen[settled].mean().clamp(min=1)
            if len(settled)
            else times.new_zeros(())
        )
        expected = rate * self.unseen[self.node[~self.seen]] + _FALSE_MATCHES
        score[~self.seen] = times[self.type[~self.seen]] * expected.log() - expected
        score[self.seen] -= _DISAGREEMENT * (explained - explains).abs().sum(1)
        return score
