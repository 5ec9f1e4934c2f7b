"""Means of merged neighbours are taken apart where the members' scales differ."""

from __future__ import annotations

import pytest
import torch
from scored_runs import game_of

from fglaudit.attacks.neighborhoods.merged_rows import MergedRows, decode_totals
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.interfaces import Reconstruction
from fglaudit.protocols.fedgat.fedgat import FedGAT, Variant
from fglaudit.quantities.rows.game import score
from fglaudit.rng import derive
from fglaudit.testing import CPU, check_attack, example_graph, record
from fglaudit.view import Observer


def scaled(bits: torch.Tensor) -> torch.Tensor:
    return bits.double() / bits.double().sum(-1, keepdim=True).sqrt()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_totals_of_rows_with_different_scales_are_split_exactly(count: int) -> None:
    rng = derive(count, "bits")
    bits = torch.zeros(20, count, 60, dtype=torch.bool)
    for g in range(20):
        for j, ones in enumerate((3, 5, 8, 13)[:count]):
            bits[g, j, torch.randperm(60, generator=rng)[:ones]] = True
    noise = 1e-6 * torch.randn(20, 60, generator=rng, dtype=torch.double)
    share, solved = decode_totals(scaled(bits).sum(1) + noise, count)
    assert bool(solved.all())
    assert torch.equal(share > 0.5, bits)


def test_rows_with_equal_scales_share_what_is_not_common() -> None:
    bits = torch.tensor([[[1, 1, 0, 0], [1, 0, 1, 0]]], dtype=torch.bool)
    share, solved = decode_totals(scaled(bits).sum(1), 2)
    assert solved.tolist() == [True]
    assert share[0].tolist() == [[1.0, 0.5, 0.5, 0.0]] * 2


def test_what_is_no_total_is_not_explained() -> None:
    _, solved = decode_totals(torch.rand(10, 60, generator=derive(0, "noise"), dtype=torch.double), 2)
    assert not bool(solved.any())


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_merging_two_neighbours_hides_little(variant: Variant) -> None:
    graph = example_graph(nodes=120, features=80, clients=4)
    run = record(FedGAT(variant=variant, rounds=1, heads=2, hidden=3), graph, MergeNeighbors(2))
    observer = Observer((0,))
    view = run.view(observer)
    check_attack(MergedRows(), view)
    result = MergedRows().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    found = score([game_of(run, observer)], [result])
    assert found.matched_rate > 0.3


def test_it_applies_to_merged_binary_rows_only() -> None:
    run = record(FedGAT(rounds=1, heads=2, hidden=3), example_graph())
    assert "merged" in (MergedRows().unsupported(run.view(Observer((0,)))) or "")
