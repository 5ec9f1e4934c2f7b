"""Tests of noise: quiet on noise as stated, loud on what is not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fglaudit.empirical.audits.noise_tests import (
    Found,
    across,
    along,
    in_fine_steps,
    in_steps,
    larger,
    light_tails,
    signs_of,
    standardised,
    too_small,
    turned,
    wrong_shape,
)
from fglaudit.rng import derive

SHAPE = (16, 4, 6, 20)


def _noise(seed: int = 0) -> Tensor:
    return torch.randn(SHAPE, generator=derive(seed, "noise"), dtype=torch.float64)


def all_tests(z: Tensor) -> list[Found]:
    """Return the tests of ``z`` [G, T, S, D]."""
    return [*too_small(z), *wrong_shape(z), *(found for axis in range(4) for found in along(z, axis)), *turned(z)]


@pytest.mark.parametrize("distribution", ["gaussian", "laplace", "laplace-difference", "uniform"])
def test_noise_as_stated(distribution: str) -> None:
    worst = 1.0
    for seed in range(5):
        u = torch.rand((2, *SHAPE), generator=derive(seed, "uniform"), dtype=torch.float64)
        laplace = -torch.sign(u - 0.5) * torch.log1p(-2 * (u - 0.5).abs())
        drawn = {
            "gaussian": _noise(seed),
            "laplace": laplace[0],
            "laplace-difference": laplace[0] - laplace[1],
            "uniform": 2 * u[0] - 1,
        }[distribution]
        z = standardised(3 * drawn, distribution, 3.0)
        assert z is not None
        worst = min(worst, *(found.p for found in all_tests(z)))
    assert worst > 1e-5  # of some 100 tests


def _shared(axis: int) -> Callable[[Tensor], Tensor]:
    def share(z: Tensor) -> Tensor:
        return z.narrow(axis, 0, 1).expand_as(z).clone()

    return share


def _rolled(z: Tensor) -> Tensor:
    return torch.stack([z[:, 0].roll(t, -1) for t in range(z.shape[1])], 1)


def _bare_sender(z: Tensor) -> Tensor:
    z = z.clone()
    z[:, :, 2] = 0
    return z


def _same_size(z: Tensor) -> Tensor:
    signs = torch.sign(torch.randn(z.shape, generator=derive(1, "signs")))
    return z[:, :1].abs() * signs


def _turned(z: Tensor) -> Tensor:
    """The last release has the first one's numbers under a rotation of all of them together."""
    z, flat = z.clone(), z[:, 0].flatten(1)
    turn = torch.linalg.qr(torch.randn(2 * (flat.shape[1],), generator=derive(1, "turn"), dtype=torch.float64))[0]
    z[:, -1] = (flat @ turn).view(z[:, 0].shape)
    return z


def _turned_senders(z: Tensor) -> Tensor:
    """A sender has another's numbers, under one rotation in all releases."""
    z, turn = z.clone(), torch.linalg.qr(torch.randn(20, 20, generator=derive(1, "turn"), dtype=torch.float64))[0]
    z[:, :, 4] = z[:, :, 1] @ turn
    return z


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "too small": lambda z: z / 1.5,
    "one sender bare": _bare_sender,
    "shared by releases": _shared(1),
    "shared by senders": _shared(2),
    "shared by numbers": _shared(3),
    "same size, other sign": _same_size,
    "a small part in common": lambda z: math.sqrt(0.8) * z + math.sqrt(0.2) * z[:, :, :1],
    "cancels over senders": lambda z: (z - z.mean(2, keepdim=True)) * math.sqrt(6 / 5),
    "rolled on": _rolled,
    "turned": _turned,
    "turned senders": _turned_senders,
    "cut": lambda z: z.clamp(-2, 2),
    "two values": torch.sign,
    "sparse": lambda z: z * (torch.rand(z.shape, generator=derive(1, "there")) < 0.1) * math.sqrt(10),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    found = min(all_tests(FAULTS[name](_noise())), key=lambda each: each.p)
    assert found.p < 1e-8 and found.words


def test_noise_in_steps() -> None:
    z = _noise()
    assert in_steps(z.float().double(), 2.0**-22).p > 1e-4
    assert in_steps((1000 * z).round() / 1000, 2.0**-22).p < 1e-8


def test_two_mechanisms() -> None:
    first, second = _noise(0), _noise(1)
    assert all(found.p > 1e-4 for found in across(first, second, ("a", "b")))
    assert min(found.p for found in across(first, first, ("a", "b"))) < 1e-8
    assert min(found.p for found in across(_turned(first)[:, :1], _turned(first)[:, -1:], ("a", "b"))) < 1e-8


def test_an_unknown_distribution_has_no_test() -> None:
    assert standardised(_noise(), "cauchy", 1.0) is None


def test_sums_of_twelve_uniform_numbers_have_lighter_tails() -> None:
    parts = torch.rand((12, 2**17), generator=derive(0, "twelve"), dtype=torch.float64) - 0.5
    assert light_tails(parts.sum(0)).p < 1e-7
    normal = torch.randn((200, 1000), generator=derive(0, "normal"), dtype=torch.float64)
    assert min(light_tails(each).p for each in normal) > 1e-4


def _sizes(name: str) -> Tensor:
    """How many times as large as stated independent noise is, [G, T, S, D] or broadcast."""
    shape = _noise().shape
    return {
        "all": torch.tensor(1.5),
        "every second sender": 1.0 + (torch.arange(shape[2]) % 2)[:, None],
        "the first number": 1.0 + 2.0 * (torch.arange(shape[3]) == 0),
        "now and then": 1.0 + 2.0 * (torch.rand(shape, generator=derive(2, "more")) < 0.5),
    }[name]


@pytest.mark.parametrize("name", ["all", "every second sender", "the first number", "now and then"])
def test_more_noise_than_stated_breaks_nothing(name: str) -> None:
    z = _sizes(name) * _noise()
    assert larger(z) and not larger(_noise()) and not larger(0.9 * _noise())
    found = [*too_small(z), *wrong_shape(z), in_steps(z, 2.0**-22)]
    signs = signs_of(z, derive(3, "signs"))
    found += [each for axis in range(4) for each in along(signs, axis)]
    assert min(each.p for each in found) > 1e-5


def test_noise_with_more_variance_may_still_be_broken() -> None:
    z = _noise()
    for broken in (2 * FAULTS["sparse"](z), 1.5 * FAULTS["two values"](z), 1.5 * FAULTS["cut"](z).clamp(-1.5, 1.5)):
        assert larger(broken) and min(each.p for each in wrong_shape(broken)) < 1e-8
    shared = signs_of(1.5 * FAULTS["a small part in common"](z), derive(3, "signs"))
    assert min(each.p for axis in range(4) for each in along(shared, axis)) < 1e-8


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_steps_that_are_finer_than_numbers_coincide(precision: torch.dtype) -> None:
    noise = torch.randn(2**16, generator=derive(0, "fine steps"), dtype=precision)
    resolution = 5 * 2.0**-23

    def sent(values: Tensor) -> Tensor:
        return values.to(torch.float32).double()

    assert in_fine_steps(sent(noise), resolution).p == 1.0
    for step in (2.0**-18, 2.0**-20, 7.3e-6):
        stepped = sent((noise.double() / step).round() * step)
        assert in_steps(stepped, resolution).p > 1e-5
        found = in_fine_steps(stepped, resolution)
        assert found.p < 1e-100 and "noise comes in steps of" in found.words
    assert in_fine_steps(sent(noise), 1e-3).p == 1.0, "of coarse numbers nothing is said"
