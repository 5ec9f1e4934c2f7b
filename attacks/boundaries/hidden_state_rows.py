"""Feature rows of nodes two hops away, from the hidden states that Distributed GCN's clients send in every step.

A client is sent the rows of its nodes' neighbours, and in every step their hidden states, which are sums over *their*
neighbours under weights that it has too (:mod:`fglaudit.attacks.boundaries.state_equations`). It subtracts what it
knows. Where one neighbour is missing, or features are so few that two or three can be told apart, rows are solved for
(:mod:`fglaudit.attacks.boundaries.row_solving`); what is solved is known, so that others are missing one less. Returned
are the rows that were sent in the clear, and those solved. The observer needs the edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, own_nodes
from fglaudit.adversary.modelled import about, on_gradients
from fglaudit.adversary.planting import MemoryMessages, planted_rows
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.boundaries.row_solving import solve_rows
from fglaudit.attacks.boundaries.state_equations import StateEquations, systems, whole_neighbourhoods
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, HiddenStates, MessageBatch, ModelUpdate, Payload, RawFeatures
from fglaudit.rng import split
from fglaudit.structure import BoundaryRows
from fglaudit.view import View

ROUNDS = 24
_MOST_TERMS, _MOST_FEATURES = 3, 128
"""Missing neighbours of one node whose rows are solved for together, and the features up to which more than one is: of
24 pairs on Cora, with 1433, none was found from 40 rounds."""
_PLANTED_DIRECTIONS = 24
"""Of a planted row for every word in it."""


@dataclass(frozen=True)
class HiddenStateRows(Attack):
    """Read rows off hidden states."""

    name: ClassVar[str] = "hidden-state-rows"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HiddenStates, RawFeatures, ModelUpdate)
    metric: ClassVar[str] = "exact_rate"
    first_rounds: ClassVar[int | None] = ROUNDS

    def models(self, fact: Fact) -> bool:
        """What is done to gradients, and to models that clients upload, is in the models that the server sends."""
        only_up = about(fact, ModelUpdate, direction="up") and not about(fact, ModelUpdate, direction="down")
        return only_up or on_gradients(fact)

    def unsupported(self, view: View) -> str | None:
        if (missing := view.public.structure.missing(BoundaryRows)) is not None:
            return missing
        if view.public.structure.of(BoundaryRows).rate < 1:
            return "of sums over a sample of the copies the observer is not told which took part"
        if view.public.features is FeatureKind.SCALED_BINARY:
            return "how long a row is, is not known: rows that are divided by their sums are not solved for"
        equations = StateEquations.of(view, 1)
        if not equations.states.numel():
            return "the observer is sent no hidden state beside the model that it was computed with"
        missing_neighbours = _missing(view, equations.nodes, _known(view)[0])
        fewest = min(missing_neighbours.tolist(), default=0)
        if not 1 <= fewest <= _most_terms(view):
            return "no hidden state is known to be made of rows of which only a few are missing; grant topology"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        equations = StateEquations.of(view, ROUNDS)
        known, rows = _known(view)
        given, proven = known.clone(), known.clone()
        count, tried = 1, set[tuple[int, ...]]()
        while count <= _most_terms(view):
            more, certain = _solve(view, equations, known, rows, count, tried, device)
            known[more], proven[more] = True, certain
            count = 1 if len(more) else count + 1
        sent = _sent(view)[0]
        found = torch.cat([sent, (known & ~given).nonzero().squeeze(1)])
        return Reconstruction(rows[found].float(), found, torch.ones(len(found)), proven[found])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant rows of all nodes, and the hidden states that random models of as many rounds make of them; asked about
        is who is the only one missing, or one of the fewest."""
        rng = split(rng, "plant")
        n, (name, (features, units)) = view.public.num_nodes, next(iter(view.public.layout.items()))
        sent, known = StateEquations.of(view, 1).nodes, _known(view)[0]
        rows = torch.zeros(n, features)
        for client in view.own:
            rows[client.nodes] = client.x.float()
        rows[view.auxiliary.nodes] = view.auxiliary.x.float()
        others = (~own_nodes(view)).nonzero().squeeze(1)
        others = others[~torch.isin(others, view.auxiliary.nodes)]
        drawn = planted_rows(view, others, rng)
        rows[others] = drawn if view.public.features is FeatureKind.REAL else _fewer(drawn, ROUNDS * units)
        width = sum(math.prod(shape) for shape in view.public.layout.values())
        vectors = torch.randn(ROUNDS, width, generator=rng)
        row, column = known_edges(view)
        degree = (known_degrees(view).clamp(min=0).double() + 1).rsqrt()
        sums = torch.zeros(n, features, dtype=torch.double)
        sums.index_add_(0, row, rows[column].double() * (degree[row] * degree[column]).unsqueeze(1))
        reader, sender = _ends(view)
        to, back, whole = torch.tensor([reader]), torch.tensor([sender]), torch.tensor([0, len(sent)])
        batches = [MessageBatch(0, back, to, RawFeatures(sent, rows[sent]), whole)]
        for round, vector in enumerate(vectors):
            first = unflatten(vector.unsqueeze(0), view.public.layout)[name][0].double()
            state = HiddenStates(sent, (sums[sent] @ first).clamp(min=0).float())
            batches.append(MessageBatch(round, torch.tensor([SERVER]), to, ModelUpdate(vector.unsqueeze(0))))
            batches.append(MessageBatch(round + 1, back, to, state, whole))
        planted = without_defense(view, MemoryMessages(tuple(batches)))
        asked = _first_asked(planted, sent, known)
        return Planted(planted, rows[asked], asked)


def _most_terms(view: View) -> int:
    """Return how many missing rows are solved for together: a sum of real-valued ones does not tell them apart."""
    alone = view.public.features is FeatureKind.REAL or view.public.num_features > _MOST_FEATURES
    return 1 if alone else _MOST_TERMS


def _sent(view: View) -> tuple[Tensor, Tensor]:
    """Return the nodes [n], each once, whose rows others sent in the clear, and these [n, F]."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    rows = torch.zeros(view.public.num_nodes, view.public.num_features)
    here = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    for batch, payload in view.sent(RawFeatures):
        others = ~torch.isin(batch.senders, mine)[batch.entry_messages()]
        rows[payload.nodes[others]] = payload.x[others].float()
        here[payload.nodes[others]] = True
    nodes = here.nonzero().squeeze(1)
    return nodes, rows[nodes]


def _known(view: View) -> tuple[Tensor, Tensor]:
    """Return whose rows the observer has [N], and these [N, F], float64: its own, auxiliary ones, and those sent."""
    known = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    rows = torch.zeros(view.public.num_nodes, view.public.num_features, dtype=torch.double)
    had = view.known_rows()
    for nodes, x in ((had.nodes, had.x), _sent(view)):
        known[nodes] = True
        rows[nodes] = x.double()
    return known, rows


def _missing(view: View, nodes: Tensor, known: Tensor) -> Tensor:
    """Return how many neighbours without a known row those of ``nodes`` have that have any [n]."""
    row, column = known_edges(view)
    count = torch.bincount(row[~known[column]], minlength=view.public.num_nodes)[nodes]
    return count[(count > 0) & whole_neighbourhoods(view)[nodes]]


def _solve(
    view: View,
    equations: StateEquations,
    known: Tensor,
    rows: Tensor,
    count: int,
    tried: set[tuple[int, ...]],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Solve for missing rows, ``count`` at a time; write those found to ``rows`` [N, F], and return whose they are [m]
    and which are proven [m]. Systems that are ``tried``, with as many equations, are left out; new ones are added."""
    found = systems(view, equations, known, rows, count)
    told = (found.precision > 0).sum(1, keepdim=True)
    keys = [tuple(key) for key in torch.cat([found.terms, told], 1).tolist()]
    found = found.only(torch.tensor([key not in tried for key in keys], dtype=torch.bool))
    tried.update(keys)
    real = view.public.features is FeatureKind.REAL
    prior = feature_prior(view, found.terms.flatten())
    solved = solve_rows(found, equations.directions, prior, real=real, device=device)
    nodes = found.terms[solved.sure].flatten()
    rows[nodes] = solved.rows[solved.sure].flatten(0, 1)
    return nodes, solved.proven[solved.sure].repeat_interleave(count)


def _fewer(rows: Tensor, directions: int) -> Tensor:
    """Return binary ``rows`` [n, F] with as many of their ones as ``directions`` show."""
    most = max(1, directions // 2 // _PLANTED_DIRECTIONS)
    return rows * (rows.cumsum(1) <= most)


def _first_asked(view: View, nodes: Tensor, known: Tensor) -> Tensor:
    """Return the missing neighbours [m] that are solved for first: the only one of a node, or else two, or three."""
    equations, none = StateEquations.of(view, 1), torch.zeros(len(known), 1, dtype=torch.double)
    blank = StateEquations(nodes, equations.states, torch.zeros(1, equations.states.shape[1], dtype=torch.double))
    terms = (systems(view, blank, known, none, count).terms for count in range(1, _most_terms(view) + 1))
    asked: Tensor = torch.unique(next(some for some in terms if len(some)))
    return asked


def _ends(view: View) -> tuple[int, int]:
    """Return a client that the observer reads the messages of, and another that sends some."""
    mine = view.observer.clients
    reader = mine[0] if mine else 0
    return reader, next(k for k in range(view.public.num_clients) if k != reader and k not in mine)
