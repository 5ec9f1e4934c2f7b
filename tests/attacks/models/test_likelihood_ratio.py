"""Scores of membership against the formulas written out, one number at a time."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean

import pytest
import torch

from fglaudit.attacks.models.likelihood_ratio import offline_score, online_score, relative_score, scaled_confidence
from fglaudit.errors import FglauditError
from fglaudit.quantities.ranking import enough_negatives, require_negatives

SHADOWS = torch.tensor([[3.0, 1.0], [5.0, 0.0], [0.0, 2.0], [2.0, 3.0]], dtype=torch.double)
MEMBERS = torch.tensor([[True, False], [True, False], [False, True], [False, True]])


def test_confidence_is_the_logit_of_the_probability() -> None:
    logits = torch.tensor([[[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]]])
    found = scaled_confidence(logits, torch.tensor([1, 0]))
    for row, label, value in zip(logits[0], (1, 0), found[0], strict=True):
        chance = float(row.double().softmax(0)[label].item())
        assert float(value.item()) == pytest.approx(math.log(chance / (1 - chance)))
    assert bool(scaled_confidence(torch.tensor([[1e4, 0.0]]), torch.tensor([1])).isfinite().all())


def test_online_ratio_by_hand() -> None:
    """Node 0: 4 with it, 1 without; node 1: 2.5 and 0.5; pooled variances (2 + 0.5) / 2 and (2 + 0.5) / 2."""
    target = torch.tensor([4.0, 0.0], dtype=torch.double)
    spread = math.sqrt(1.25)
    means = ((4.0, 1.0), (2.5, 0.5))
    for node, (found, (with_it, without)) in enumerate(
        zip(online_score(target, SHADOWS, MEMBERS).tolist(), means, strict=True)
    ):
        value = float(target[node].item())
        ratio = NormalDist(with_it, spread).pdf(value) / NormalDist(without, spread).pdf(value)
        assert found == pytest.approx(math.log(ratio))


def test_offline_score_orders_as_the_one_sided_probability() -> None:
    target = torch.tensor([4.0, 0.0], dtype=torch.double)
    found = offline_score(target, SHADOWS, MEMBERS).tolist()
    expected = [NormalDist(1.0, math.sqrt(1.25)).cdf(4.0), NormalDist(0.5, math.sqrt(1.25)).cdf(0.0)]
    assert [NormalDist().cdf(score) for score in found] == pytest.approx(expected)


def test_with_many_shadows_every_node_has_its_own_variance() -> None:
    spreads = torch.tensor([0.1, 10.0], dtype=torch.double)
    shadows = spreads * torch.randn(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    members = (torch.arange(400) % 2 == 0).unsqueeze(1).expand(-1, 2)
    target = torch.tensor([1.0, 1.0], dtype=torch.double)
    sure, unsure = offline_score(target, shadows, members).tolist()
    assert sure == pytest.approx(10, rel=0.2) and abs(unsure) < 0.5


def test_relative_score_by_hand() -> None:
    """Ratios of the population: 1, 2 and 4; of the nodes: 3 beats two of the three, 0.5 none, 4 ties with the last."""
    references = torch.tensor([[0.1, 0.2, 0.1], [0.3, 0.2, 0.1]]).log()
    target = torch.tensor([0.6, 0.1, 0.4]).log()
    population = torch.tensor([0.2, 0.4, 0.8]).log()
    population_references = torch.full((2, 3), 0.2).log()
    found = relative_score(target, references, population, population_references)
    ratios = [0.6 / 0.2, 0.1 / 0.2]
    expected = [fmean(float(ratio > z) for z in (1, 2, 4)) for ratio in ratios]
    assert found[:2].tolist() == pytest.approx(expected)
    assert 2 / 3 <= float(found[2].item()) <= 1


def test_rates_that_too_few_non_members_can_show_are_refused() -> None:
    assert enough_negatives(100, 0.01) and not enough_negatives(999, 0.001)
    with pytest.raises(FglauditError, match="at least 1000 non-members; got 999"):
        require_negatives(999, 0.001)
