"""FedGCN's Table 2 on Cora and CiteSeer: 10 clients, 300 rounds of 3 local steps, accuracy at the last round.

Settings of the paper's appendix E.2; what it leaves open was chosen once for all rows: raw features (row-normalised
ones do not train with SGD at learning rate 0.5), weight decay 5e-4 on every layer, equal weights in the average. The
figure is the global model's accuracy, tested by every client on its own test nodes, mean over clients. The 1-hop rows
follow the paper's text; ``FedGCN(1-hop), as published code`` is what its authors ran (:mod:`.published_one_hop`),
and so is FedSage+, which has no generator there.
"""

from __future__ import annotations

import time
from dataclasses import replace

from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce import published_one_hop, unprinted
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured, Training, trained
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

SEEDS = range(10)
AS_PUBLISHED = "FedGCN(1-hop), as published code"
GENERATOR_NOISE = 0.1
"""What the authors add to neighbours' rows in place of a generator, for FedSage+."""
_HOPS = {"FedGCN(0-hop)": 0, "FedGCN(1-hop)": 1, "FedGCN(2-hop)": 2, AS_PUBLISHED: 1}


def figure(row: Published, seed: int, root: str | None) -> Measured | str:
    """Return our figure for ``row``, or why there is none."""
    if row.dataset.startswith("ogbn"):
        return "the networks with batch normalisation that the paper uses there are not built"
    found = protocol(row)
    if isinstance(found, str):
        return found
    dataset = DatasetSpec(row.dataset, root=root)
    scheme = row.setting.split(", ")[0]
    beta = float(scheme.removeprefix("beta=")) if scheme.startswith("beta=") else 10000.0
    partition = PartitionSpec("dirichlet", clients=int(row.clients or 10), beta=beta)
    if row.method in (AS_PUBLISHED, "FedSage+"):
        noise = GENERATOR_NOISE if row.method == "FedSage+" else 0.0
        return _as_published(dataset, partition, seed, noise)
    outcome, measured = trained(Training(dataset, partition, found), seed)
    return replace(measured, value=100 * outcome.client_mean)


def protocol(row: Published) -> FederatedProtocol | str:
    """Return what trains the row's method, or why nothing does.

    FedSage+ is the 1-hop variant of the published code (:mod:`.published_one_hop`) with noise on neighbours' rows.
    """
    changed = unprinted.fields(row.setting)
    match row.method:
        case "Centralized GCN":
            return GCN(**changed)
        case "BDS-GCN":
            return "sampling of boundary nodes is not built"
        case "FedSage+":
            return FedGCN(hops=1)
    return FedGCN(hops=_HOPS[row.method], **changed)


def more(rows: tuple[Published, ...]) -> tuple[Published, ...]:
    """Return the 1-hop rows once more, as the authors' code computes them."""
    return tuple(
        replace(row, method=AS_PUBLISHED)
        for row in rows
        if row.table == "fedgcn-table2" and row.method == "FedGCN(1-hop)" and not row.dataset.startswith("ogbn")
    )


def _as_published(dataset: DatasetSpec, partition: PartitionSpec, seed: int, noise: float) -> Measured:
    graph = partition.apply(dataset.load(), dataset, derive(seed, "partition"))
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(seed, "defense"))
    start = time.process_time()
    outcome = published_one_hop.train(FedGCN(), graph, channel, derive(seed, "train"), noise)
    return Measured(100 * outcome.client_mean, time.process_time() - start)
