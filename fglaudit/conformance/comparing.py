"""What every check needs: is it a plugin, did anything change, are two runs the same?"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import torch
from torch import Tensor

from fglaudit.conformance.runs import Run
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Trained


def same_messages(a: Run, b: Run) -> bool:
    """Whether two runs sent the same messages, bit for bit."""
    one, other = ([run.transcript.stored(i) for i in range(len(run.transcript.entries))] for run in (a, b))
    kinds = [[(entry.payload, entry.round) for entry in run.transcript.entries] for run in (a, b)]
    return kinds[0] == kinds[1] and one == other


def same_weights(a: Trained, b: Trained) -> bool:
    return a.weights.keys() == b.weights.keys() and all(
        torch.equal(a.weights[name], b.weights[name]) for name in a.weights
    )


def copy_of(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def graph_tensors(graph: FederatedGraph) -> dict[Any, Any]:
    listed = [graph.x, graph.y, graph.edge_index, *graph.clients, *graph.train, *graph.val, *graph.test]
    return dict(enumerate(t.clone() for t in listed))


def graph_digest(graph: FederatedGraph) -> str:
    """Return a digest of all that the graph holds."""
    digest = hashlib.sha256()
    for value in graph_tensors(graph).values():
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def assert_unchanged(before: dict[Any, Any], after: dict[Any, Any], rule: str) -> None:
    for key, value in before.items():
        same = torch.equal(value, after[key]) if isinstance(value, Tensor) else value == after[key]
        assert same, rule


def check_plugin(plugin: Any) -> None:
    kind = type(plugin)
    assert dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen, "a plugin is a frozen dataclass"  # type: ignore[attr-defined]
    assert isinstance(getattr(kind, "name", None), str), "a plugin has a name"
    assert kind.__doc__, "a plugin has a docstring: `fglaudit show` prints it"
