"""One small recording per protocol and kind of message, shared by every test of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from node_graphs import graph as node_graph
from small_protocols import TINY_GT
from user_graphs import user_graph

from fglaudit.attacking import unsuitable
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.parties.base import Behaviour
from fglaudit.parties.crafted_weights import CraftedWeights
from fglaudit.parties.repeat_models import RepeatModels
from fglaudit.parties.repeat_pretraining import RepeatPretraining
from fglaudit.payloads import SERVER
from fglaudit.registry import build
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer, View


def users() -> FederatedGraph:
    """Return a graph of 24 users with features as data sets have them."""
    graph = user_graph(nodes=24)
    return replace(graph, x=graph.x.float())


def two_classes() -> FederatedGraph:
    """Return an example graph where training and validation nodes have the same classes, so that later rounds win."""
    return example_graph(nodes=120, classes=2)


def measured() -> FederatedGraph:
    """Return an example graph whose features are measured numbers."""
    graph, rng = example_graph(), torch.Generator().manual_seed(7)
    return replace(graph, x=graph.x - torch.rand(graph.x.shape, generator=rng), features=FeatureKind.REAL)


def obfuscated(kind: str, secret: bool = False) -> Defense:
    """Return a planted obfuscation, which states nothing."""
    file = Path(__file__).parents[3] / "bench" / "obfuscation" / "obfuscated.py"
    built: Defense = build("defense", f"{file}:Obfuscated", {"kind": kind, "secret": secret})
    return built


ATTENTION: dict[str, Any] = {"heads": 2, "hidden": 3, "rounds": 3, "optimizer": "adam", "learning_rate": 0.02}

GENERATOR: dict[str, Any] = {"embedding": 8, "generator_hidden": 24, "generator_epochs": 60, "generator_rounds": 2}


@dataclass(frozen=True)
class Setup:
    """What is recorded: a protocol with its fields on a graph, under a defense or none, all honest or one not."""

    protocol: str
    arguments: dict[str, Any]
    graph: Callable[[], FederatedGraph] = example_graph
    defense: Defense | None = None
    behaviour: Behaviour | None = None

    def build(self) -> FederatedProtocol:
        """Return the protocol."""
        protocol: FederatedProtocol = build("protocol", self.protocol, self.arguments)
        return protocol


EMBEDDING_NOISE = Gaussian(on="EmbeddingSums", unit="reporting node")
_FEW_ROUNDS: dict[str, Any] = {"encoder_rounds": 3, "rounds": 3}
SETUPS: dict[str, Setup] = {
    "fedgcn-0": Setup("fedgcn", {"hops": 0, "rounds": 3}),
    "fedgcn-1": Setup("fedgcn", {"hops": 1, "rounds": 3}),
    "fedgcn-1-counts": Setup("fedgcn", {"hops": 1, "rounds": 3, "aggregate": "counts"}),
    "fedgcn-real": Setup("fedgcn", {"hops": 1, "rounds": 3}, measured),
    "fedgcn-repeated": Setup("fedgcn", {"hops": 1, "rounds": 2}, behaviour=RepeatPretraining(clients=3)),
    "fedgcn-repeated-models": Setup(
        "fedgcn",
        {"hops": 1, "rounds": 12, "hidden": 32, "local_steps": 1, "dropout": 0.0, "participation": 0.67},
        defense=SecureAggregation(on=("ModelUpdate",)),
        behaviour=RepeatModels(rounds=12),
    ),
    "fedgat-crafted": Setup("fedgat", {"rounds": 3}, behaviour=CraftedWeights(rounds=2)),
    "fedgcn-2": Setup("fedgcn", {"hops": 2, "rounds": 3, "optimizer": "adam", "learning_rate": 0.01}),
    "fedgcn-smoothed": Setup("fedgcn", {"hops": 2, "rounds": 3, "smoothing_hops": 2}),
    "fedgcn-3": Setup("fedgcn", {"hops": 3, "layers": 3, "rounds": 3, "participation": 0.5}),
    "fedgcn-batchnorm": Setup("fedgcn", {"network": "gcn-batchnorm", "layers": 3, "rounds": 3}),
    "fedgcn-sage": Setup("fedgcn", {"network": "sage", "aggregate": "counts", "rounds": 3}),
    "fedgat-matrix": Setup("fedgat", {"variant": "matrix", **ATTENTION}),
    "fedgat-smoothed": Setup("fedgat", {"smoothing_hops": 2, **ATTENTION}),
    "fedgat-code": Setup("fedgat", {"source": "code", **ATTENTION}),
    "fedgat-server-adam": Setup("fedgat", {**ATTENTION, "optimizer": "sgd", "server_optimizer": "adam"}),
    "fedgat-vector": Setup("fedgat", {"variant": "vector", **ATTENTION}),
    "fedgat-merged": Setup("fedgat", {"variant": "matrix", **ATTENTION}, defense=MergeNeighbors(size=2)),
    "dist-gat": Setup("dist-gat", ATTENTION),
    "gat": Setup("gat", ATTENTION),
    "gcn": Setup("gcn", {"rounds": 3}),
    "local-gcn": Setup("local-gcn", {"rounds": 3}),
    "nfedgnn-gcn": Setup("nfedgnn", {"hidden": 16, "rounds": 4}, users),
    "nfedgnn-gat": Setup(
        "nfedgnn", {"split": "gat", "hidden": 4, "heads": 2, "rounds": 4, "feature_dropout": 0.5}, users
    ),
    "nfedgnn-sgd": Setup("nfedgnn", {"rounds": 4, "optimizer": "sgd", "learning_rate": 0.5}, users),
    "nfedgnn-private": Setup("nfedgnn", {"rounds": 4, "initial_weights": "private"}, users),
    "cnfgnn-sgd": Setup("cnfgnn", {"rounds": 4, "optimizer": "sgd", "learning_rate": 0.5}, users),
    "cnfgnn-adam": Setup("cnfgnn", {"hidden": 16, "rounds": 4}, users),
    "gfl-appnp": Setup("gfl-appnp", {"hidden": 8, "rounds": 4, "local_steps": 2}, node_graph),
    "gfl-appnp-v1": Setup("gfl-appnp", {"hidden": 8, "rounds": 4, "local_steps": 2, "variant": "v1"}, node_graph),
    "gfl-appnp-v2": Setup("gfl-appnp", {"hidden": 8, "rounds": 4, "local_steps": 2, "variant": "v2"}, node_graph),
    "appnp": Setup("appnp", {"rounds": 3}, node_graph),
    "graphsage": Setup("graphsage", {"rounds": 3}, node_graph),
    "fedmlp": Setup("fedmlp", {"hidden": 8, "rounds": 3}, node_graph),
    "fedgcn-obfuscated": Setup("fedgcn", {"hops": 1, "rounds": 1}, defense=obfuscated("signed-order")),
    "fedgcn-obfuscated-secretly": Setup("fedgcn", {"hops": 1, "rounds": 1}, defense=obfuscated("rotation", True)),
    "cnfgnn-obfuscated": Setup("cnfgnn", {"hidden": 16, "rounds": 2}, users, obfuscated("signs")),
    # As many measurements of a row as it has entries: with fewer none is found without a prior.
    "fedgt": Setup("fedgt", {**{f.name: getattr(TINY_GT, f.name) for f in fields(TINY_GT)}, "hidden": 32}),
    "fedgt-code": Setup(
        "fedgt", {**{f.name: getattr(TINY_GT, f.name) for f in fields(TINY_GT)}, "hidden": 32, "source": "code"}
    ),
    "fedavg-sage": Setup("fedavg-sage", {"hidden": 8, "rounds": 3}),
    "fedavg-gophormer": Setup("fedavg-gophormer", {"rounds": 2}),
    "fedavg-graphgps": Setup("fedavg-graphgps", {"rounds": 2}),
    # Codes as wide as twice the largest neighbourhood of the example graph, so that every row can be explained.
    "structure-only": Setup("structure-only", {"hops": [1, 3], "width": 48, "rounds": 3}),
    "structure-only-home": Setup(
        "structure-only", {"hops": [2], "width": 48, "rounds": 3, "features_at_home": "own-subgraph"}
    ),
    "label-propagation": Setup("label-propagation", {"rounds": 4}),
    "lpgnn": Setup("lpgnn", {"rounds": 3}),
    "private-reports": Setup("private-reports", {"hops": [1, 2], "code_hops": [2], "width": 48, **_FEW_ROUNDS}),
    "private-reports-bare": Setup("private-reports", {"hops": [2], "width": 0, **_FEW_ROUNDS}),
    "private-reports-pseudo": Setup(
        "private-reports", {"hops": [2], "code_hops": [2], "width": 48, "pseudo_labels": True, **_FEW_ROUNDS}
    ),
    "gap": Setup("gap", {"hops": [1, 2], "dimension": 8, **_FEW_ROUNDS}),
    "gap-codes": Setup("gap", {"hops": [1], "sums_of": "codes", **_FEW_ROUNDS}),
    "gap-noisy": Setup("gap", {"unit": "reporting node", **_FEW_ROUNDS}, defense=EMBEDDING_NOISE),
    "progap": Setup("progap", {"unit": "node", "noise_at": "server", **_FEW_ROUNDS}),
    "fedper-sage": Setup("fedper-sage", {"hidden": 8, "rounds": 3}),
    "gcfl-sage": Setup("gcfl-sage", {"hidden": 8, "rounds": 3}),
    "fedsage": Setup("fedsage", {"hidden": 8, "rounds": 3, **GENERATOR}),
    "fedsage-simulated": Setup("fedsage", {"hidden": 8, "rounds": 3, "generator": "simulated"}),
    "fedpub": Setup("fedpub", {"hidden": 8, "rounds": 12}, two_classes),
    "distributed-gcn": Setup("distributed-gcn", {"rounds": 4}),
    "bds-gcn": Setup("bds-gcn", {"rounds": 4}),
    "local-gt": Setup("local-gt", {"hidden": 8, "feed_forward": 8, "heads": 2, "rounds": 2}),
}

OBSERVERS = (
    Observer(parties=(SERVER,), topology=True, degrees=True, initial_weights=True, auxiliary=0.2),
    Observer(parties=(0,), auxiliary=0.2, degrees=True),
    Observer(parties=(SERVER,)),
    Observer(parties=(SERVER,), auxiliary=0.5),
    Observer(parties=(0,)),
    Observer(parties=(0,), degrees=False),
    Observer(parties=(SERVER, 1), auxiliary=0.2),
    Observer(parties=(0, 2), topology=True),
    Observer(wire=True),
    Observer(wire=True, auxiliary=0.5),
    Observer(parties=(SERVER,), topology=True, auxiliary=0.6, sensitive=(1, 4)),
)


@cache
def recorded(name: str) -> Run:
    """Return the recording called ``name``; made once in a process."""
    setup = SETUPS[name]
    return record(setup.build(), setup.graph(), setup.defense, behaviour=setup.behaviour)


@cache
def seen(name: str, observer: Observer) -> View:
    """Return the view of ``observer`` of that recording."""
    return recorded(name).view(observer)


CHEAPER: dict[str, dict[str, Any]] = {"learned-label-shares": {"federations": 20}}
"""Fields of attacks that train: they are tried on every recording."""


def attack(name: str) -> Attack:
    """Return the attack called ``name`` with its defaults, but for :data:`CHEAPER`."""
    built: Attack = build("attack", name, CHEAPER.get(name, {}))
    return built


def readable(candidate: Attack) -> Iterator[tuple[str, Observer]]:
    """Yield the recordings whose protocol sends all that ``candidate`` consumes, each with every observer."""
    for name, setup in SETUPS.items():
        if set(type(setup.build()).emits).issuperset(type(candidate).consumes):
            for observer in OBSERVERS:
                yield name, observer


@cache
def reached(name: str) -> tuple[tuple[str, Observer], ...]:
    """Return where the attack called ``name`` runs: on every recording that it fits, the first observer it can work
    for."""
    found: dict[str, Observer] = {}
    for where, observer in readable(attack(name)):
        if where not in found and unsuitable(attack(name), seen(where, observer)) is None:
            found[where] = observer
    return tuple(found.items())
