"""The protocols, data sets and ladders of defenses in which ``bench.working_defenses`` searches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.joint_noise import JointNoise
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN

EPSILONS = (1e4, 3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
SERVER_VIEW = ObserverSpec(("server",), topology=True, auxiliary=0.1)
KNOWING_SERVER = ObserverSpec(("server",), initial_weights=True, auxiliary=0.1)
EACH_CLIENT = ObserverSpec(("client:each",), topology=True, auxiliary=0.1)
ONE_CLIENT = ObserverSpec(("client:0",), topology=True, auxiliary=0.1)


@dataclass(frozen=True)
class Family:
    """One defense in settings of growing strength.

    Attributes:
        ladder: from the weakest to the strongest setting.
        noise: whether its strength is that of noise, which then is turned down for strength -> 0; else that is no
            defense.
    """

    name: str
    ladder: tuple[Defense, ...]
    noise: bool = True


@dataclass(frozen=True)
class Case:
    """A protocol on a data set, and the defenses that apply to it."""

    protocol: FederatedProtocol
    dataset: DatasetSpec
    partition: PartitionSpec
    families: tuple[Family, ...]
    observers: tuple[ObserverSpec, ...] = (SERVER_VIEW, EACH_CLIENT)
    seeds: int = 2


def budgets(name: str, make: Callable[[float], Defense]) -> Family:
    """Return the defense ``make(epsilon)`` with each of the epsilons."""
    return Family(name, tuple(make(epsilon) for epsilon in EPSILONS))


IID = PartitionSpec("dirichlet", 10, 10000.0)
FEW = PartitionSpec("dirichlet", 5, 10000.0)
COMMUNITIES = PartitionSpec("metis", 12)
PER_NODE = PartitionSpec("per-node")
_OPTIONS = CsbmOptions(
    nodes=600, edges=1200, classes=4, dimensions=200, ones_per_row=10, homophily=0.8, degree_exponent=0.4
)
CITATIONS = DatasetSpec("csbm", csbm=_OPTIONS, split="random", train=0.2, val=0.3, test=0.5)
SMALL = dataclasses.replace(
    CITATIONS, csbm=dataclasses.replace(_OPTIONS, nodes=300, edges=600, dimensions=100, ones_per_row=8)
)
TASK = DatasetSpec("csbm-dnc", task=CsbmTask(nodes=150, dimensions=80))

ENCRYPTION = Family("encryption", (HomomorphicEncryption(),), noise=False)
RANDOMISED = Family(
    "randomised rows", tuple(MultiBit(epsilon=epsilon) for epsilon in (1000.0, 100.0, 10.0, 1.0)), noise=False
)
SUMS = (
    budgets("gaussian on sums", lambda e: Gaussian(epsilon=e, clip=4.5)),
    ENCRYPTION,
    Family("secure aggregation", (SecureAggregation(on=("NeighborSums",)),), noise=False),
    RANDOMISED,
)
MASKS = (
    budgets("gaussian on features", lambda e: Gaussian(epsilon=e, on="RawFeatures")),
    Family("merge-neighbors", tuple(MergeNeighbors(size) for size in (2, 8)), noise=False),
    ENCRYPTION,
)
LATENTS = (
    budgets("clipped gaussian", lambda e: ClippedNoise("gaussian", epsilon=e, clip=1.0)),
    budgets("clipped laplace", lambda e: ClippedNoise("laplace", epsilon=e, clip=4.0)),
)
MODELS_TOO = (budgets("joint noise", lambda e: JointNoise(epsilon=e, on=("Latents", "ModelUpdate"), clip=(1.0, 1.0))),)
ENCODER = ("HiddenRepresentations", "Jacobians", "ModelUpdate")
ENCODERS = (
    ENCRYPTION,
    budgets("joint noise, clip 1", lambda e: JointNoise(epsilon=e, on=ENCODER, clip=(1.0, 1.0, 1.0))),
    # Nothing reaches this clip, so that mask flips stay visible without noise.
    budgets("joint noise, clip 100", lambda e: JointNoise(epsilon=e, on=ENCODER, clip=(100.0, 100.0, 100.0))),
)
_BOTH = ("GlobalNodes", "ModelUpdate")
UPLOADS = (
    Family(
        "clipped laplace, L1 norm",
        tuple(ClippedLaplace(clip=0.002, scale=scale, norm="l1", on=_BOTH) for scale in (1e-5, 1e-4, 0.001, 0.01)),
    ),
)

CASES: tuple[Case, ...] = (
    Case(FedGCN(hops=1, rounds=60), CITATIONS, FEW, SUMS),
    Case(FedGCN(hops=2, rounds=60), CITATIONS, FEW, SUMS),
    Case(NFedGNN(smoothness=10.0, rounds=60), CITATIONS, PER_NODE, LATENTS, observers=(SERVER_VIEW,), seeds=1),
    Case(FedGAT(rounds=10, heads=2), SMALL, FEW, MASKS),
    Case(GFLAPPNP(hidden=16, rounds=60), TASK, PER_NODE, ENCODERS, observers=(SERVER_VIEW, ONE_CLIENT)),
    Case(
        FedGT(rounds=10, hidden=64, feed_forward=64),
        CITATIONS,
        COMMUNITIES,
        UPLOADS,
        observers=(KNOWING_SERVER,),
        seeds=20,
    ),
    Case(CNFGNN(rounds=40, weight_decay=0.0), CITATIONS, PER_NODE, MODELS_TOO, observers=(SERVER_VIEW,), seeds=1),
    Case(FedGCN(hops=1, rounds=60), DatasetSpec("csbm-cora"), IID, SUMS, seeds=1),
)
"""A client of nFedGNN and CNFGNN receives the gradient of its own latent and an average of weights: no attack reads
either."""
