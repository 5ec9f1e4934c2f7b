"""Small graphs with one user per node, and settings of nFedGNN and CNFGNN that fit them."""

from __future__ import annotations

import dataclasses
from typing import Any

from fglaudit.graph import FederatedGraph
from fglaudit.testing import example_graph

GCN: dict[str, Any] = {"hidden": 4, "rounds": 4, "dropout": 0.0, "learning_rate": 0.05, "server_learning_rate": 0.03}
GAT = GCN | {"split": "gat", "heads": 3}


def user_graph(nodes: int = 12, features: int = 24, **changes: Any) -> FederatedGraph:
    """Return the small example graph in float64 with client k holding node k."""
    example = example_graph(nodes=nodes, features=features, clients=nodes)
    return dataclasses.replace(example, **({"x": example.x.double()} | changes))
