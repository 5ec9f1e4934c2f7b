"""Every protocol at a small size, and how every defense is set on it: the one place that says so.

The data sets are as small as attacks work on. A defense that needs no setting is used with its defaults; one that does
not apply says why itself. A setting that is listed for a protocol must apply to it, or name a reason that belongs into
the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.partition import PartitionSpec


@dataclass(frozen=True)
class Setup:
    """A protocol on its small data set.

    Attributes:
        protocol, arguments: the protocol's name and fields.
        dataset, partition: what it trains on.
    """

    protocol: str
    arguments: dict[str, Any]
    dataset: DatasetSpec
    partition: PartitionSpec

    def build(self) -> FederatedProtocol:
        """Return the protocol."""
        protocol: FederatedProtocol = registry.build("protocol", self.protocol, self.arguments)
        return protocol


def _citations(nodes: int, dimensions: int, train: float = 0.2) -> DatasetSpec:
    options = CsbmOptions(
        nodes=nodes,
        edges=2 * nodes,
        classes=4,
        dimensions=dimensions,
        ones_per_row=8,
        homophily=0.8,
        degree_exponent=0.4,
    )
    return DatasetSpec("csbm", csbm=options, split="random", train=train, val=0.3, test=0.5)


CLIENTS = (_citations(240, 120), PartitionSpec("dirichlet", 5, 10000.0))
COMMUNITIES = (_citations(240, 120), PartitionSpec("louvain", 5))
USERS = (_citations(80, 120), PartitionSpec("per-node"))
TASK = (DatasetSpec("csbm-dnc", task=CsbmTask(nodes=40, dimensions=30)), PartitionSpec("per-node"))
ATTENTION = {"learning_rate": 0.03, "server_learning_rate": 0.03, "dropout": 0.6}

SETUPS: tuple[Setup, ...] = (
    Setup("fedgcn", {"hops": 0, "rounds": 30}, *CLIENTS),
    Setup("fedgcn", {"hops": 1, "rounds": 30}, *CLIENTS),
    Setup("fedgcn", {"hops": 1, "aggregate": "counts", "rounds": 30}, *CLIENTS),
    Setup("fedgcn", {"hops": 2, "rounds": 30}, *CLIENTS),
    Setup("fedgat", {"variant": "matrix", "rounds": 8, "heads": 2}, *CLIENTS),
    Setup("fedgat", {"variant": "vector", "rounds": 8, "heads": 2}, *CLIENTS),
    Setup("nfedgnn", {"rounds": 30, "smoothness": 10.0}, *USERS),
    Setup(
        "nfedgnn",
        {"split": "gat", "heads": 4, "rounds": 20, "smoothness": 10.0, "feature_dropout": 0.5, **ATTENTION},
        *USERS,
    ),
    Setup("nfedgnn", {"rounds": 20, "smoothness": 10.0, "optimizer": "sgd", "learning_rate": 3.0}, *USERS),
    Setup("nfedgnn", {"rounds": 20, "smoothness": 10.0, "initial_weights": "private"}, *USERS),
    Setup("cnfgnn", {"rounds": 20, "optimizer": "sgd", "learning_rate": 3.0}, *USERS),
    Setup("gfl-appnp", {"hidden": 16, "rounds": 60}, *TASK),
    Setup("gfl-appnp", {"hidden": 16, "rounds": 60, "variant": "v1"}, *TASK),
    Setup("gfl-appnp", {"hidden": 16, "rounds": 60, "variant": "v2"}, *TASK),
    Setup("fedgt", {"rounds": 12, "hidden": 64, "feed_forward": 64}, *COMMUNITIES),
    Setup("fedmlp", {"hidden": 16, "rounds": 20}, *TASK),
    Setup("dist-gat", {"rounds": 8, "heads": 2}, *CLIENTS),
    Setup("fedavg-sage", {"rounds": 8, "hidden": 32}, *COMMUNITIES),
    Setup("fedper-sage", {"rounds": 8, "hidden": 32}, *COMMUNITIES),
    Setup("gcfl-sage", {"rounds": 8, "hidden": 32}, *COMMUNITIES),
    Setup("fedsage", {"rounds": 8, "hidden": 32, "generator_hidden": 64, "generator_epochs": 40}, *COMMUNITIES),
    Setup("fedsage", {"rounds": 8, "hidden": 32, "generator": "simulated"}, *COMMUNITIES),
    Setup("fedpub", {"rounds": 8, "hidden": 32}, *COMMUNITIES),
    Setup("fedavg-gophormer", {"rounds": 6}, *COMMUNITIES),
    Setup("fedavg-graphgps", {"rounds": 6}, *COMMUNITIES),
    Setup("structure-only", {"hops": [2, 4], "width": 64, "rounds": 10}, *CLIENTS),
    Setup("private-reports", {"hops": [2], "code_hops": [2], "width": 64, "encoder_rounds": 5, "rounds": 5}, *CLIENTS),
    Setup("label-propagation", {"rounds": 10}, *CLIENTS),
    Setup("lpgnn", {"rounds": 10}, *CLIENTS),
    Setup("gap", {"encoder_rounds": 5, "rounds": 5}, *CLIENTS),
    Setup("gap", {"unit": "node", "noise_at": "server", "encoder_rounds": 5, "rounds": 5}, *CLIENTS),
    Setup("progap", {"encoder_rounds": 5, "rounds": 5}, *CLIENTS),
    Setup("distributed-gcn", {"rounds": 10}, *CLIENTS),
    Setup("bds-gcn", {"rounds": 10}, *CLIENTS),
    Setup("local-gcn", {"rounds": 10}, *CLIENTS),
    Setup("local-gt", {"rounds": 4, "hidden": 32, "feed_forward": 64}, *COMMUNITIES),
    Setup("gcn", {"rounds": 10}, *CLIENTS),
    Setup("gat", {"rounds": 5, "heads": 2}, *CLIENTS),
    Setup("graphsage", {"rounds": 20}, *TASK),
    Setup("appnp", {"rounds": 20}, *TASK),
)
"""Variants of a protocol that send different messages are setups of their own."""

_LATENTS: list[dict[str, Any]] = [
    {"mechanism": "gaussian", "epsilon": 8.0},
    {"mechanism": "laplace", "epsilon": 5000.0},
]
_SHARED_MODELS = ["Latents", "ModelUpdate"]
_TRANSFORMER = ["GlobalNodes", "ModelUpdate"]
_APPNP = ["HiddenRepresentations", "Jacobians", "ModelUpdate"]

_SEALED: list[dict[str, Any]] = [{"name": "homomorphic-encryption"}]
_PUBLIC_EDGES: list[dict[str, Any]] = [{"edges": "public"}]
"""Of ``dp-sgd`` where edges enter more than losses, so that they cannot be private."""
_EMBEDDINGS: list[dict[str, Any]] = [{"epsilon": 8.0, "on": "EmbeddingSums", "unit": unit} for unit in ("edge", "node")]


def _stack(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"parts": list(parts)}


DEFAULTS: dict[str, list[dict[str, Any]]] = {
    "stack": [_stack({"name": "local-features", "epsilon": 8.0}, {"name": "drop-singletons"})]
}
"""Settings of defenses that have no defaults of their own, for every protocol."""

SETTINGS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "fedgcn": {
        "gaussian": [{"epsilon": 8.0, "clip": 3.0}, {"epsilon": 5000.0, "clip": 3.0}],
        "stack": [
            _stack(
                {"name": "gaussian", "epsilon": 5000.0, "clip": 3.0},
                {"name": "dp-sgd", "edges": "public", "epsilon": 50.0},
                *_SEALED,
            ),
            _stack({"name": "minimum-neighborhood", "fewest": 3}, {"name": "secure-aggregation"}),
        ],
    },
    "fedgat": {
        "gaussian": [
            {"epsilon": 8.0, "on": "RawFeatures"},
            {"epsilon": 1e4, "on": "RawFeatures"},
            {"epsilon": 8.0, "on": "MaskedMatrices"},
            {"epsilon": 8.0, "on": "MaskedVectors"},
        ],
        "merge-neighbors": [{"size": 2}],
        "stack": [_stack({"name": "gaussian", "epsilon": 1e4, "on": "RawFeatures"}, {"name": "merge-neighbors"})],
        "fewer-features": [{"share": 0.25}],
    },
    "structure-only": {"dp-sgd": _PUBLIC_EDGES},
    "private-reports": {"dp-sgd": _PUBLIC_EDGES},
    "gap": {"gaussian": _EMBEDDINGS, "dp-sgd": _PUBLIC_EDGES},
    "progap": {"gaussian": _EMBEDDINGS[:1], "dp-sgd": _PUBLIC_EDGES},
    "nfedgnn": {
        "clipped-noise": _LATENTS,
        "joint-noise": [{"epsilon": 8.0, "on": ["Latents"], "clip": [1.0]}],
        "clipping": [{"on": ["Latents"], "clip": [1.0]}],
        "clipped-laplace": [{"on": ["Latents"], "clip": 1.0, "scale": 0.5}],
        "quantisation": [{"on": ["Latents"], "bits": 4}],
    },
    "cnfgnn": {
        "clipped-noise": _LATENTS,
        "joint-noise": [{"epsilon": 8.0, "on": _SHARED_MODELS, "clip": [1.0, 1.0]}],
        "clipping": [{"on": _SHARED_MODELS, "clip": [1.0, 1.0]}],
        "clipped-laplace": [{"on": _SHARED_MODELS, "clip": 1.0, "scale": 0.5}],
        "quantisation": [{"on": _SHARED_MODELS, "bits": 4}],
    },
    "gfl-appnp": {
        "joint-noise": [{"epsilon": epsilon, "on": _APPNP, "clip": [1.0, 1.0, 1.0]} for epsilon in (8.0, 1e4)],
        "clipping": [{"on": _APPNP[:2], "clip": [1.0, 1.0]}],
        "quantisation": [{"on": _APPNP[:2], "bits": 4}],
        "clipped-laplace": [{"on": _APPNP[:2], "clip": 1.0, "scale": 0.1}],
    },
    "fedgt": {
        "clipped-laplace": [{"on": ["GlobalNodes"]}, {"on": _TRANSFORMER}],
        "joint-noise": [{"epsilon": 8.0, "unit": "client", "on": _TRANSFORMER, "clip": [1.0, 1.0]}],
        "clipped-noise": [{"unit": "client", "on": "GlobalNodes"}],
        "clipping": [{"on": _TRANSFORMER, "clip": [1.0, 1.0]}],
        "quantisation": [{"on": _TRANSFORMER, "bits": 4}],
    },
}
"""By protocol and defense the settings that are tried; what is left out has the defense's defaults."""


def defenses(protocol: str) -> list[Defense]:
    """Return every known defense with its settings for ``protocol``."""
    chosen = SETTINGS.get(protocol, {})
    return [
        registry.build("defense", name, each)
        for name in registry.names("defense")
        for each in chosen.get(name, DEFAULTS.get(name, [{}]))
    ]
