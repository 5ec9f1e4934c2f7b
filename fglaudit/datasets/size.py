"""How much memory a data set takes, before anything of it is read or drawn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fglaudit.datasets.catalog import OGB_SOURCES, PYG_SOURCES
from fglaudit.datasets.csbm_options import CORA_LIKE, CsbmOptions
from fglaudit.datasets.csbm_tasks import PUBLISHED as TASK_SETS
from fglaudit.datasets.csbm_tasks import CsbmTask, resolve
from fglaudit.datasets.spec import DatasetSpec
from fglaudit.graph import Graph

_FLOAT, _INTEGER = 4, 8
_UNKNOWN_MACHINE = 8 * 2**30


@dataclass(frozen=True)
class Size:
    """Bytes of features, labels and edges [2, E] of a graph; ``exact`` where they follow from stated counts."""

    bytes: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{'about' if self.exact else 'at least'} {in_words(self.bytes)}"


def expected_size(spec: DatasetSpec) -> Size:
    """Return what the graph of ``spec`` takes once it is loaded. Loading takes several times as much for a moment.

    Of a file of one's own the size on disk is known alone: compressed features can unfold a hundredfold. Where the
    number of edges is not known, they are left out.
    """
    if spec.path is not None:
        try:
            return Size(Path(spec.path).stat().st_size, exact=False)
        except OSError:  # reported where it is read
            return Size(0, exact=False)
    if spec.name in TASK_SETS:
        task = resolve(spec.name, spec.task or CsbmTask())
        rows = task.nodes * task.samples
        return Size(_bytes(rows, task.dimensions, round(task.nodes * task.degree)))
    if spec.name in ("csbm", "csbm-cora"):
        drawn = CORA_LIKE if spec.name == "csbm-cora" else spec.csbm or CsbmOptions()
        return Size(_bytes(drawn.nodes, drawn.dimensions, 2 * drawn.edges))
    if spec.name in OGB_SOURCES:
        source = OGB_SOURCES[spec.name]
        return Size(_bytes(source.nodes, source.features, 0), exact=False)
    published = PYG_SOURCES["cora" if spec.name.startswith("subcora") else spec.name]
    return Size(_bytes(published.nodes, published.features, published.edges or 0), exact=published.edges is not None)


def taken(graph: Graph) -> Size:
    """Return what ``graph`` takes, which is loaded."""
    return Size(sum(tensor.nbytes for tensor in (graph.x, graph.y, graph.edge_index)))


def machine_memory() -> int:
    """Return the bytes of memory that this machine has."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _UNKNOWN_MACHINE


def in_words(size: int) -> str:
    """Return a number of bytes as people read it."""
    for power, unit in ((40, "TiB"), (30, "GiB")):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    if size >= 0.05 * 2**20:
        return f"{size / 2**20:.1f} MiB"
    return f"{size / 2**10:.1f} KiB" if size >= 2**10 else f"{size} bytes"


def _bytes(rows: int, features: int, columns: int) -> int:
    return rows * (features * _FLOAT + _INTEGER) + 2 * columns * _INTEGER
