"""One-run audits of whole trainings: noise that is missing in training is seen, honest noise is not accused."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.empirical.whole_training import whole_training_audit
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, Outcome
from fglaudit.privacy.accounted import Accounted, Noised
from fglaudit.privacy.accounting import Relation, compose, epsilon_of, event_of
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import CPU, example_graph

PROTOCOL = FedGCN(hops=1, rounds=1, aggregate="counts")
WIDE = example_graph(features=256)


def stated(epsilon: float, unit: str = "node") -> Accounted:
    """An account of sums that says ``epsilon``."""
    event = compose(event_of("gaussian", _multiplier(epsilon)), 1)
    noise = (Noised("NeighborSums", False, "gaussian", _multiplier(epsilon), 1.0, 1),)
    return Accounted(epsilon, 1e-5, unit, Relation.ZERO_OUT, event, noise)


def _multiplier(epsilon: float) -> float:
    low, high = 0.01, 100.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        above = epsilon_of(event_of("gaussian", middle), 1e-5, Relation.ZERO_OUT) > epsilon
        low, high = (middle, high) if above else (low, middle)
    return high


def audit(true: float, said: float, graph: FederatedGraph = WIDE, seed: int = 0) -> Audit:
    return whole_training_audit(PROTOCOL, graph, Gaussian(epsilon=true), stated(said), seed=seed, device=CPU)


def test_a_training_nearly_without_noise_is_seen() -> None:
    found = audit(5000.0, 1.0)
    assert found.outcome is Outcome.REFUTED, found
    assert found.p_value is not None and found.p_value <= 1e-5


def test_calibrated_noise_is_not_accused() -> None:
    for seed in range(3):
        found = audit(1.0, 1.0, seed=seed)
        assert found.outcome is Outcome.PASSED and found.p_value is not None and found.p_value > 1e-3, found


def test_what_it_is_not_for_it_says() -> None:
    samples = dataclasses.replace(WIDE, x=WIDE.x.unsqueeze(1))
    for graph, unit in ((samples, "node"), (WIDE, "client")):
        found = whole_training_audit(PROTOCOL, graph, Gaussian(), stated(1.0, unit), seed=0, device=CPU)
        assert found.outcome is Outcome.UNTESTED and "one per node" in found.detail


def test_the_graph_is_left_as_it_was() -> None:
    before = WIDE.x.clone()
    audit(1.0, 1.0)
    assert torch.equal(WIDE.x, before)
