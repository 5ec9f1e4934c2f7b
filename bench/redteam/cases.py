"""What is planted: broken defenses over all payload families, and honest ones. Small graphs, few features.

Chosen before the audits were tuned; a case that slips through stays in the list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.redteam import (
    borrowed_faults,
    direction_faults,
    local_faults,
    mask_faults,
    memory_faults,
    message_faults,
    model_faults,
    noise_faults,
    protocol_faults,
    protocol_lies,
    report_faults,
    sealed_faults,
    secret_faults,
    sly_faults,
    statement_faults,
)
from bench.redteam.honest import OWN
from bench.redteam.planted import FAULTS, Planted
from fglaudit import registry
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.graph import FederatedGraph, federate
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.testing import example_graph

FAULT_FILES = (
    *(noise_faults, direction_faults, message_faults, local_faults, protocol_faults, sly_faults, report_faults),
    *(statement_faults, borrowed_faults, memory_faults, sealed_faults, secret_faults, mask_faults),
    model_faults,
)
"""Imported for the faults that they register."""


def users() -> FederatedGraph:
    """Return a graph in which every node is a client."""
    return example_graph(nodes=24, features=12, clients=24)


def citations() -> FederatedGraph:
    """Return a graph of 60 nodes at 3 clients, of which every node has a neighbour."""
    graph = example_graph(features=12)
    return dataclasses.replace(graph, x=graph.x + 0.1)


def many() -> FederatedGraph:
    """Return a graph of few features at 2 clients, of which each has more training nodes than weights."""
    graph = example_graph(nodes=200, features=4, clients=2)
    return dataclasses.replace(graph, x=graph.x + 0.1)


def nodes() -> FederatedGraph:
    """Return GFL-APPNP's own kind of data, one node per client."""
    drawn = draw_task("csbm-dnc", CsbmTask(nodes=20, dimensions=8))
    assert drawn.train is not None and drawn.val is not None and drawn.test is not None
    return federate(drawn, list(torch.arange(20).unsqueeze(1)), drawn.train, drawn.val, drawn.test)


@dataclass(frozen=True)
class Family:
    """A protocol and an honest defense of one kind of payload."""

    protocol: str
    arguments: dict[str, Any]
    defense: str
    settings: dict[str, Any]
    graph: Callable[[], FederatedGraph] = citations

    def build(self) -> tuple[FederatedProtocol, Defense]:
        protocol: FederatedProtocol = registry.build("protocol", self.protocol, self.arguments)
        defense: Defense = registry.build("defense", self.defense, self.settings)
        return protocol, defense


_GT = {
    "similarity": "fedavg", "hidden": 8, "heads": 2, "feed_forward": 8, "neighbors": 3, "global_nodes": 2,
    "encoding": 2, "candidates": 8, "rounds": 3, "dropout": 0.0,
}  # fmt: skip
_GAT = {"heads": 2, "hidden": 3, "rounds": 3, "optimizer": "adam", "learning_rate": 0.02}
_APPNP = {"hidden": 4, "rounds": 4, "local_steps": 2}
_ALL = {"on": ["HiddenRepresentations", "Jacobians", "ModelUpdate"], "clip": [1.0, 1.0, 1.0]}
_TWO = {"on": ["GlobalNodes", "ModelUpdate"], "clip": [1.0, 1.0], "unit": "client"}
_REPORTS = {"hops": [2], "code_hops": [2], "width": 8, "encoder_rounds": 2, "rounds": 2}
_SAMPLED = {"epsilon": 4.0, "edges": "public", "degree_bound": 2, "sampling_rate": 0.2}

FAMILIES: dict[str, Family] = {
    "sums": Family("fedgcn", {"hops": 1, "rounds": 3}, "gaussian", {"epsilon": 2.0}),
    "sums-often": Family("fedgcn", {"hops": 1, "rounds": 8}, "gaussian", {"epsilon": 4.0}),
    "sums-2": Family("fedgcn", {"hops": 2, "rounds": 3}, "gaussian", {"epsilon": 4.0, "clip": 2.0}),
    "rows-sent": Family("fedgat", {"variant": "matrix", **_GAT}, "gaussian", {"epsilon": 2.0, "on": "RawFeatures"}),
    "matrices": Family("fedgat", {"variant": "matrix", **_GAT}, "gaussian", {"epsilon": 4.0, "on": "MaskedMatrices"}),
    "vectors": Family("fedgat", {"variant": "vector", **_GAT}, "gaussian", {"epsilon": 4.0, "on": "MaskedVectors"}),
    "latents": Family("nfedgnn", {"hidden": 8, "rounds": 6}, "clipped-noise", {"epsilon": 2.0}, users),
    "latents-laplace": Family(
        "nfedgnn", {"hidden": 8, "rounds": 6}, "clipped-noise", {"mechanism": "laplace", "epsilon": 2.0}, users
    ),
    "jacobians": Family("gfl-appnp", _APPNP, "joint-noise", {"epsilon": 4.0, **_ALL}, nodes),
    "global-nodes": Family("fedgt", _GT, "joint-noise", {"epsilon": 4.0, **_TWO}),
    "models": Family("fedgcn", {"hops": 0, "rounds": 10}, "dp-fedavg", {"epsilon": 4.0, "trust": "server"}),
    "uploads": Family("fedgcn", {"hops": 0, "rounds": 10}, "dp-fedavg", {"epsilon": 4.0, "trust": "local"}),
    "gradients": Family(
        "fedgcn", {"hops": 0, "rounds": 5}, "dp-sgd", {"epsilon": 4.0, "edges": "public", "degree_bound": 2}
    ),
    "sampled-gradients": Family("fedgcn", {"hops": 0, "rounds": 10}, "dp-sgd", _SAMPLED),
    "many-losses": Family("fedgcn", {"hops": 0, "rounds": 5, "hidden": 1}, "dp-sgd", _SAMPLED, many),
    "private-gradients": Family(
        "fedgcn", {"hops": 0, "rounds": 5}, "dp-sgd", {"epsilon": 4.0, "degree_bound": 2}, many
    ),
    "gradients-long": Family(
        "fedgcn", {"hops": 0, "rounds": 8}, "dp-sgd", {"epsilon": 4.0, "edges": "public", "degree_bound": 2}
    ),
    "subgraph-gradients": Family(
        "fedavg-sage",
        {"rounds": 3, "hidden": 4},
        "dp-sgd",
        {"epsilon": 4.0, "edges": "public", "degree_bound": 2},
        many,
    ),
    "rows": Family(
        "fedgcn", {"hops": 1, "rounds": 3}, "local-features", {"mechanism": "gaussian", "epsilon": 2.0, "delta": 1e-5}
    ),
    "rows-laplace": Family("fedgcn", {"hops": 1, "rounds": 3}, "local-features", {"epsilon": 2.0}),
    "bits": Family("fedgcn", {"hops": 1, "rounds": 3}, "multi-bit", {"epsilon": 2.0}),
    "bfv": Family("fedgcn", {"hops": 1, "rounds": 3}, "homomorphic-encryption", {}),
    "ckks": Family(
        "fedgcn", {"hops": 1, "rounds": 3}, "homomorphic-encryption", {"scheme": "ckks", "on": ["NeighborSums"]}
    ),
    "ckks-models": Family("fedgcn", {"hops": 0, "rounds": 5}, "homomorphic-encryption", {"scheme": "ckks"}),
    "masked-sums": Family("fedgcn", {"hops": 1, "rounds": 3}, "secure-aggregation", {}),
    "class-reports": Family("private-reports", _REPORTS, "k-ary-response", {"epsilon": 2.0}),
    "bits-many": Family("nfedgnn", {"hidden": 8, "rounds": 3}, "multi-bit", {"epsilon": 4.0, "sampled": 6}, users),
}

BUILT_IN = (
    "sums", "latents-laplace", "bits", "gradients", "sampled-gradients", "models", "uploads", "bfv", "ckks",
    "masked-sums", "class-reports",
)  # fmt: skip
"""Families of the defenses that every user meets: Gaussian, Laplace, multi-bit, DP-SGD with and without samples,
DP-FedAvg with and without a trusted server, BFV, CKKS, secure aggregation and k-ary response."""

_BROKEN: tuple[tuple[str, str], ...] = (
    ("TooSmall", "sums"), ("TooSmall", "latents"), ("TooSmall", "latents-laplace"), ("TooSmall", "jacobians"),
    ("TooSmall", "matrices"), ("SharedByMessages", "sums"), ("SharedByMessages", "global-nodes"),
    ("UsedAgain", "latents"), ("UsedAgain", "jacobians"), ("SeededByRound", "latents"), ("SeededByRound", "sums"),
    ("SeededByValues", "latents-laplace"), ("SeededByValues", "sums-2"), ("OneSeed", "rows-sent"),
    ("GeneratorStartedAgain", "global-nodes"), ("FromTheSystem", "latents"), ("GrowsWithMessage", "latents"),
    ("GrowsWithMessage", "global-nodes"), ("CutTails", "sums"), ("CutTails", "latents-laplace"),
    ("Uniform", "jacobians"), ("SumOfUniform", "sums"), ("HalfTheNumbers", "vectors"), ("HalfTheNumbers", "jacobians"),
    ("LastNumberBare", "global-nodes"), ("SomeSendersBare", "sums"), ("SomeSendersBare", "latents"),
    ("EverySecondRelease", "latents"), ("LastReleasesBare", "latents-laplace"), ("Sparse", "rows-sent"),
    ("Sparse", "latents"), ("OneNumberForAll", "latents"), ("OppositeMessages", "sums-2"),
    ("OppositeNumbers", "global-nodes"), ("Decays", "latents"), ("RolledOn", "latents-laplace"),
    ("TakenBack", "latents"), ("TwoSided", "sums"), ("WholeSteps", "matrices"), ("FineSteps", "sums"),
    ("NowAndThenBare", "latents"), ("Trigger", "latents"), ("SumsToZero", "jacobians"), ("FewDirections", "sums"),
    ("SharedByPayloads", "jacobians"), ("NoClip", "latents"), ("NoClip", "global-nodes"),
    ("TwiceTheClip", "jacobians"), ("EveryNumberClipped", "latents"), ("RootMeanSquareClip", "global-nodes"),
    ("MedianClip", "latents"), ("OutliersBare", "latents"), ("FirstNumberUnclipped", "jacobians"),
    ("EuclideanClip", "latents-laplace"), ("NoiseBeforeClip", "latents"), ("ScaledByLength", "latents"),
    ("SignsKept", "sums"), ("LowestBit", "latents"), ("LowestBit", "sums"), ("OtherFieldTells", "matrices"),
    ("RowsTooLittle", "rows"), ("RowsShareNoise", "rows"), ("RowsUnclipped", "rows-laplace"),
    ("RowsEuclidean", "rows-laplace"), ("RowsSeeded", "bits"), ("HubsBare", "rows"), ("HubsBare", "bits"),
    ("TruthfulBits", "bits"), ("MoreBits", "bits-many"), ("PlacesTell", "bits-many"),
    ("GradientsTooLittle", "gradients"), ("NoiseTimesLearningRate", "sampled-gradients"),
    ("GradientsHashed", "sampled-gradients"), ("GradientsUnclipped", "gradients"),
    ("ClipOfTheMean", "gradients"), ("GradientNumbersClipped", "gradients"), ("MedianGradientClip", "gradients"),
    ("ClientsShareNoise", "gradients"), ("SameNoiseEveryStep", "gradients"), ("NoiseInTheFirstStep", "gradients"),
    ("NoiseWhereGradients", "gradients"), ("FixedSizeSample", "sampled-gradients"), ("Shuffled", "sampled-gradients"),
    ("AllDrawn", "sampled-gradients"), ("EdgesKept", "gradients"), ("ServerTooLittle", "models"),
    ("ServerAgain", "models"), ("ServerEverySecondRound", "models"), ("ClientsUnclipped", "models"),
    ("UploadsSeeded", "uploads"), ("UploadsShareNoise", "uploads"), ("HalfTheGain", "sums"),
    ("HalfTheGain", "sums-2"), ("SendsTwice", "sums"), ("KnownClients", "models"),
    ("KnownSample", "sampled-gradients"), ("ShortDrawnTwice", "sampled-gradients"),
    ("BareAmongManyLosses", "many-losses"), ("LongDrawnMore", "sampled-gradients"),
    ("FinestSteps", "latents"), ("FinestSteps", "sums"), ("FinestSteps", "latents-laplace"),
    ("ClipOfTheLongest", "gradients"), ("ScaledByTheMedian", "sampled-gradients"),
    ("DrawnByDegree", "sampled-gradients"),
    ("RedrawnBeyond", "sums"), ("EndsAtFour", "sums"), ("EndsAtFour", "latents"),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One planted thing.

    Attributes:
        name: unique.
        broken: whether it is.
        build: makes protocol, graph and defense.
    """

    name: str
    broken: bool
    build: Callable[[], tuple[FederatedProtocol, FederatedGraph, Defense]]


def _broken(fault: str, family: str) -> Case:
    def build() -> tuple[FederatedProtocol, FederatedGraph, Defense]:
        protocol, honest = FAMILIES[family].build()
        graph = FAMILIES[family].graph()
        if fault in protocol_faults.PROTOCOLS:
            return protocol_faults.PROTOCOLS[fault](protocol), graph, honest
        assert fault in FAULTS, f"no fault is called {fault}"
        FAULTS[fault].begin()
        return protocol, graph, Planted(honest, FAULTS[fault])

    return Case(f"{fault} {family}", True, build)


def _honest(family: str) -> Case:
    def build() -> tuple[FederatedProtocol, FederatedGraph, Defense]:
        protocol, defense = FAMILIES[family].build()
        return protocol, FAMILIES[family].graph(), defense

    return Case(f"honest {family}", False, build)


def _own(name: str, family: str) -> Case:
    def build() -> tuple[FederatedProtocol, FederatedGraph, Defense]:
        protocol, honest = FAMILIES[family].build()
        return protocol, FAMILIES[family].graph(), Planted(honest, FAULTS[name])

    return Case(f"honest {name} {family}", False, build)


CASES: tuple[Case, ...] = (
    *(
        _broken(fault, family)
        for fault, family in (
            *(*_BROKEN, *direction_faults.BROKEN, *sly_faults.BROKEN, *report_faults.BROKEN),
            *(*statement_faults.BROKEN, *borrowed_faults.BROKEN, *memory_faults.BROKEN, *sealed_faults.BROKEN),
            *(*protocol_lies.BROKEN, *secret_faults.BROKEN),
        )
    ),
    *(_honest(family) for family in FAMILIES),
    *(
        _own(name, family)
        for name, family in (
            *(*OWN, *sly_faults.HONEST, *report_faults.HONEST, *borrowed_faults.HONEST),
            *(*sealed_faults.HONEST, *secret_faults.HONEST),
        )
    ),
)
