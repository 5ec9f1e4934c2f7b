"""Attacks know the rules by which small neighbourhoods are dropped: their equations must hold for what is then really
sent."""

from __future__ import annotations

import pytest
import torch

from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.graph.minimum_neighborhood import MinimumNeighborhood
from fglaudit.interfaces import Defense, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer

OBSERVERS = [
    Observer(parties=(0,)),
    Observer(parties=(0, 2)),
    Observer(parties=(SERVER,), topology=True),
    Observer(parties=(SERVER, 1)),
]


@pytest.mark.parametrize("defense", [DropSingletons(), MinimumNeighborhood(fewest=4)], ids=lambda d: d.name)
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
@pytest.mark.parametrize("observer", OBSERVERS, ids=lambda o: o.name)
def test_complete_equations_hold_although_edges_were_dropped(
    observer: Observer, aggregate: Weights, hops: int, defense: Defense
) -> None:
    graph = example_graph(clients=6)
    run = record(FedGCN(hops=hops, rounds=1, aggregate=aggregate), graph, defense)
    found = neighbor_equations(run.view(observer))
    terms = found.coefficients[:, None] * graph.x[found.nodes][found.columns].double()
    sums = torch.zeros_like(found.values).index_add_(0, found.rows, terms)
    complete = (found.hidden == 0) & ~torch.zeros(found.num_rows).index_add_(
        0, found.rows, found.coefficients.isnan().float()
    ).bool()
    assert complete.any()
    assert ((found.values - sums).abs() <= found.tolerance + 1e-6)[complete].all()


@pytest.mark.parametrize("hops", [1, 2])
def test_a_server_that_knows_the_edges_is_not_misled(hops: int) -> None:
    """With 2 hops sums go to neighbours' owners too; who uploads parts of them shows whose they are."""
    run = record(FedGCN(hops=hops, rounds=1), example_graph(clients=6), DropSingletons())
    view = run.view(Observer(parties=(SERVER,), topology=True))
    result = RowSpace().run(view, rng=derive(0), device=CPU)
    assert isinstance(result, Reconstruction) and result.proven is not None
    assert result.proven.float().mean() > 0.5
    assert torch.equal(result.rows[result.proven].round(), run.graph.x[result.nodes[result.proven]])
