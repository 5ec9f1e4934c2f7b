"""Steps between recovered rows and nodes, on inputs small enough to redo by hand."""

from __future__ import annotations

import torch
from masked_views import masked_view, unit_rows
from neighbor_sum_views import random_federated

from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows
from fglaudit.attacks.neighborhoods.row_assignment import assign_rows
from fglaudit.attacks.neighborhoods.row_levels import to_levels
from fglaudit.attacks.neighborhoods.row_matching import match_members
from fglaudit.attacks.neighborhoods.row_types import close_rows
from fglaudit.rng import derive
from fglaudit.view import Observer

CLIENT = Observer((0,))


def test_close_rows_join_under_noise() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = unit_rows((torch.rand(20, 400, generator=rng) < 0.05).float())
    noisy = torch.cat([rows, rows]) + 0.02 * torch.randn(40, 400, generator=rng)
    kinds = close_rows(noisy, torch.full((40,), 0.02))
    assert torch.equal(kinds[:20], kinds[20:])
    assert len(torch.unique(kinds)) == 20


def test_likeliest_level_of_a_noisy_row() -> None:
    graph = random_federated(0, features=60)
    view = masked_view(graph, CLIENT)
    bits = graph.x[:20]
    noisy = unit_rows(bits) + 0.03 * torch.randn(bits.shape, generator=torch.Generator().manual_seed(1))
    found = to_levels(view, noisy, torch.full((20,), -1), torch.full((20,), 0.03), unit_ball=True)
    assert torch.equal(found, bits)


def test_matching_by_hand() -> None:
    """Neighbourhood 0 has members 10, 11, 12 and types 0, 0, 1; neighbourhood 1 has 11, 12 and types 0, 1; node 12 is
    known: 1."""
    members = torch.tensor([[0, 0, 0, 1, 1], [10, 11, 12, 11, 12]])
    rows = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 1, 0, 1]])
    known = torch.tensor([12]), torch.tensor([1])
    result = match_members(members, rows, torch.tensor([3, 2]), *known, derive(0, "matching"))
    assert result.nodes.tolist() == [10, 11, 12]
    assert result.types.tolist() == [0, 0, 1]
    assert bool(result.settled.all())


def test_nothing_recovered_is_nothing_assigned() -> None:
    view = masked_view(random_federated(0), CLIENT)
    result = assign_rows(view, NeighborhoodRows.join([], 40), derive(0, "none"))
    assert len(result.nodes) == 0 and result.rows.shape == (0, 40)
    assert view.public.facts == ()
