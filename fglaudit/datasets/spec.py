"""A data set as named in a suite, and its loading."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from fglaudit.datasets.catalog import ALIASES, DESCRIPTIONS, OGB_SOURCES, PYG_SOURCES
from fglaudit.datasets.csbm import draw
from fglaudit.datasets.csbm_options import CORA_LIKE, CsbmOptions
from fglaudit.datasets.csbm_tasks import PUBLISHED as TASK_SETS
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task, resolve
from fglaudit.datasets.npz import content_digest, load_npz
from fglaudit.datasets.ogb import load_ogb
from fglaudit.datasets.pyg import load_pyg
from fglaudit.datasets.raw import RawGraph, largest_component, row_normalised, scale_notes, standardised, to_graph
from fglaudit.datasets.subcora import subcora
from fglaudit.datasets.subcora_published import subcora_published
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files.field_types import CheckedFields
from fglaudit.graph import Graph

Scaling = Literal["raw", "row-normalised", "standardised"]
Split = Literal["public", "random", "random-shared"]
Component = Literal["all", "largest"]
_PUBLIC_SCALES = "features: standardised: means and deviations of columns count as public, and no epsilon covers them"
DRAWN = ("subcora", "subcora-published", *TASK_SETS)
"""Sets of which there are many random draws."""


@dataclass(frozen=True)
class DatasetSpec(CheckedFields):
    """Names a data set and how it is prepared. Equal specs on equal files give equal graphs.

    Attributes:
        name: see ``fglaudit list datasets``.
        root: folder of the raw files; None: ``$FGLAUDIT_DATA``, else ``../shared/data``.
        features: "raw"; "row-normalised": every row divided by its L1 norm, zero rows stay; or "standardised": every
            column with a mean of 0 and a deviation of 1 over all nodes, for columns of unlike scales.
        path: the file, for ``name: npz`` only.
        split: "public" masks, "random": every client draws its own, or "random-shared": drawn once over all nodes, so
            that clients that share a node use it alike (see ``fglaudit.partition``).
        train, val, test: fractions of a client's nodes for ``split: random``, of all nodes for ``random-shared``.
        split_index: which public split, where the set has several (Chameleon and Squirrel 10, WikiCS 20).
        component: "all" nodes, or the "largest" connected component only, with nodes renumbered: FedGT's counts of
            missing links are those of Cora's 2485 nodes in it.
        csbm: parameters for ``name: csbm``; None: the defaults of :class:`fglaudit.datasets.csbm_options.CsbmOptions`.
        task: parameters for csbm-dnc, csbm-snc and csbm-sc; omitted ones have the paper's values.
        draw: which random draw of csbm-dnc, csbm-snc, csbm-sc or subcora(-published): its graph, samples and split.
        sha256: for ``name: npz`` only, of the file's content in hex digits: another content is refused. None:
            :meth:`pinned` fills it in.
    """

    example: ClassVar[str] = "name: csbm-cora"

    name: str
    root: str | None = None
    features: Scaling = "raw"
    path: str | None = None
    split: Split = "public"
    train: float = 0.2
    val: float = 0.4
    test: float = 0.4
    split_index: int = 0
    component: Component = "all"
    csbm: CsbmOptions | None = None
    task: CsbmTask | None = None
    draw: int = 0
    sha256: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", ALIASES.get(self.name, self.name))
        if self.name not in DESCRIPTIONS and Path(self.name).suffix:
            raise FglauditError(
                f"a file is given as name: npz, path: FILE.npz; got name: {shown(self.name)}; other formats:"
                " fglaudit import makes an .npz of them"
            )
        if self.name not in DESCRIPTIONS:
            raise unknown("data set", self.name, DESCRIPTIONS, "fglaudit list datasets")
        if (self.name == "npz") != (self.path is not None):
            raise FglauditError(
                f"path belongs to name: npz and to no other; got name: {self.name}, path: {self.path}; change one"
            )
        if self.sha256 is not None and (self.path is None or not re.fullmatch(r"[0-9a-f]{64}", self.sha256)):
            raise FglauditError(
                f"sha256 is that of the file of name: npz, 64 hex digits; got name: {self.name}, sha256:"
                f" {shown(self.sha256)}; drop it or correct it"
            )
        if self.csbm is not None and self.name != "csbm":
            raise FglauditError(
                f"csbm parameters belong to name: csbm; got name: {self.name}; use name: csbm or drop them"
            )
        if self.task is not None and self.name not in TASK_SETS:
            raise FglauditError(
                f"task parameters belong to {', '.join(TASK_SETS)}; got name: {self.name}; change the name or drop them"
            )
        if self.name in TASK_SETS:
            resolve(self.name, self.task or CsbmTask())
        if self.draw < 0 or (self.draw > 0 and self.name not in DRAWN):
            raise FglauditError(
                f"draw counts the draws of {', '.join(DRAWN)} from 0; got name: {self.name}, draw: {self.draw}; drop it"
            )
        fractions = (self.train, self.val, self.test)
        if not all(math.isfinite(f) and 0 <= f <= 1 for f in fractions) or sum(fractions) > 1 + 1e-9:
            raise FglauditError(
                f"train, val and test are fractions in [0, 1] that add up to at most 1; got {self.train}, {self.val},"
                f" {self.test}; lower one"
            )
        if self.train == 0:
            raise FglauditError("train must be above 0: nothing is learned without training nodes; got 0; raise train")
        if self.split_index < 0:
            raise FglauditError(f"split_index counts public splits from 0; got {self.split_index}; use 0 or more")

    def pinned(self) -> DatasetSpec:
        """Return this spec with the SHA-256 of an own graph's file: from then on no other content is loaded.

        A file that does not exist is left to :meth:`load` to report.
        """
        if self.path is None or self.sha256 is not None:
            return self
        return dataclasses.replace(self, sha256=content_digest(self.path))

    def check_pin(self) -> None:
        """Raise :class:`FglauditError` if the file of an own graph is not the one that was pinned."""
        if self.path is not None and self.sha256 is not None and content_digest(self.path) != self.sha256:
            load_npz(self.path, self.sha256)

    @property
    def called(self) -> str:
        """What messages and tables call it: a graph of the user's own by its file, since several are all ``npz``."""
        return self.name if self.path is None else Path(self.path).stem

    def load(self) -> Graph:
        """Return the graph; see :meth:`load_with_notes`."""
        return self.load_with_notes()[0]

    def load_with_notes(self) -> tuple[Graph, tuple[str, ...]]:
        """Return the graph and notes on edges that were changed to be undirected, distinct and free of loops.

        Raises:
            FglauditError: missing or corrupt files, or a user's graph that breaks a rule. Nothing is ever downloaded.
        """
        graph, notes = self._load()
        if self.component == "largest":
            graph = largest_component(graph)
        if self.features == "row-normalised":
            graph = dataclasses.replace(graph, x=row_normalised(graph.x))
        elif self.features == "standardised":
            graph = dataclasses.replace(graph, x=standardised(graph.x))
            notes = (*notes, _PUBLIC_SCALES)
        elif self.path is not None:
            notes = (*notes, *scale_notes(graph.x))
        return graph, notes

    def _load(self) -> tuple[Graph, tuple[str, ...]]:
        if self.name == "csbm-cora":
            return draw(CORA_LIKE, self.name), ()
        if self.name == "csbm":
            return draw(self.csbm or CsbmOptions(), self.name), ()
        if self.name in TASK_SETS:
            return draw_task(self.name, self.task, self.draw), ()
        if self.name == "subcora":
            cora, notes = to_graph(load_pyg("cora", self.root), "cora", self.split_index)
            return subcora(cora, self.draw), notes
        if self.name == "subcora-published":
            cora, notes = to_graph(load_pyg("cora", self.root), "cora", self.split_index)
            return subcora_published(cora, self.draw), notes
        return to_graph(self._read(), self.called, self.split_index)

    def _read(self) -> RawGraph:
        if self.path is not None:
            return load_npz(self.path, self.sha256)
        if self.name in OGB_SOURCES:
            return load_ogb(self.name, self.root)
        assert self.name in PYG_SOURCES
        return load_pyg(self.name, self.root)
