"""Defenses of other authors that state noise and hide nothing: no report may call them "held"."""

from __future__ import annotations

from typing import Any

import pytest

from bench.obfuscation.obfuscated import RULES, Obfuscated
from bench.redteam import hostile_plugins
from bench.redteam.hostile_plugins import HONEST, KINDS, MAPS, NOISE, Hostile
from fglaudit.attacking import run_attacks
from fglaudit.finding import Finding
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.recording import record_training
from fglaudit.registry import build
from fglaudit.scoring.score import score
from fglaudit.testing import example_graph

SERVER = ObserverSpec(("server",), topology=True)
CLIENT = ObserverSpec(("client:0",), degrees=True)
GT = {"similarity": "fedavg", "hidden": 32, "heads": 2, "feed_forward": 8, "neighbors": 3, "global_nodes": 4}
SMALL = {"encoding": 2, "candidates": 8, "rounds": 4, "dropout": 0.0}
CASES: dict[str, tuple[str, dict[str, Any], ObserverSpec, str, str, bool]] = {
    "sums": ("fedgcn", {"hops": 1, "rounds": 1}, SERVER, "server-partial-sums", "NeighborSums", False),
    "uploads": ("fedgat", {"variant": "vector", "rounds": 1}, SERVER, "raw-features", "RawFeatures", False),
    "vectors": ("fedgat", {"variant": "vector", "rounds": 1}, CLIENT, "vector-columns", "MaskedVectors", True),
    "global nodes": ("fedgt", GT | SMALL, SERVER, "one-node-clusters", "GlobalNodes", False),
}
"""Protocol, observer, attack, payload and whether the server sends it."""
REPEATED = ("honest-at-first", "undone-later", "earlier-values")
"""What only shows where a payload is sent again."""
ONCE = tuple(kind for kind in KINDS if kind not in REPEATED)


def finding(case: str, defense: Defense, seed: int = 0, key: bytes = b"") -> Finding:
    name, arguments, observer, attack, _, _ = CASES[case]
    protocol: FederatedProtocol = build("protocol", name, arguments)
    hostile_plugins.SESSIONS.clear()  # the first session of a setting is the one that is trained under
    recording, truth = record_training(example_graph(), protocol, defense, seed=seed, key=key)
    return score(run_attacks(recording, [observer], [build("attack", attack, {})]), truth)[0].finding


def hostile(case: str, kind: str, std: float = 5.0) -> Hostile:
    return Hostile(kind, CASES[case][4], std, CASES[case][5])


def test_at_least_twelve() -> None:
    assert len(KINDS) + len(RULES) >= 40


@pytest.mark.parametrize("kind", ONCE)
def test_sums_behind_it_are_never_held(kind: str) -> None:
    row = finding("sums", hostile("sums", kind))
    assert row.adapted.startswith("no: ") and not row.can_reassure


@pytest.mark.parametrize("kind", ["seeded-once", "seeded-by-values", "steps", "halves", "first-session", "rows-seeded"])
@pytest.mark.parametrize("case", ["uploads", "vectors"])
def test_fedgat_behind_it_is_never_held(case: str, kind: str) -> None:
    row = finding(case, hostile(case, kind))
    assert row.adapted.startswith("no: ") and not row.can_reassure


@pytest.mark.parametrize("kind", [*REPEATED, "seeded-by-round", "fine-steps", "own-randomiser", "said-when-asked"])
def test_what_is_sent_again_is_never_held(kind: str) -> None:
    row = finding("global nodes", hostile("global nodes", kind, 0.5))
    assert row.adapted.startswith("no: ") and not row.can_reassure


@pytest.mark.parametrize("kind", ["rotation", "table", "xor", "reused-mask", "mean-of-two", "low-bits", "shared-mask"])
@pytest.mark.parametrize("case", ["uploads", "global nodes"])
def test_what_states_nothing_is_never_held(case: str, kind: str) -> None:
    row = finding(case, Obfuscated(kind, secret=True))
    assert "Unstated" in row.adapted and not row.can_reassure


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", HONEST)
def test_honest_noise_of_another_author_is_believed(case: str, kind: str) -> None:
    for seed in range(3):
        assert "Unstated" not in finding(case, hostile(case, kind), seed).adapted
    assert "Unstated" not in finding(case, hostile(case, kind), 0, key=b"k" * 16).adapted, "in a run with --secret"


def test_every_kind_is_planted() -> None:
    assert set(KINDS) == {*NOISE, *MAPS, "rows-seeded", "rows-shared"}
