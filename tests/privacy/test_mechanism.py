"""Clip, sensitivity and noise in one place: closed forms, laws of the noise, and mismatches that are refused."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kstest

from fglaudit.errors import FglauditError
from fglaudit.facts import ROWS, Clipped
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.mechanism import (
    NORMS,
    Distribution,
    Mechanism,
    calibrated,
    check_norm,
    clip_messages,
    clip_rows,
    draw,
    noise_fact,
)
from fglaudit.rng import derive


def test_clips() -> None:
    values = torch.tensor([[[3.0, -0.1], [0.2, 0.1]], [[0.1, 0.0], [-0.1, 0.1]]])
    assert torch.equal(clip_messages(values, 0.5, "elementwise")[0], torch.tensor([[0.5, -0.1], [0.2, 0.1]]))
    for norm, length in (("l1", 3.4), ("l2", math.sqrt(9.06))):
        scaled = clip_messages(values, 0.5, norm)
        assert torch.allclose(scaled[0], values[0] * 0.5 / length)
        assert torch.equal(scaled[1], values[1])
    rows = clip_rows(values, 0.5)
    assert torch.allclose(rows[0, 0], values[0, 0] * 0.5 / values[0, 0].norm()) and torch.equal(
        rows[0, 1], values[0, 1]
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("norm", ["l1", "l2", "elementwise"])
def test_what_is_not_finite_is_clipped_too(norm: str, bad: float) -> None:
    """Noise hides no NaN: a record chosen so that training overflows would show through it."""
    values = torch.tensor([[bad, 0.1], [0.1, 0.2]])
    clipped = clip_messages(values, 0.5, norm)
    assert bool(clipped.isfinite().all()) and float(clipped.abs().max()) <= 0.5
    assert torch.equal(clipped[1], values[1])
    assert Clipped(ROWS, "elementwise" if norm == "elementwise" else norm.upper(), 0.5).explains(values, clipped)


@pytest.mark.parametrize(("distribution", "law"), [("gaussian", "norm"), ("laplace", "laplace")])
def test_noise_has_its_law(distribution: Distribution, law: str) -> None:
    mechanism = Mechanism(distribution, NORMS[distribution], 0.5, Relation.REPLACE, 3.0, gain=2.0)
    assert (mechanism.sensitivity, mechanism.scale) == (2 * 2.0 * 0.5, 3.0 * 2.0 * 0.5)
    noise = mechanism.with_noise(torch.zeros(50, 2000, dtype=torch.float64), derive(0)).flatten()
    assert kstest(noise.numpy() / mechanism.scale, law).pvalue > 1e-3
    assert float(noise.std()) == pytest.approx(noise_fact(mechanism, ROWS).std, rel=0.02)


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_noise_is_drawn_in_double_precision(distribution: str) -> None:
    noise = draw(distribution, torch.Size([1000]), derive(0))
    assert noise.dtype is torch.float64 and not torch.equal(noise, noise.float().double())


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
@pytest.mark.parametrize("relation", list(Relation))
def test_what_is_calibrated_spends_its_budget(distribution: str, relation: Relation) -> None:
    mechanism = calibrated(distribution, 0.5, relation, epsilon=4.0, delta=1e-5, releases=10, gain=3.0)
    assert mechanism.epsilon(1e-5, 10) == pytest.approx(4.0, rel=1e-4) and mechanism.epsilon(1e-5, 10) <= 4.0
    assert mechanism.epsilon(1e-5, 20) > 4.0
    longer = calibrated(distribution, 1.0, relation, epsilon=4.0, delta=1e-5, releases=10, gain=1.5)
    assert longer.scale == pytest.approx(mechanism.scale)  # the same sensitivity
    once = calibrated(distribution, 0.5, Relation.ZERO_OUT, epsilon=4.0, delta=1e-5, releases=10, gain=3.0)
    assert mechanism.scale == pytest.approx(once.scale * relation.moves)


def test_every_coordinate_is_a_release_of_its_own_under_an_elementwise_clip() -> None:
    """FedGT's 2 delta / lambda is one coordinate's of one round."""
    mechanism = Mechanism("laplace", "elementwise", 0.002, Relation.REPLACE, 0.5)
    assert mechanism.scale == 0.001 and mechanism.epsilon(0.0, 1) == 4
    assert mechanism.epsilon(0.0, 100, coordinates=1280) == 512_000
    whole = Mechanism("laplace", "l1", 0.002, Relation.REPLACE, 0.5)
    assert whole.epsilon(0.0, 100, coordinates=1280) == 400
    gaussian = Mechanism("gaussian", "elementwise", 1.0, Relation.REPLACE, 30.0)
    joint = Mechanism(
        "gaussian", "l2", math.sqrt(5), Relation.REPLACE, 30.0 / math.sqrt(5)
    )  # the same noise, clipped as a whole
    assert gaussian.epsilon(1e-5, 4, coordinates=5) == pytest.approx(joint.epsilon(1e-5, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("laplace", "l2", 1.0, Relation.REPLACE, 1.0), "laplace noise hides distances in l1.*use norm: l1"),
        (("gaussian", "l1", 1.0, Relation.REPLACE, 1.0), "gaussian noise hides distances in l2"),
        (("uniform", "l1", 1.0, Relation.REPLACE, 1.0), "unknown mechanism 'uniform'"),
        (("laplace", "l3", 1.0, Relation.REPLACE, 1.0), "unknown norm 'l3'"),
        (("laplace", "l1", 0.0, Relation.REPLACE, 1.0), "clip must be positive"),
        (("laplace", "l1", math.nan, Relation.REPLACE, 1.0), "clip must be positive"),
        (("laplace", "l1", 1.0, Relation.REPLACE, 0.0), "multiplier .* must be positive"),
        (("laplace", "l1", 1.0, Relation.REPLACE, 1.0, math.inf), "gain .* must be positive and finite"),
        (("laplace", "elementwise", 1.0, Relation.REPLACE, 1.0, 2.0), "gain 2 with an elementwise clip"),
    ],
)
def test_mismatches_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        Mechanism(*arguments)  # type: ignore[arg-type]


def test_norms_serve_their_distribution() -> None:
    for distribution in NORMS:
        check_norm(distribution, NORMS[distribution])
        check_norm(distribution, "elementwise")
    with pytest.raises(FglauditError, match="unknown mechanism"):
        calibrated("exponential", 1.0, Relation.REPLACE, epsilon=1.0, delta=1e-5, releases=1)
