"""The measurement of membership: what it refuses, that it goes on where it stopped, and its figure."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.membership import nodes as membership
from bench.membership.roc_figure import draw
from fglaudit.errors import FglauditError
from fglaudit.nn.gcn_ensemble import EnsembleSettings
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive


def test_a_target_is_attacked_without_its_partner() -> None:
    """Who trained in the target's partner is the complement: with it the counts of the rest would tell."""
    nodes, models = 40, 6
    rng = torch.Generator().manual_seed(0)
    members = torch.rand(models // 2, nodes, generator=rng) < 0.5
    members = torch.stack([members, ~members], 1).flatten(0, 1)
    logits = torch.randn(models, nodes, 3, generator=rng)
    everything = membership.Models(
        logits, members, torch.arange(nodes) % 3, torch.arange(nodes), torch.arange(0, nodes, 4)
    )
    changed = logits.clone()
    changed[1] += 5 * torch.randn(nodes, 3, generator=rng)
    other = everything._replace(logits=changed)
    for attack in ("lira-online", "lira-offline", "loss", "rmia"):
        for first, second in zip(
            membership.scores(everything, 0, attack), membership.scores(other, 0, attack), strict=True
        ):
            assert torch.equal(first, second)
        assert not torch.equal(membership.scores(everything, 1, attack)[0], membership.scores(other, 1, attack)[0])


def test_pairs_share_out_the_candidates() -> None:
    candidates = torch.tensor([1, 4, 5, 7])
    members = membership.complementary_members(candidates, 9, 3, derive(0, "members"))
    assert members.shape == (6, 9)
    assert bool((members[0::2] ^ members[1::2])[:, candidates].all()) and bool((members.sum(1) == 2).all())
    assert not bool(members[:, 0].any())


def test_rates_without_enough_others_are_refused() -> None:
    with pytest.raises(FglauditError, match="at least 1000 non-members; got 500"):
        membership.figures(torch.rand(50), torch.rand(500))


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "CASES", {"all": membership.Case(0.0, 4, ("loss", "lira-online"))})
    short = EnsembleSettings(hidden=2, steps=1)
    membership.run(tmp_path, None, "csbm-cora", short)
    table = Table(tmp_path / "membership.csv", membership.KEY, membership.VALUES)
    assert len(table.rows()) == 8
    assert "<polyline" in (tmp_path / "membership-roc.svg").read_text()
    before = table.path.read_bytes()
    monkeypatch.setattr(membership, "train", None)  # nothing is left to train
    membership.run(tmp_path, None, "csbm-cora", short)
    assert table.path.read_bytes() == before
    lines = list(membership.lines(table))
    assert len(lines) == 2 and "4 targets auc" in lines[0]


def test_the_figure_lies_within_its_axes() -> None:
    figure = draw({"one": [(1e-3, 0.0), (1.0, 1.0)]}, "title")
    assert 'points="60.0,360.0 380.0,40.0"' in figure
