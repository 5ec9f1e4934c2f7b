"""Intervals of an AUC: positives and negatives are both a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scored_runs import inferred
from torch import Tensor

from fglaudit.attacks.models.loss_threshold import LossThreshold
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Inference
from fglaudit.quantities.base import Attempt, Excess, Question
from fglaudit.quantities.negatives import Negatives
from fglaudit.quantities.ranking import against, placements
from fglaudit.rng import derive
from fglaudit.scoring.clusters import PairedClusters
from fglaudit.scoring.metrics import clusters_of, metric_interval, read_clusters
from fglaudit.scoring.scores import GAINED, LOST, jackknife_error
from fglaudit.scoring.selftest import standard_error


@dataclass(frozen=True)
class Drawn:
    """Scores of positives and negatives, each in one of some clusters."""

    positive: Tensor
    negative: Tensor
    clusters: Tensor
    others: Tensor

    @staticmethod
    def of(rng: torch.Generator, positives: int, negatives: int, clusters: int, shift: float = 0.0) -> Drawn:
        return Drawn(
            torch.randn(positives, generator=rng, dtype=torch.double) + shift,
            torch.randn(negatives, generator=rng, dtype=torch.double),
            torch.randint(clusters, (positives,), generator=rng),
            torch.randint(clusters, (negatives,), generator=rng),
        )

    def sides(self) -> tuple[Negatives, Negatives]:
        found = against(self.positive, self.negative, self.others)
        return found, found._replace(values=torch.full_like(found.values, 0.5))

    def paired(self, *, both: bool = True) -> PairedClusters:
        values = placements(self.positive, self.negative)
        control = torch.full_like(values, 0.5)
        return clusters_of("auc", self.clusters, values, control, self.sides() if both else None)


def test_without_clusters_the_error_is_delongs() -> None:
    drawn = Drawn.of(derive(0, "delong"), 300, 80, 1, shift=0.7)
    alone = Drawn(drawn.positive, drawn.negative, torch.arange(300), 300 + torch.arange(80))
    paired = alone.paired()
    assert paired.against is not None and len(paired.targets) == 380 and paired.count == 80
    net = paired.gained - paired.lost + paired.against[:, GAINED] - paired.against[:, LOST]
    upper, lower = placements(drawn.positive, drawn.negative), placements(drawn.negative, drawn.positive)
    expected = (upper.var().item() / 300 + lower.var().item() / 80) ** 0.5
    assert jackknife_error(paired, net) / 2 == pytest.approx(expected, rel=0.01)  # the control leaves one half
    assert jackknife_error(paired, paired.gained - paired.lost) / 2 < 0.8 * expected


def test_the_errors_of_self_tests_count_negatives() -> None:
    drawn = Drawn.of(derive(1, "delong"), 300, 80, 1)
    values, found = placements(drawn.positive, drawn.negative), drawn.sides()[0]
    found = found._replace(clusters=300 + torch.arange(80))
    expected = (values.var().item() / 300 + found.values.var().item() / 80) ** 0.5
    assert standard_error(Excess(values, torch.arange(300), found)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("positives", "negatives", "shift"), [(1000, 30, 0.0), (500, 100, 0.0), (800, 60, 0.5)])
def test_limits_hold_the_truth_where_negatives_are_few(positives: int, negatives: int, shift: float) -> None:
    """With the positives' error alone they hold it in a third to two thirds of the draws."""
    truth = 2 * float(torch.special.ndtr(torch.tensor(shift / 2**0.5))) - 1
    rng, held = derive(0, "coverage", positives), {True: 0, False: 0}
    for _ in range(100):
        drawn = Drawn.of(rng, positives, negatives, 10, shift)
        for both in held:
            found = metric_interval("auc", drawn.paired(both=both))
            assert found.low is not None and found.high is not None
            held[both] += found.low <= truth <= found.high
    assert held[True] >= 88 and held[False] <= 72


def test_a_ranking_within_one_cluster_says_what_it_said_before() -> None:
    """ "Each client in turn": an area per client, and clients are the clusters."""
    rng = derive(0, "each in turn")
    parts = [Drawn.of(rng, 20, 30, 1, shift=0.3) for _ in range(6)]
    values = [placements(part.positive, part.negative) for part in parts]
    joined = [Negatives.joined([p.sides()[side] for p in parts]) for side in (0, 1)]
    clusters = torch.arange(6)
    others = (joined[0]._replace(clusters=clusters.repeat_interleave(30)), joined[1])
    control = torch.full((120,), 0.5, dtype=torch.double)
    whole = clusters_of("auc", clusters.repeat_interleave(20), torch.cat(values), control, others)
    plain = clusters_of("auc", clusters.repeat_interleave(20), torch.cat(values), control)
    both, alone = metric_interval("auc", whole), metric_interval("auc", plain)
    assert both.value == pytest.approx(alone.value)
    assert joined[0].moved(joined[0].values).view(6, 30).sum(1).abs().max() < 1e-9
    assert both.low == pytest.approx(alone.low, abs=0.02) and both.high == pytest.approx(alone.high, abs=0.02)


def test_rows_are_read_back_and_pooled() -> None:
    rng = derive(0, "rows")
    first, second = Drawn.of(rng, 90, 40, 8).paired(), Drawn.of(rng, 90, 40, 8).paired()
    again = read_clusters("auc", first.rows())
    assert {len(row) for row in first.rows()} == {8} and np.allclose(again.rows(), first.rows())
    apart = PairedClusters.pool([first.rows(), second.rows()], ["a", "b"])
    assert apart is not None and apart.count == first.count + second.count
    same = PairedClusters.pool([first.rows(), second.rows()], ["a", "a"])
    assert same is not None and np.allclose(same.targets, first.targets + second.targets)
    plain = Drawn.of(rng, 90, 40, 8).paired(both=False)
    assert PairedClusters.pool([first.rows(), plain.rows()], ["a", "b"]) is None
    with pytest.raises(FglauditError, match="got 7 numbers; run the cell again"):
        PairedClusters.from_rows([[1.0] * 7])


def test_few_clusters_of_negatives_are_too_few_parties() -> None:
    drawn = Drawn.of(derive(0, "few"), 200, 50, 10)
    few = Drawn(drawn.positive, drawn.negative, drawn.clusters, drawn.others % 3)
    assert metric_interval("auc", few.paired()).kind == "range"


@dataclass(frozen=True)
class Diverged(LossThreshold):
    """An attack whose scores are no numbers."""

    name: ClassVar[str] = "diverged"


def test_estimates_that_are_no_numbers_are_refused() -> None:
    """A ranking would put them above all others."""
    nodes = torch.arange(20)
    question = Question(nodes, (nodes % 2).double(), nodes // 4)
    kind: Any = inferred("training-membership")
    view: Any = None
    guess = Inference("training-membership", nodes, torch.zeros(20, dtype=torch.double))
    odd = Inference("training-membership", nodes, torch.full((20,), float("nan")))
    with pytest.raises(FglauditError, match="20 of 20 that diverged gave are not"):
        kind.compare(Diverged(), [Attempt(view, question, odd, guess)])
    low = Inference("training-membership", nodes, torch.full((20,), float("-inf")))
    assert kind.compare(Diverged(), [Attempt(view, question, low, guess)]).values.mean() == 0.5
