"""Before anything trains: do the data load, and are they what an earlier part of the run saw?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from fglaudit.errors import FglauditError
from fglaudit.graph import Graph
from fglaudit.suite.suite import Suite

LARGE = ("ogbn-arxiv", "ogbn-products")
"""Not loaded here: that would cost minutes and gigabytes. Trouble with their files becomes failed rows of their
cells."""


@dataclass
class DataCheck:
    """Attributes:
    digests: by entry of the suite, over the content of its graph: results on other content must not be mixed.
    notes: what had to be changed in a graph, e.g. directed edges.
    """

    digests: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def check_data(suite: Suite) -> DataCheck:
    """Load every data set of ``suite`` once.

    Raises:
        FglauditError: missing or corrupt files, a user's graph that breaks a rule, more clients than nodes.
    """
    result = DataCheck()
    for number, spec in enumerate(suite.datasets):
        if spec.name in LARGE:
            continue
        where = f"datasets[{number}] {spec.path or spec.name}"
        try:
            graph, notes = spec.load_with_notes()
        except FglauditError as error:
            raise FglauditError(f"{where}: {error}") from error
        result.notes += [note for note in notes if note not in result.notes]
        result.digests[where] = digest(graph)
        for i, partition in enumerate(suite.partitions):
            if partition.scheme != "per-node" and partition.clients > graph.num_nodes:
                raise FglauditError(
                    f"partitions[{i}]: every client needs at least one node; got {partition.clients} clients for the "
                    f"{graph.num_nodes} nodes of {graph.name}; lower clients, or use scheme: per-node"
                )
    return result


def digest(graph: Graph) -> str:
    """Return 16 hex digits over features, labels, edges and public splits."""
    content = hashlib.blake2b(digest_size=8)
    for name in ("x", "y", "edge_index", "train", "val", "test"):
        if (tensor := getattr(graph, name)) is not None:
            content.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            content.update(tensor.contiguous().numpy().tobytes())
    return content.hexdigest()
