"""Defenses of rows, bound to FedGCN, and the size of a small transformer."""

from __future__ import annotations

from typing import Any

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph

TRANSFORMER: dict[str, Any] = {"hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3}


def bound(defense: Defense, graph: FederatedGraph | None = None) -> DefenseSession:
    return defense.bind(FedGCN().context(graph or example_graph()))
