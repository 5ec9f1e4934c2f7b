"""Small trainings on which plugins are checked, and audits of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from fglaudit import registry
from fglaudit.auditing import Report, audit
from fglaudit.conformance.runs import example_graph
from fglaudit.conformance.small_graphs import connected, node_graph
from fglaudit.datasets.csbm import draw
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.interfaces import Attack, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.partition.spec import PartitionSpec

QUICK, WHOLE = (150, 300, 100, 6), (400, 800, 200, 10)
"""Nodes, edges, features and clients of the built-in graph."""

SMALL: dict[str, dict[str, Any]] = {
    "fedgcn": {"hops": 1, "rounds": 5},
    "fedgat": {"rounds": 3, "heads": 2, "hidden": 4},
    "gfl-appnp": {"rounds": 5},
    "nfedgnn": {"rounds": 5},
    "fedgt": {"rounds": 2},
}
"""Trainings that take seconds, by what is sent; the first one that fits a plugin is taken."""

ON_NODES = ("gfl-appnp", "nfedgnn")
"""Protocols in which every node is a client."""


def protocols_for(plugin: Any, asked: Sequence[str]) -> list[FederatedProtocol]:
    """Return small trainings of the protocols that ``plugin`` can be tried on."""
    names = asked or tuple(SMALL)
    built = [registry.build("protocol", name, SMALL.get(name, {})) for name in names]
    if isinstance(plugin, Attack):
        consumes = set(type(plugin).consumes)
        fitting = [p for p in built if consumes <= set(type(p).emits)]
        why = f"none of {', '.join(names)} sends all of {', '.join(t.__name__ for t in consumes)}"
    else:
        reasons = {type(p).name: plugin.unsupported(p.context(federated(p))) for p in built}
        fitting = [p for p in built if reasons[type(p).name] is None]
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    if not fitting:
        raise FglauditError(
            f"a plugin is checked on a protocol that it serves; {type(plugin).name} serves none: {why}; name another"
            " one with --protocol"
        )
    return fitting if asked else fitting[:1]


def federated(protocol: FederatedProtocol) -> FederatedGraph:
    """Return the small graph of the conformance kit, split as ``protocol`` needs it."""
    return node_graph() if type(protocol).name in ON_NODES else example_graph()


def audited(protocol: Any, defense: Any, quick: bool, attacks: Any = "all") -> Report:
    """Audit a training of ``protocol`` on a small built-in graph; ``quick``: one seed, two observers, no replays."""
    nodes, edges, features, clients = QUICK if quick else WHOLE
    options = CsbmOptions(nodes=nodes, edges=edges, dimensions=features)
    observers = [
        ObserverSpec(("server",), topology=True, auxiliary=0.1),
        ObserverSpec(("client:each",), topology=True, auxiliary=0.1),
    ]
    if not quick:
        observers += [ObserverSpec(("server",)), ObserverSpec(("client:each",))]
    per_node = type(protocol).name in ON_NODES
    if per_node:
        nodes = clients = min(nodes, 60)
        options = dataclasses.replace(options, nodes=nodes, edges=2 * nodes)
        observers = [observers[0], ObserverSpec(("client:0",), topology=True, auxiliary=0.1)]
    graph: Graph = draw(options, "embedded")
    if per_node:
        graph = dataclasses.replace(graph, edge_index=connected(graph.edge_index, graph.num_nodes))
    seeds = (0,) if quick else (0, 1, 2)
    with torch.random.fork_rng(devices=[]):
        return audit(
            graph,
            protocol=protocol,
            defense=defense,
            observers=observers,
            attacks=attacks,
            clients=clients,
            partition=PartitionSpec("per-node") if per_node else None,
            seeds=seeds,
            device="cpu",
            split="random",
            name="embedded",
            empirical=not quick,
        )
