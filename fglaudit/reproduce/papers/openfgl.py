"""Two baselines beside another library: FED-PUB and FedSage+ on Cora as OpenFGL (arXiv 2408.16288) trains them.

Settings are the defaults of its code (``xkLi-Allen/OpenFGL``, openfgl/config.py): ten clients of Louvain communities,
100 rounds of 3 epochs over the whole subgraph, Adam at 0.01 with an L2 penalty of 5e-4, dropout 0.5, 64 hidden units,
and each client's own model, after local training, on its own test nodes; 20/40/40 % of a client's nodes train, validate
and test. The round with the best validation accuracy counts. Networks and generator are those of this package. How
OpenFGL packs communities into clients and draws splits is its own, so a point or two is what partitions differ by.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.interfaces import FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.protocols.fedsage.fedsage import FedSage
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import CPU, Measured, Training, trained

SEEDS = range(5)
TABLE = "openfgl-cora"
_PRINTED = {"FED-PUB": 79.3, "FedSage+": 78.7}
_SETTINGS: dict[str, Any] = {"hidden": 64, "local_epochs": 3, "learning_rate": 0.01, "weight_decay": 5e-4}
_WHOLE = 1_000_000
"""Training nodes a step at most: all of a client's."""


def rows_of(table: str) -> tuple[Published, ...]:
    """Return the rows of ``TABLE``, none of another table."""
    if table != TABLE:
        return ()
    row = Published(TABLE, "cora", "louvain", "10", "", "accuracy", "percent", None, None)
    return tuple(replace(row, method=method, mean=figure) for method, figure in _PRINTED.items())


def figure(row: Published, seed: int, root: str | None, device: torch.device = CPU) -> Measured | str:
    """Return our figure for ``row``."""
    dataset = DatasetSpec(row.dataset, root, "raw", None, "random", 0.2, 0.4, 0.4)
    partition = PartitionSpec("louvain", clients=int(row.clients))
    outcome, measured = trained(Training(dataset, partition, protocol(row)), seed, device=device)
    return replace(measured, value=100 * outcome.client_mean)


def obstacle(row: Published) -> str:
    """Return why there is no figure for ``row``: "", there always is one."""
    return ""


def protocol(row: Published) -> FederatedProtocol:
    """Return what trains the row's method."""
    if row.method == "FED-PUB":
        return FedPub(batch_size=_WHOLE, **_SETTINGS)
    return FedSage(batch_size=_WHOLE, tested="local", **_SETTINGS)
