"""A sample of ``python -m bench redteam``: broken defenses are never verified, honest ones never refuted."""

from __future__ import annotations

import pytest

from bench.redteam.cases import CASES
from bench.redteam.measure import judged

BY_NAME = {case.name: case for case in CASES}
REFUTED = {
    "TooSmall latents": "trade-off",
    "SeededByValues sums-2": "dependence",
    "SomeSendersBare sums": "noise",
    "HubsBare rows": "noise",
    "FixedSizeSample sampled-gradients": "sampling",
    "KnownSample sampled-gradients": "sampling",
    "LongDrawnMore sampled-gradients": "sampling",
    "ClipOfTheLongest gradients": "clip",
    "HalfTheGain sums": "reach",
    "ServerAgain models": "dependence",
    "RowsSeeded bits": "reports",
    "SumOfUniform sums": "noise",
    "RedrawnBeyond sums": "noise",
    "EndsAtFour latents": "noise",
}
"""A case for every audit that refutes by itself."""
SLY = (
    "BareInLargeBatches sums",
    "BareUnlessAudited latents",
    "MissingWherePositive latents",
    "OrderTells sums",
    "EdgesByFeatures gradients",
    "PureByName sums",
    "StatesMoreAfterwards latents",
    "ScaleByOperation latents",
    "HashedSaidSampled latents",
    "GradientsHashed sampled-gradients",
    "KnownClients models",
    "TurnedReleases latents",
    "TurnedClients rows",
    "NoiseSumsToZero sums",
    "LiesTellOfRows class-reports",
    "PlacesTell bits-many",
    "PartsOfOthers latents",
    "BytesTell sums",
)
"""Those that behave where an audit looks, or tell by what nobody looks at."""
HONEST = ("honest latents", "honest models", "honest uploads", "honest gradients", "honest bits", "honest rows")


def test_as_many_as_were_to_be_planted() -> None:
    assert len(BY_NAME) == len(CASES), "every case has a name of its own"
    assert sum(case.broken for case in CASES) >= 40
    assert sum(not case.broken for case in CASES) >= 15


@pytest.mark.parametrize("name", REFUTED)
def test_broken_ones_are_refuted(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome == "refuted"
    assert REFUTED[name] in result.by


@pytest.mark.parametrize("name", SLY)
def test_sly_ones_are_not_verified(name: str) -> None:
    assert judged(BY_NAME[name], seed=0).outcome in ("refuted", "claimed")


def test_randomness_from_elsewhere_is_not_verified() -> None:
    result = judged(BY_NAME["FromTheSystem latents"], seed=0)
    assert result.outcome == "claimed"
    assert "foreign randomness" in result.by


@pytest.mark.parametrize("name", HONEST)
def test_honest_ones_are_verified(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome == "verified", result.detail
    assert result.power >= 0.9


@pytest.mark.parametrize("name", ["honest MoreNoise latents", "honest MoreForSome latents"])
def test_more_noise_than_stated_is_no_broken_promise(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome == "claimed"
    assert "noise larger than the stated scale" in result.detail


@pytest.mark.parametrize("name", ["honest Skellam latents", "honest RoundedSkellam latents"])
def test_whole_steps_of_noise_on_whole_steps_are_no_broken_promise(name: str) -> None:
    assert judged(BY_NAME[name], seed=0).outcome == "claimed"
