"""What is made of noisy values alone is told from noise that is smaller than stated, shared, missing or used again."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from bench.redteam.cases import FAMILIES
from bench.redteam.local_faults import BrokenGradients
from bench.redteam.planted import FAULTS, Broken, BrokenMessages, Planted
from fglaudit.empirical.audits.noise_first import noise_first
from fglaudit.empirical.audits.shared_draws import shares_draws, without_shared_draws
from fglaudit.empirical.replays.staging import Staged, clients_of, staged
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.from_facts import account
from fglaudit.privacy.mechanism import Mechanism
from fglaudit.testing import CPU, record


class Halved(BrokenMessages):
    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return 0.5 * (clipped + noise)


class Brought(BrokenMessages):
    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return torch.nn.functional.normalize(clipped + noise, dim=1)


class Tossed(BrokenMessages):
    """One coin for all messages of a release, which sets them to zero."""

    def release(self, batch: MessageBatch, rng: torch.Generator) -> object:  # type: ignore[override]
        sent = super().release(batch, rng).tensors()
        keep = torch.rand(1, generator=rng) < 0.5
        return type(batch.payload).from_tensors({n: v * keep if v.is_floating_point() else v for n, v in sent.items()})


@cache
def honest(family: str) -> tuple[FederatedProtocol, FederatedGraph, Defense, Accounted]:
    protocol, defense = FAMILIES[family].build()
    graph = FAMILIES[family].graph()
    context, counted = protocol.context(graph), record(protocol, graph, defense).channel.counted
    session = defense.bind(context)
    accounted = account(context, session.facts(), session.guarantee(), counted)
    assert isinstance(accounted, Accounted)
    return protocol, graph, defense, accounted


def prepared(fault: type[Broken], family: str = "latents") -> Staged:
    protocol, graph, defense, accounted = honest(family)
    return staged(protocol, graph, Planted(defense, fault), accounted, seed=0, device=CPU)


def first(fault: type[Broken], family: str = "latents") -> bool:
    protocol, graph, _, accounted = honest(family)
    return noise_first(prepared(fault, family), accounted.mechanisms, clients_of(protocol, graph), seed=0)


@pytest.mark.parametrize("fault", [BrokenMessages, Halved, Brought, Tossed])
def test_maps_of_noisy_values_are_told(fault: type[Broken]) -> None:
    assert first(fault)


@pytest.mark.parametrize(
    "fault",
    ["TooSmall", "UsedAgain", "HalfTheNumbers", "OneNumberForAll", "EverySecondRelease", "WholeSteps", "SeededByRound"],
)
def test_noise_that_is_not_as_stated_is_not_taken_for_it(fault: str) -> None:
    assert not first(FAULTS[fault])


@pytest.mark.parametrize("fault", ["NoClip", "EveryNumberClipped", "RootMeanSquareClip", "NoiseBeforeClip"])
def test_values_that_are_longer_than_stated_are_not_hidden_by_it(fault: str) -> None:
    assert not first(FAULTS[fault])


def test_noise_on_what_is_not_zero_alone_is_told() -> None:
    assert first(BrokenGradients, "gradients")
    assert not first(FAULTS["NoiseWhereGradients"], "gradients")


def test_replays_that_share_a_coin_refute_in_runs_of_their_own_alone() -> None:
    coins, plain = prepared(Tossed), prepared(BrokenMessages)
    assert shares_draws(coins, 0)
    assert not shares_draws(plain, 0)

    def refutes_side_by_side(stages: Staged) -> Audit:
        alone = all(stage.alone for each in stages.stages.values() for stage in each)
        return Audit(AuditName.TRADE_OFF, Outcome.PASSED if alone else Outcome.REFUTED, "")

    def outcome(stages: Staged) -> Outcome | None:
        found = without_shared_draws(refutes_side_by_side, stages, 0)
        return None if found is None else found.outcome

    assert outcome(coins) is Outcome.UNTESTED
    assert outcome(plain) is Outcome.REFUTED
