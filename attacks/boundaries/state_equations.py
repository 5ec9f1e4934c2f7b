"""What hidden states say of the rows behind them, as linear equations.

A unit u of node i that is active in round t, under the first layer ``W_t`` [F, D] that the observer was sent, shows

    h = sum over j of A_ij (x_j . w),    w = W_t[:, u],

one equation in the rows of i's closed neighbourhood. Weights move from round to round along other sums of rows, so
that the directions w span more and more of the F dimensions: T rounds give up to ``T D`` of them. Nodes whose rows are
missing for the observer of the same neighbours measure the same thing: ``sqrt(D_i)`` times what is left of ``h`` once
known rows are subtracted is ``sum over missing j of (x_j . w) / sqrt(D_j)``, whatever i is. So the equations of all
such nodes are one system.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges
from fglaudit.attacks.boundaries.first_models import first_models
from fglaudit.graph import positions
from fglaudit.payloads import HiddenStates, MessageBatch
from fglaudit.view import View

_ROUNDING = 2e-7
"""Error of a hidden state in float32, relative to the largest one."""


@dataclass(frozen=True)
class StateEquations:
    """Hidden states of other clients' nodes in the first rounds.

    Attributes:
        nodes: [I], ascending.
        states: [I, E] for E pairs of a round and a unit; 0 where a unit was not active, or nothing was sent.
        directions: the weights [F, E].
    """

    nodes: Tensor
    states: Tensor
    directions: Tensor

    @staticmethod
    def of(view: View, rounds: int) -> StateEquations:
        """Collect what the observer was sent in ``rounds`` rounds."""
        models = first_models(view, rounds)
        name = next(iter(view.public.layout))
        features, units = view.public.layout[name]
        sent = [batch for batch in view.messages.of(HiddenStates) if batch.round - 1 in models]
        parts = [_foreign(view, batch) for batch in sent]
        nodes = torch.unique(torch.cat([torch.empty(0, dtype=torch.long), *(ids for ids, _ in parts)]))
        order = {round: place for place, round in enumerate(sorted({batch.round for batch in sent}))}
        states = torch.zeros(len(nodes), len(order), units, dtype=torch.double)
        for batch, (ids, values) in zip(sent, parts, strict=True):
            states[torch.searchsorted(nodes, ids), order[batch.round]] = values.double()
        weights = [torch.empty(features, 0), *(models[round - 1][name].cpu() for round in order)]
        return StateEquations(nodes, states.flatten(1), torch.cat(weights, 1).double())


@dataclass(frozen=True)
class Systems:
    """Linear systems in the rows of a few missing nodes each.

    Attributes:
        terms: whose rows are asked for [P, q].
        factors: ``1 / sqrt(D_j)`` of each [P, q].
        values: of ``sum over j of factor_j (x_j . w)`` in every direction w [P, E]; 0 where it is not known.
        precision: one over the variance of its error [P, E]; 0 where it is not known.
    """

    terms: Tensor
    factors: Tensor
    values: Tensor
    precision: Tensor

    def only(self, kept: Tensor) -> Systems:
        """Return those that ``kept`` [P], a mask, names."""
        return Systems(self.terms[kept], self.factors[kept], self.values[kept], self.precision[kept])


def systems(view: View, equations: StateEquations, known: Tensor, rows: Tensor, count: int) -> Systems:
    """Return the systems of the nodes that have exactly ``count`` neighbours without a known row, of different degrees.

    Args:
        known: whose rows are known [N].
        rows: these rows [N, F], float64; others are not read.
    """
    n = view.public.num_nodes
    degree = (known_degrees(view).clamp(min=0).double() + 1).rsqrt()
    place = positions(equations.nodes, n)
    row, column = known_edges(view)
    row, column = row[place[row] >= 0], column[place[row] >= 0]
    told, missing = known[column], ~known[column]
    sums = rows.new_zeros(len(equations.nodes), rows.shape[1])
    sums.index_add_(0, place[row[told]], rows[column[told]] * degree[column[told]].unsqueeze(1))
    used = torch.bincount(place[row[missing]], minlength=len(equations.nodes)) == count
    used &= whole_neighbourhoods(view)[equations.nodes]
    kept = missing & used[place[row]]
    terms, which = torch.unique(column[kept].view(-1, count), dim=0, return_inverse=True)
    active = (equations.states > 0) & used.unsqueeze(1)
    scale = 1 / degree[equations.nodes].unsqueeze(1)
    error = _ROUNDING * equations.states.max().clamp(min=1e-30) * scale if len(scale) else scale
    precision = active / error.square()
    left = (equations.states * scale - sums @ equations.directions) * precision
    shape = len(terms), equations.states.shape[1]
    total = left.new_zeros(shape).index_add_(0, which, left[used])
    weight = left.new_zeros(shape).index_add_(0, which, precision[used])
    factors = degree[terms]
    apart = (factors.sort(1).values.diff(dim=1) > 0).all(1)
    return Systems(terms, factors, total / weight.clamp(min=1e-30), weight).only(apart)


def whole_neighbourhoods(view: View) -> Tensor:
    """Return of which nodes the observer knows every edge [N]."""
    return torch.bincount(known_edges(view)[0], minlength=view.public.num_nodes) == known_degrees(view) + 1


def _foreign(view: View, batch: MessageBatch) -> tuple[Tensor, Tensor]:
    """Return the nodes [n] and states [n, D] in ``batch`` that other clients sent."""
    assert isinstance(batch.payload, HiddenStates)
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    others = ~torch.isin(batch.senders, mine)[batch.entry_messages()]
    return batch.payload.nodes[others], batch.payload.values[others]
