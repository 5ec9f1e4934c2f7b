"""The block-model graphs of GFL-APPNP's own figures: tags, edges and split, from the history of its authors' code.

Commit 0e8b938 of ``MingxuanZhangPurdue/GFL-APPNP`` still had their data: 20 draws per task that share one topology, one
split and one direction u of the features. ``csbm_published.csv`` has a line per node; its neighbours are those with
larger numbers. Of u only the length matters, for noise and first weights know no direction; the features themselves are
drawn here.

Of csbm-snc's 160 test nodes there 16 train and 18 validate as well; they are no test nodes here.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from fglaudit.graph import canonical_edges

LENGTHS = {"csbm-dnc": 0.9242, "csbm-snc": 0.9379, "csbm-sc": 0.9371}
"""Of u, by task; drawn from N(0, I / p) it is 1 on average."""


@dataclass(frozen=True)
class Topology:
    """What a task's draws share.

    Attributes:
        tags: [N], 0 or 1.
        edges: canonical, [2, E].
        masks: train, val and test [N]; None for csbm-sc, whose nodes' samples are split.
        length: of u.
    """

    tags: Tensor
    edges: Tensor
    masks: tuple[Tensor, Tensor, Tensor] | None
    length: float


def topology(name: str) -> Topology:
    """Return what all draws of the task called ``name`` share."""
    lines = [line for line in _lines() if line["task"] == name]
    pairs = [(int(line["node"]), int(other)) for line in lines for other in line["neighbours"].split()]
    parts = [line["part"] for line in lines]
    train, val, test = (torch.tensor([part == name for part in parts]) for name in ("train", "val", "test"))
    masks = (train, val, test) if any(parts) else None
    edges = canonical_edges(torch.tensor(pairs).T, len(lines))
    return Topology(torch.tensor([int(line["tag"]) for line in lines]), edges, masks, LENGTHS[name])


@cache
def _lines() -> tuple[dict[str, str], ...]:
    text = files("fglaudit.datasets").joinpath("csbm_published.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
