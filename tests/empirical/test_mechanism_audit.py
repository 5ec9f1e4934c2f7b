"""A mechanism that stands alone: broken ones are refuted, honest ones are not, and what was not tested says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from torch import Tensor

from fglaudit.cli import main
from fglaudit.empirical.mechanisms import audit
from fglaudit.empirical.mechanisms.audit import MechanismAudit, Promise, audit_mechanism
from fglaudit.empirical.mechanisms.calls import AuditedMechanism
from fglaudit.empirical.mechanisms.inputs import Inputs, Norm, Values
from fglaudit.errors import FglauditError
from fglaudit.guarantees import Outcome
from fglaudit.privacy.accounting import Relation

FEW = Inputs(columns=4)
SUMMED = Inputs(columns=4, rows=10)
VOTES = Inputs(columns=4, rows=20, values=Values.CLASS)
SCORES = Inputs(norm=Norm.LINF, bound=0.5)
SIGMA = 2 * dp_accounting.get_sigma_gaussian(2.0, 1e-5)
"""Noise for epsilon 2 at delta 1e-5 on rows of norm 1, any of which may stand in the place of another."""


def gaussian(x: Tensor, rng: torch.Generator, std: float = SIGMA) -> Tensor:
    return x + std * torch.randn(x.shape, generator=rng)


def laplace(x: Any, rng: np.random.Generator, scale: float = 2.0) -> Any:
    return x + rng.laplace(scale=scale, size=x.shape)


def response(x: Any, rng: np.random.Generator) -> Any:
    """Four classes at epsilon 1."""
    return x if rng.random() < math.e / (math.e + 3) else (x + rng.integers(1, 4)) % 4


def sometimes_bare(x: Tensor, rng: torch.Generator) -> Tensor:
    return x if float(torch.rand((), generator=rng)) < 0.1 else gaussian(x, rng, 10.0)


def only_what_is_there(x: Tensor) -> Tensor:
    return torch.zeros(int((x != 0).sum()))


def noisy_sum(x: Tensor, rng: torch.Generator) -> Tensor:
    """Of rows of norm 1: one that comes or goes moves it by 1."""
    return gaussian(x.sum(0), rng, SIGMA / 2)


def rounded_noise(x: Tensor, rng: torch.Generator) -> Tensor:
    """What is left over of an answer in steps of the noise is the input's."""
    noise: Tensor = 0.01 * (SIGMA * torch.randn(x.shape, generator=rng, dtype=torch.float64) / 0.01).round()
    return x + noise


def rounded_answer(x: Tensor, rng: torch.Generator) -> Tensor:
    rounded: Tensor = 0.01 * (gaussian(x, rng) / 0.01).round()
    return rounded


def one_of_few_seeds(x: Tensor, rng: torch.Generator) -> Tensor:
    seed = int(torch.randint(500, (), generator=rng))
    return gaussian(x, torch.Generator().manual_seed(seed))


def short_rows_bare(x: Tensor, rng: torch.Generator) -> Tensor:
    return x if 0 < float(x.norm()) < 0.6 else gaussian(x, rng)


def last_row_bare(x: Tensor, rng: torch.Generator) -> Tensor:
    return torch.cat([gaussian(x.sum(0), rng), x[-1]])


def fourth_row_bare(x: Tensor, rng: torch.Generator) -> Tensor:
    return torch.cat([gaussian(x.sum(0), rng), x[3]])


def clipped_at_the_longest(x: Tensor, rng: torch.Generator) -> Tensor:
    return gaussian(x.sum(0), rng, SIGMA * float(x.norm(dim=1).max()))


def clipped_at_the_median(x: Tensor, rng: torch.Generator) -> Tensor:
    lengths = x.norm(dim=1, keepdim=True)
    median = float(lengths.median())
    return gaussian((x * (median / lengths.clamp(min=1e-9)).clamp(max=1)).sum(0), rng, SIGMA * median)


def counts(x: Any) -> Any:
    return np.bincount(x, minlength=4)


def noisy_counts(x: Any, rng: np.random.Generator) -> Any:
    return counts(x) + rng.laplace(scale=2.0, size=4)


def keys_that_are_there(x: Any, rng: np.random.Generator) -> Any:
    there = counts(x).nonzero()[0]
    return [*there, *noisy_counts(x, rng)[there]]


def suppressed_below_three(x: Any, rng: np.random.Generator) -> Any:
    return np.where(counts(x) < 3, 0, noisy_counts(x, rng))


def noisy_maximum(x: Any, rng: np.random.Generator) -> Any:
    return int((x + rng.exponential(2.0, x.shape)).argmax())


def maximum_with_scores(x: Any, rng: np.random.Generator) -> Any:
    noisy = x + rng.laplace(scale=2.0, size=x.shape)
    return [int(noisy.argmax()), *np.sort(noisy)]


class OneDraw:
    """Draws its noise once, for all calls."""

    def __init__(self) -> None:
        self.noise: Tensor | None = None

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        if self.noise is None:
            self.noise = SIGMA * torch.randn(x.shape, generator=rng)
        return x + self.noise


NUMPY = (
    *(laplace, response, noisy_counts, keys_that_are_there, suppressed_below_three),
    *(noisy_maximum, maximum_with_scores),
)


class Apart(OneDraw):
    """Halves what it sends of the row in the second call, under the same noise: the difference has none."""

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        first = self.noise is None
        sent = super().__call__(x, rng)
        return sent if first else sent - x / 2


def audited(made: Callable[..., Any], promise: Promise, inputs: Inputs = FEW, **more: Any) -> MechanismAudit:
    numpy = made in NUMPY or more.pop("numpy", False)
    return audit_mechanism(AuditedMechanism(made, numpy), promise, inputs, **{"replays": 2000, **more})


GAUSSIAN = Promise(2.0, 1e-5, gaussian=True)


@pytest.mark.parametrize(
    ("made", "promise", "inputs"),
    [
        (gaussian, GAUSSIAN, FEW),
        (gaussian, Promise(2.0, 1e-5), FEW),
        (laplace, Promise(1.0), Inputs(columns=4, norm=Norm.L1)),
        (response, Promise(1.0), Inputs(columns=4, values=Values.CLASS)),
        (noisy_sum, GAUSSIAN, Inputs(columns=4, rows=3, relation=Relation.ADD_OR_REMOVE)),
        (OneDraw, GAUSSIAN, FEW),
        (rounded_answer, GAUSSIAN, FEW),
        (noisy_counts, Promise(1.0), VOTES),
        (noisy_maximum, Promise(1.0), SCORES),
    ],
)
def test_honest_ones_are_not_refuted(made: Callable[..., Any], promise: Promise, inputs: Inputs) -> None:
    found = audited(made, promise, inputs)
    assert found.outcome is not Outcome.REFUTED and found.measured <= promise.epsilon
    assert not any("private" in line or "verified" in line for line in found.lines())


@pytest.mark.parametrize(
    ("made", "promise", "inputs"),
    [
        (lambda x, rng: gaussian(x, rng, SIGMA / 2), GAUSSIAN, FEW),
        (lambda x, rng: gaussian(x, rng, 0.2), Promise(2.0, 1e-5), FEW),
        (sometimes_bare, Promise(2.0, 1e-5), FEW),
        (only_what_is_there, Promise(4.0), FEW),
        (lambda x: x.sum(), Promise(4.0), FEW),
        (lambda x, rng: gaussian(x.sign(), rng), GAUSSIAN, FEW),  # one entry stays a norm of 1, all of them become 2
        (gaussian, GAUSSIAN, Inputs(columns=4, any_length=True)),  # it does not clip
        (noisy_sum, GAUSSIAN, Inputs(columns=4, rows=3)),  # replaced, a row moves it twice as far
        (rounded_noise, GAUSSIAN, FEW),
        (one_of_few_seeds, GAUSSIAN, FEW),
        (short_rows_bare, GAUSSIAN, FEW),
        (last_row_bare, GAUSSIAN, SUMMED),
        (fourth_row_bare, GAUSSIAN, SUMMED),
        (clipped_at_the_longest, GAUSSIAN, SUMMED),
        (clipped_at_the_median, GAUSSIAN, SUMMED),
        (keys_that_are_there, Promise(1.0), VOTES),
        (suppressed_below_three, Promise(1.0), VOTES),
        (maximum_with_scores, Promise(1.0), SCORES),
    ],
)
def test_broken_ones_are_refuted(made: Callable[..., Any], promise: Promise, inputs: Inputs) -> None:
    found = audited(made, promise, inputs)
    assert found.outcome is Outcome.REFUTED and found.p_value <= 1e-5
    assert found.lines()[0].startswith("REFUTED") and "hits" in found.lines()[1]


def test_laplace_noise_for_one_norm_is_refuted_for_another() -> None:
    """Rows of Euclidean norm 1 have an L1 norm of up to 4 in 16 columns."""
    assert audited(laplace, Promise(1.0), Inputs(norm=Norm.L2), replays=6000).outcome is Outcome.REFUTED


def test_calls_are_promised_together() -> None:
    """One draw for all of them tells as much as one call."""
    often, one_draw = (audited(made, GAUSSIAN, releases=8, replays=400) for made in (gaussian, OneDraw))
    assert often.outcome is Outcome.REFUTED and one_draw.outcome is not Outcome.REFUTED
    assert audited(Apart, GAUSSIAN, releases=2, replays=200).outcome is Outcome.REFUTED


def test_what_too_few_replays_cannot_refute_is_not_tested() -> None:
    found = audited(lambda x: torch.zeros(3), Promise(8.0), replays=200)
    assert found.outcome is Outcome.UNTESTED and found.tests == 0
    assert "--replays" in found.lines()[1] and found.largest < 8.0


def test_the_same_seed_gives_the_same_answer() -> None:
    first, second = (audited(gaussian, GAUSSIAN, replays=400) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda x: "words", "with numbers"),
        (lambda x: {"sums": x}, "a dict"),
        (lambda: 0, "second parameter"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_is_no_mechanism_is_refused(made: Callable[..., Any], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        audited(made, GAUSSIAN)


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        main(["audit-mechanism", *arguments])
    except SystemExit as stopped:
        return int(stopped.code or 0), "".join(capsys.readouterr())
    return 0, "".join(capsys.readouterr())


SOURCE = """
import torch

def noise(x, rng):
    return x + 50 * torch.randn(x.shape, generator=rng)

def bare(x):
    return x
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    few = ("--columns", "4", "--replays", "800")
    code, said = called(capsys, f"{path}:noise", "--epsilon", "1", *few)
    assert code == 0 and "NOT REFUTED: epsilon 1" in said
    code, said = called(capsys, f"{path}:bare", "--epsilon", "1", *few)
    assert code == 3 and "REFUTED: epsilon 1" in said
    assert called(capsys, f"{path}:noise", "--epsilon", "50", *few)[0] == 1
    for wrong, fix in (
        ((f"{path}:nois", "--epsilon", "1"), "did you mean 'noise'"),
        (("mine", "--epsilon", "1"), "file.py:name"),
        ((f"{path}:noise", "--epsilon", "0"), "positive"),
        ((f"{path}:noise", "--epsilon", "1", "--norm", "l3"), "known: l1, l2, linf"),
        ((f"{path}:noise", "--epsilon", "1", "--gaussian"), "delta"),
        ((f"{path}:noise", "--epsilon", "1", "--relation", "added or removed"), "--rows"),
        ((f"{path}:noise", "--epsilon", "1", "--values", "class", "--columns", "1"), "--columns"),
        ((f"{path}:noise", "--epsilon", "1", "--replays", "3"), "--replays"),
        (("no.such.module:noise", "--epsilon", "1"), "ModuleNotFoundError"),
    ):
        code, said = called(capsys, *wrong)
        assert code == 2 and fix in said and "Traceback" not in said, said


def test_how_long_it_takes_is_said_before_anything_is_replayed_and_changes_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It worked for minutes without a word of how many."""
    monkeypatch.setattr(audit, "TRIAL", 200)
    told: list[str] = []
    promise = Promise(1.0, 1e-5, gaussian=True)
    found = audit_mechanism(AuditedMechanism(gaussian), promise, Inputs(2), replays=400, progress=told.append)
    assert told[0].startswith("up to about ") and "200 of 400 replays on one of " in told[0]
    assert told[1].startswith("1 of ") and "left" not in told[1]
    assert all(" left" in line for line in told[2:]) and len(told) == found.pairs + 1
    monkeypatch.setattr(audit, "TRIAL", 400)  # as many as are made: nothing is tried before
    again = audit_mechanism(AuditedMechanism(gaussian), promise, Inputs(2), replays=400, progress=told.append)
    assert again == found and told[found.pairs + 1].startswith("1 of ")
