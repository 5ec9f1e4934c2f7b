"""What comes through fixed invertible maps of every payload that carries features, and what comes without them.

Every case is a protocol on a graph of seconds, seen by the observer to whom it tells most. The score without a map is
the best of all attacks on feature rows; with a map it is learned inversion's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from bench.obfuscation.obfuscated import Obfuscated
from fglaudit import registry
from fglaudit.attacking import run_attacks
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph, federate
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.recording import Kept, record_training
from fglaudit.registry import build
from fglaudit.scoring.score import score
from fglaudit.testing import example_graph

MAPS = ("rotation", "permutation", "signs", "affine", "dense-affine", "float-bits", "byte-table", "table", "xor")
"""Fixed maps that can be inverted."""
SHARE = 0.3
"""Of the rows that an observer knows."""


def _users() -> FederatedGraph:
    """Return a small graph with one node per client."""
    return example_graph(nodes=40, features=48, clients=40)


def _mixture() -> FederatedGraph:
    """Return a small contextual stochastic block model, every node a client."""
    drawn = draw_task("csbm-dnc", CsbmTask(nodes=40, dimensions=12))
    assert drawn.train is not None and drawn.val is not None and drawn.test is not None
    return federate(drawn, list(torch.arange(40).unsqueeze(1)), drawn.train, drawn.val, drawn.test)


@dataclass(frozen=True)
class Case:
    """A payload, the protocol that sends it, and who sees it."""

    protocol: str
    arguments: dict[str, Any]
    observer: ObserverSpec
    graph: Callable[..., FederatedGraph] = example_graph
    on: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)

    def train(self) -> FederatedProtocol:
        """Return the protocol."""
        built: FederatedProtocol = build("protocol", self.protocol, self.arguments)
        return built


_SERVER = ObserverSpec(("server",), topology=True, initial_weights=True, auxiliary=SHARE)
_CLIENT = ObserverSpec(("client:0",), degrees=True, auxiliary=SHARE)
_ATTENTION: dict[str, Any] = {"heads": 2, "hidden": 3, "rounds": 2}
_GT: dict[str, Any] = {
    "similarity": "fedavg",
    "hidden": 32,
    "heads": 2,
    "feed_forward": 8,
    "neighbors": 3,
    "global_nodes": 2,
    "encoding": 2,
    "candidates": 8,
    "rounds": 3,
    "dropout": 0.0,
}
CASES: dict[str, Case] = {
    "sums (FedGCN)": Case("fedgcn", {"hops": 1, "rounds": 1}, _SERVER),
    "matrices (FedGAT)": Case("fedgat", {"variant": "matrix", **_ATTENTION}, _CLIENT),
    "vectors (FedGAT)": Case("fedgat", {"variant": "vector", **_ATTENTION}, _CLIENT),
    "latents (nFedGNN)": Case("nfedgnn", {"hidden": 32, "rounds": 4}, _SERVER, _users),
    "latents (GFL-APPNP)": Case(
        "gfl-appnp",
        {"hidden": 16, "rounds": 4, "local_steps": 2},
        _SERVER,
        _mixture,
        ("HiddenRepresentations",),
    ),
    "Jacobians (GFL-APPNP)": Case("gfl-appnp", {"hidden": 16, "rounds": 4, "local_steps": 2}, _SERVER, _mixture),
    "global nodes (FedGT)": Case("fedgt", _GT, _SERVER),
}
"""By payload."""


@cache
def _graph(name: str) -> FederatedGraph:
    return CASES[name].graph()


def findings(
    name: str, defense: Defense, attacks: list[Attack], *, seed: int = 0, share: float = SHARE
) -> list[Finding]:
    """Return the findings of ``attacks`` on the case called ``name`` under ``defense``."""
    case = CASES[name]
    recording, truth = record_training(_graph(name), case.train(), defense, seed=seed, keep=Kept(fractions={share}))
    observer = dataclasses.replace(case.observer, auxiliary=share)
    return [made.finding for made in score(run_attacks(recording, [observer], attacks), truth)]


def row_attacks() -> Iterator[Attack]:
    """Yield every attack on feature rows that knows payloads, with its defaults."""
    for attack in registry.names("attack"):
        kind = registry.load("attack", attack)
        if kind.quantity == "features" and kind.consumes and attack != "learned-inversion":
            yield build("attack", attack, {})


def strength(found: Finding) -> float:
    """Return the score by which maps are compared: the share of exact rows where features are discrete, else cosine."""
    return max(found.exact_rate or 0.0, found.cosine or 0.0)


@cache
def without(name: str, share: float = SHARE) -> Finding:
    """Return the best finding on the case called ``name`` without a defense.

    Raises:
        ValueError: no attack worked.
    """
    found = findings(name, NoDefense(), list(row_attacks()), share=share)
    return max((f for f in found if f.status is Status.OK and f.cosine is not None), key=strength)


def hidden(name: str, kind: str, *, secret: bool = False, seed: int = 0, share: float = SHARE) -> Finding:
    """Return what learned inversion finds on the case called ``name`` through a map."""
    defense = Obfuscated(kind, secret, CASES[name].on) if CASES[name].on else Obfuscated(kind, secret)
    return findings(name, defense, [build("attack", "learned-inversion", {})], seed=seed, share=share)[0]
