"""Does what a protocol states depend on private data? Defenses calibrate noise on it, and attacks are told it: a gain,
a number of releases or a seed that is made of rows or labels tells of them, though no message does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import torch

from fglaudit.conformance.side_channels import other_rows
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol

_LONGER = 10.0
"""By how much rows are longer, from which a norm or a largest entry would be taken."""


def told_by_words(protocol: FederatedProtocol, graph: FederatedGraph) -> str:
    """Return in words which statement of ``protocol`` is another one where rows or labels are; empty if none is."""
    stated = _stated(protocol, graph)
    for what, world in _worlds(graph):
        try:
            other = _stated(protocol, world)
        except FglauditError as error:
            return f"with {what} it states nothing ({error})"
        if wrong := [f"`{name}`" for name, value in stated.items() if other[name] != value]:
            return f"with {what} {', '.join(wrong)} state{'s' * (len(wrong) == 1)} something else"
    return ""


def overstated_losses(protocol: FederatedProtocol, graph: FederatedGraph) -> str:
    """Return in words where ``examples`` state more losses of a client than its training nodes have, by which passes
    over them are counted as fewer; empty if nowhere."""
    examples = protocol.examples(graph)
    if isinstance(examples, str) or not examples.losses:
        return ""
    trained = [int(mask.sum().item()) for mask in graph.train]
    trained = [sum(trained)] if examples.pooled else trained
    for client, (losses, nodes) in enumerate(zip(examples.losses, trained, strict=False)):
        if losses > examples.per_node * nodes:
            whose = "all clients" if examples.pooled else f"client {client}"
            return (
                f"`examples` state {examples.per_node} losses of a training node, and {losses} of the {nodes} training"
                f" nodes of {whose}"
            )
    return ""


def _worlds(graph: FederatedGraph) -> Iterator[tuple[str, FederatedGraph]]:
    """Yield the graph with other rows as long as its own, with none, with longer ones, and with other labels."""
    x = graph.x
    yield "other rows", replace(graph, x=other_rows(x))
    yield "rows of zeros", replace(graph, x=torch.zeros_like(x))
    yield "longer rows", replace(graph, x=(_LONGER * x.double() + 1).to(x.dtype))
    classes = max(1, graph.num_classes)
    yield "other labels", replace(graph, y=torch.where(graph.y >= 0, (graph.y + 1) % classes, graph.y))


def _stated(protocol: FederatedProtocol, graph: FederatedGraph) -> dict[str, Any]:
    """Return all that is stated, by its name; what a server adds up is left to the messages that show it."""
    context = protocol.context(graph)
    words = {field.name: getattr(context, field.name) for field in fields(context) if field.name != "aggregates"}
    return {**words, "structure": json.dumps(protocol.stated(graph).to_json(), sort_keys=True)}
