"""Defenses of other authors whose facts are not so: no report may call them "held"."""

from __future__ import annotations

import pytest
import torch

from bench.obfuscation.measure import measured
from bench.redteam.hostile_facts import HONEST, KINDS, Untrue
from fglaudit.attacking import adapted, run_attacks
from fglaudit.facts import Additive, Field
from fglaudit.facts.residuals import Spending
from fglaudit.finding import Finding
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.scoring.score import score
from fglaudit.testing import example_graph
from fglaudit.wire.observing.draw_collisions import bits_alike, fixed_bits, more_often
from fglaudit.wire.observing.observed import Observed


def finding(kind: str, seed: int = 0, key: bytes = b"") -> Finding:
    defense = Untrue(kind, std=2.0 if "roundings" in kind else 50.0)  # most of these values are rounded down to 0 at 50
    recording, truth = record_training(example_graph(), FedGCN(hops=1, rounds=1), defense, seed=seed, key=key)
    server = ObserverSpec(("server",), topology=True)
    return score(run_attacks(recording, [server], [build("attack", "server-partial-sums", {})]), truth)[0].finding


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_so_is_never_held(kind: str) -> None:
    row = finding(kind)
    assert "Unstated" in row.adapted and not row.can_reassure


@pytest.mark.parametrize("kind", HONEST)
def test_answers_that_are_drawn_afresh_are_believed(kind: str) -> None:
    for seed in range(5):
        assert "Unstated" not in finding(kind, seed).adapted
    assert "Unstated" not in finding(kind, 0, key=b"k" * 16).adapted, "in a run with --secret"


def test_a_fact_about_a_payload_that_is_never_sent_accuses_nobody() -> None:
    recorded = Untrue("idle-noise", on="Jacobians")
    _, truth = record_training(example_graph(), FedGCN(hops=1, rounds=1), recorded, seed=0)
    assert truth.unstated == ()


def test_facts_stay_what_they_first_were() -> None:
    session = Untrue("edited").bind(FedGCN(hops=1, rounds=1).context(example_graph()))
    observed = Observed(session)
    assert observed.facts == (Additive(Field("NeighborSums", "", "up"), "gaussian", 0.0),)
    (fact,) = session.facts()
    object.__setattr__(fact, "scale", 5.0)
    assert observed.facts == (Additive(Field("NeighborSums", "", "up"), "gaussian", 0.0),)


@pytest.mark.parametrize("scale", [0.5, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("values", ["zeros", "ones", "binary", "normal"])
def test_last_bits_of_honest_noise_are_as_good_as_thrown(scale: float, values: str) -> None:
    rng = derive(0, "last bits", values, str(scale))
    drawn = torch.randn(400, 50, generator=rng)
    plain = {"zeros": 0 * drawn, "ones": torch.ones_like(drawn), "binary": (drawn > 0).float()}.get(values, drawn)
    one, other = (plain + scale * torch.randn(plain.shape, generator=rng) for _ in range(2))
    assert bits_alike(one, other, scale, Spending()) is None
    secret = (torch.rand(plain.shape, generator=rng) < 0.2).int()
    one, other = (((t.view(torch.int32) & ~1) | secret).view(torch.float32) for t in (one, other))
    assert bits_alike(one, other, scale, Spending()) is not None


def test_one_number_whose_last_bit_is_fixed_shows_among_many() -> None:
    rng = derive(0, "fixed bit")
    noise = torch.randn(400, 2, 5, 30, generator=rng)
    honest = 1.0 + noise[:, 0]
    in_parts = (1.0 + 0.6 * noise[:, 0]) + 0.4 * noise[:, 1]
    for draws in (honest, in_parts):
        assert fixed_bits(list(draws), 1.0, 0.0, Spending()) is None
    moved = 1.0 + 0.02 * (noise[:, 0] - 35.0)  # most of 1 is cancelled, and the last bits with it
    assert fixed_bits(list(moved), 0.02, 1.0, Spending()) is None
    assert fixed_bits(list(moved), 0.02, 0.0, Spending()) is not None
    moved[:, 2, 3] = (moved[:, 2, 3].contiguous().view(torch.int32) | 8).view(torch.float32)
    assert fixed_bits(list(moved), 0.02, 1.0, Spending()) is not None
    honest[:, 2, 3] = (honest[:, 2, 3].contiguous().view(torch.int32) | 1).view(torch.float32)
    assert fixed_bits(list(honest), 1.0, 0.0, Spending()) is not None


def test_chance_is_allowed_for_and_more_than_chance_is_not() -> None:
    rng = derive(0, "alike")
    chance = torch.full((2000,), 0.3)
    spending = Spending()
    assert not any(more_often(torch.rand(2000, generator=rng) < chance, chance, spending) for _ in range(200))
    assert more_often(torch.rand(2000, generator=rng) < 0.4, chance, spending)
    assert more_often(torch.ones(200, dtype=torch.bool), torch.full((200,), 0.8), spending)


@pytest.mark.parametrize("kind", ["idle-noise", "later"])
def test_rows_behind_noise_that_is_never_added_are_read(kind: str) -> None:
    row = measured(example_graph(), Untrue(kind), build("attack", "learned-inversion", {}), 0.3)
    assert row.exact_rate == 1.0


def test_no_attack_is_adapted_to_noise_that_begins_late() -> None:
    attack = build("attack", "sparse-recovery", {})
    noise = Additive(Field("Latents", "", "up", since=1), "gaussian", 1.0)
    late = Additive(Field("Latents", "", "up", since=2), "gaussian", 1.0)
    assert adapted(attack, [noise]) == "yes" and adapted(attack, [late]) == "no: Additive"
