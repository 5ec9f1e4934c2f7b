"""Rows randomised before anything is computed from them: the laws of the mechanisms, and their settings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from randomised_rows import TRANSFORMER, bound
from stated_facts import stated
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.noise.local_features import LocalFeatures
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.errors import FglauditError
from fglaudit.facts import ROWS, Additive, Randomised, first
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.privacy.accounting import Relation, noise_multiplier
from fglaudit.privacy.mechanism import Distribution
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.rng import derive
from fglaudit.testing import example_graph

pytestmark = pytest.mark.filterwarnings("ignore:.*left the series' domain:UserWarning")


def std_of(session: DefenseSession) -> float:
    """Return the standard deviation of what the session adds to rows, as it states it."""
    return noise_of(session).std if first(session.facts(), Additive) else stated(session, Randomised).parameter("std")


def noise_of(session: DefenseSession) -> Additive:
    """Return the noise that the session states."""
    return stated(session, Additive, ROWS)


def reports(defense: Defense, rows: Tensor) -> Tensor:
    graph = example_graph(features=rows.shape[1])
    return bound(defense, graph).prepare(dataclasses.replace(graph.client(0), x=rows), derive(0, "rows")).x


def test_rows_of_no_number_are_reported_like_others() -> None:
    """A bit that NaN can never set to 1 would tell it from every row."""
    graph = example_graph(nodes=60)
    protocol, held = FedGCN(hops=1, rounds=1), graph.client(0)
    for defense in (MultiBit(epsilon=1.0), LocalFeatures(epsilon=1.0)):
        session = defense.bind(protocol.context(graph))
        odd = dataclasses.replace(held, x=torch.full_like(held.x, math.nan))
        sent = session.prepare(odd, derive(0, "rows")).x
        assert bool(sent.isfinite().all()) and bool((sent > 0).any()) and bool((sent < 0).any())


def chance(report: tuple[int, ...], row: tuple[float, ...], sampled: int, epsilon: float) -> float:
    """Probability of a report, by summing over the features that may have been drawn."""
    drawn = {i for i, value in enumerate(report) if value}
    if len(drawn) != sampled:
        return 0.0
    factor = math.exp(epsilon / sampled)
    bits = [1 / (factor + 1) + row[i] * (factor - 1) / (factor + 1) for i in sorted(drawn)]
    product = math.prod(bit if report[i] > 0 else 1 - bit for i, bit in zip(sorted(drawn), bits, strict=True))
    return product / math.comb(len(row), sampled)


def test_multi_bit_is_private_by_enumeration_and_draws_from_that_law() -> None:
    epsilon, sampled = 1.5, 2
    everything = list(itertools.product((-1, 0, 1), repeat=3))
    rows = list(itertools.product((0.0, 0.5, 1.0), repeat=3))
    table = torch.tensor([[chance(report, row, sampled, epsilon) for report in everything] for row in rows]).double()
    assert torch.allclose(table.sum(1), torch.ones(len(rows), dtype=torch.double))
    possible = table[:, table[0] > 0]
    largest = (possible.unsqueeze(1) / possible.unsqueeze(0)).max().log()
    assert float(largest) == pytest.approx(epsilon)  # reached, and never exceeded
    row = (0.0, 0.5, 1.0)
    drawn = reports(MultiBit(epsilon=epsilon, sampled=sampled), torch.tensor(row).expand(200_000, 3))
    code = ((drawn.long() + 1) * torch.tensor([9, 3, 1])).sum(1)
    seen = torch.bincount(code, minlength=27).double() / len(drawn)
    assert float((seen - table[rows.index(row)]).abs().max()) < 0.005


def test_rectified_reports_are_unbiased() -> None:
    row = torch.tensor([-1.0, 0.0, 0.3, 1.0, 2.0])
    drawn = reports(MultiBit(epsilon=2.0, low=-1.0, high=1.0, sampled=2, rectified=True), row.expand(400_000, 5))
    torch.testing.assert_close(drawn.mean(0), row.clamp(-1, 1), atol=0.03, rtol=0)  # 2 is cut off
    session = bound(MultiBit(epsilon=2.0, low=-1.0, high=1.0, sampled=2, rectified=True), example_graph(features=5))
    assert float(drawn[:, 3].std()) == pytest.approx(std_of(session), rel=0.02)


def test_the_papers_number_of_features_is_sampled() -> None:
    for epsilon, expected in ((0.5, 1), (4.4, 2), (8.0, 3), (1e4, 24)):
        assert stated(bound(MultiBit(epsilon=epsilon)), Randomised).parameter("sampled_features") == expected


@pytest.mark.parametrize(("mechanism", "delta", "order"), [("laplace", 0.0, 1), ("gaussian", 1e-5, 2)])
def test_rows_are_clipped_and_get_the_stated_noise(mechanism: Distribution, delta: float, order: int) -> None:
    rows = 5 * torch.randn(4000, 24, generator=derive(0, "x"))
    defense = LocalFeatures(mechanism, epsilon=4.0, delta=delta, clip=0.5)
    noise = reports(defense, rows) - rows * (0.5 / rows.norm(p=order, dim=1, keepdim=True)).clamp(max=1)
    scale = noise_multiplier(mechanism, 4.0, delta, Relation.REPLACE) * 0.5
    assert noise_of(bound(defense)).scale == pytest.approx(scale)
    assert float(noise.std()) == pytest.approx(std_of(bound(defense)), rel=0.02)


def test_all_rows_of_a_node_share_the_budget() -> None:
    once = FedGCN().context(example_graph())
    twice = dataclasses.replace(once, rows_per_node=2)
    bits = stated(MultiBit(epsilon=8.0).bind(twice), Randomised)
    assert bits.parameter("bit_epsilon") == 4.0  # one feature of each row
    scale = [noise_of(LocalFeatures(epsilon=8.0).bind(context)).scale for context in (once, twice)]
    assert scale[1] == pytest.approx(2 * scale[0])
    masks = (torch.ones(40, dtype=torch.bool),) * 2
    halves = (torch.arange(40), torch.arange(20, 60))
    shared = dataclasses.replace(example_graph(), clients=halves, train=masks, val=masks, test=masks)
    assert FedGT(**TRANSFORMER).context(shared).rows_per_node == 2
    samples = dataclasses.replace(shared, x=torch.zeros(60, 5, 24))
    assert FedGT(**TRANSFORMER).context(samples).rows_per_node == 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiBit(epsilon=0.0), "epsilon must be positive"),
        (lambda: MultiBit(low=1.0, high=1.0), "low < high"),
        (lambda: MultiBit(sampled=-1), "at least 1"),
        (lambda: LocalFeatures("uniform"), "unknown mechanism"),  # type: ignore[arg-type]
        (lambda: LocalFeatures("gaussian"), "delta must lie strictly"),
        (lambda: LocalFeatures(clip=0.0), "clip must be positive"),
    ],
)
def test_meaningless_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        make()


def test_what_needs_no_protection_is_refused() -> None:
    nothing = MultiBit().unsupported(APPNP().context(example_graph()))
    assert nothing is not None and "sends nothing" in nothing
    wide = MultiBit(sampled=25).unsupported(Context("fedgcn", 1, 3, 24, ()))
    assert wide is not None and "cannot be sampled from 24" in wide
