"""The generators of GFL-APPNP's three tasks (Wu et al. 2022, appendix A.2.1), where every node is a client.

All start from the contextual stochastic block model of Deshpande et al. (2018): two classes, tags v = +-1 drawn with
probability 1/2, edges with probability ``(d + lambda sqrt(d)) / N`` inside a class and ``(d - lambda sqrt(d)) / N``
across, features ``sqrt(mu / N) v u + Z / sqrt(p)`` with ``u ~ N(0, I / p)`` and Z standard normal.

* ``csbm-dnc`` (deterministic node classification): one sample per node, its label is the tag.
* ``csbm-snc`` (stochastic node classification): several samples per node, all labelled with the tag.
* ``csbm-sc`` (supervised classification): the label of each sample is +1 with probability 0.7 where v = +1 and 0.3
  where v = -1, and replaces v in the features. Every node's samples are split; in the other two tasks the nodes are.

Choices where the text is silent or misprinted:

* Noise is ``Z / sqrt(p)``. The printed ``Z / p`` would let an MLP solve the task for which the paper reports 61 %.
* All graphs are drawn until connected, as the text says of csbm-sc alone: Assumption 3 needs it for all.
* The balanced, connected training set is grown: random neighbours of the nodes chosen so far, half of them of each
  class.
* Every draw has its own topology, unless ``topology`` fixes one, as in the paper's repetitions, or ``published`` takes
  the authors' own (:mod:`.csbm_published`).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.datasets.csbm_published import topology
from fglaudit.errors import FglauditError, unknown
from fglaudit.files import limits
from fglaudit.files.field_types import CheckedFields
from fglaudit.graph import Graph, canonical_edges, components
from fglaudit.rng import derive

MAX_REDRAWS = 2000
NODE_SHARE = 0.1
"""Share of the nodes that train, and as many that validate (csbm-dnc, csbm-snc)."""
SAMPLE_SHARE = 1 / 12
"""Share of a node's samples that train, and as many that validate (csbm-sc): 10, 10 and 100 of 120."""
LIKELY = 0.7


@dataclass(frozen=True)
class CsbmTask(CheckedFields):
    """Parameters of a generator; None stands for the paper's value for the task.

    Attributes:
        nodes: N.
        degree: expected degree d.
        graph_signal: lambda, how strongly edges depend on the tags; at most sqrt(d).
        feature_signal: mu, how strongly features depend on the tags.
        dimensions: features p.
        samples: samples per node; more than one exactly for csbm-snc and csbm-sc.
        topology: number of the draw whose tags, edges and split are used; None: every draw has its own.
        published: whether tags, edges and split are those of the paper's own figures; other values stay as they are.
    """

    nodes: int | None = None
    degree: float | None = None
    graph_signal: float | None = None
    feature_signal: float | None = None
    dimensions: int | None = None
    samples: int | None = None
    topology: int | None = None
    published: bool = False


@dataclass(frozen=True)
class _Values:
    nodes: int
    degree: float
    graph_signal: float
    feature_signal: float
    dimensions: int
    samples: int
    topology: int | None = None
    published: bool = False


PUBLISHED = {
    "csbm-dnc": _Values(200, 8.0, 2.0, 1.0, 100, 1),
    "csbm-snc": _Values(200, 10.0, 2.0, 1.0, 100, 40),
    "csbm-sc": _Values(50, 5.0, 2.2, 0.1, 100, 120),
}


def draw_task(name: str, task: CsbmTask | None = None, draw: int = 0) -> Graph:
    """Return draw number ``draw`` of a task's data; equal arguments give equal graphs.

    Returns:
        csbm-dnc: x [N, p], y and masks [N]; csbm-snc: x [N, S, p], y and masks [N]; csbm-sc: x [N, S, p], y and masks
            [N, S].

    Raises:
        FglauditError: unknown task, values out of range, or no connected graph (with a connected, balanced training
            set) found.
    """
    values = resolve(name, task or CsbmTask())
    if values.published:
        return _published(name, values, draw)
    rng = derive(draw if values.topology is None else values.topology, name, "graph")
    redraws = max(10, min(MAX_REDRAWS, 10 * limits.DRAWN // values.nodes**2))
    for _ in range(redraws):
        tags = torch.randint(2, (values.nodes,), generator=rng)
        edges = _edges(values, tags, rng)
        if bool((components(edges, values.nodes) > 0).any()):
            continue
        train = None if name == "csbm-sc" else balanced_connected(edges, tags, round(NODE_SHARE * values.nodes), rng)
        if name == "csbm-sc" or train is not None:
            return _fill(name, values, tags, edges, train, draw)
    raise FglauditError(
        f"{name} needs a connected graph; {redraws} draws with degree {values.degree:g} and graph_signal"
        f" {values.graph_signal:g} gave none; raise degree or lower graph_signal"
    )


def resolve(name: str, task: CsbmTask) -> _Values:
    """Return the parameters of the task called ``name`` with the paper's values where ``task`` has None.

    Raises:
        FglauditError: unknown name, or values out of range.
    """
    if name not in PUBLISHED:
        raise unknown("cSBM task", name, PUBLISHED)
    given = {key: value for key, value in dataclasses.asdict(task).items() if value is not None}
    values = dataclasses.replace(PUBLISHED[name], **given)
    most = (values.nodes - values.degree) / math.sqrt(max(values.degree, 1e-9))
    rules = [
        (values.nodes >= 10, f"nodes must be at least 10; got {values.nodes}; raise it"),
        (
            values.nodes**2 <= limits.PAIRS and values.nodes * values.samples * values.dimensions <= limits.ENTRIES,
            (
                f"nodes squared may be at most {limits.PAIRS}, nodes x samples x dimensions {limits.ENTRIES}; got"
                f" {values.nodes}, {values.samples} and {values.dimensions}; lower them"
            ),
        ),
        (0 < values.degree < values.nodes, f"degree must lie between 0 and nodes; got {values.degree:g}; change it"),
        (
            0 <= values.graph_signal <= min(math.sqrt(max(values.degree, 0)), most),
            (
                "graph_signal must lie in [0, min(sqrt(degree), (nodes - degree) / sqrt(degree))]; got"
                f" {values.graph_signal:g} with degree {values.degree:g}: edge probabilities would leave [0, 1];"
                " lower it"
            ),
        ),
        (
            values.feature_signal >= 0,
            f"feature_signal must not be negative; got {values.feature_signal:g}; use 0 or more",
        ),
        (values.dimensions >= 1, f"dimensions must be at least 1; got {values.dimensions}; raise it"),
        (
            (values.samples == 1) == (name == "csbm-dnc") and values.samples >= 1,
            f"samples must be 1 for csbm-dnc and more for the others; got {values.samples}; change samples or the task",
        ),
        (
            name != "csbm-sc" or values.samples >= 3,
            f"csbm-sc splits a node's samples in three; got {values.samples}; raise it",
        ),
    ]
    theirs = dataclasses.replace(PUBLISHED[name], published=True)
    rules.append((not values.published or values == theirs, "published goes with no other parameter; drop the others"))
    for holds, message in rules:
        if not holds:
            raise FglauditError(f"{name}: {message}")
    return values


def _edges(values: _Values, tags: Tensor, rng: torch.Generator) -> Tensor:
    """Return the canonical edges [2, E] of one draw of the block model."""
    swing = values.graph_signal * math.sqrt(values.degree)
    same = tags.unsqueeze(0) == tags.unsqueeze(1)
    probability = torch.where(same, values.degree + swing, values.degree - swing) / values.nodes
    drawn = torch.rand(values.nodes, values.nodes, generator=rng) < probability
    return canonical_edges(drawn.triu(1).nonzero().T, values.nodes)


def balanced_connected(edge_index: Tensor, labels: Tensor, size: int, rng: torch.Generator) -> Tensor | None:
    """Return a mask [N] of ``size`` connected nodes, half of each class; None if growing one fails."""
    adjacent = torch.zeros(len(labels), len(labels), dtype=torch.bool)
    adjacent[edge_index[0], edge_index[1]] = True
    room = [size - size // 2, size // 2]
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    frontier = torch.ones_like(chosen)
    for _ in range(size):
        open_class = torch.tensor([r > 0 for r in room])
        candidates = (frontier & ~chosen & open_class[labels]).nonzero().squeeze(1)
        if len(candidates) == 0:
            return None
        node = candidates[torch.randint(len(candidates), (1,), generator=rng)]
        chosen[node] = True
        room[int(labels[node].item())] -= 1
        frontier = adjacent[chosen].any(0)
    return chosen


def _fill(name: str, values: _Values, tags: Tensor, edges: Tensor, train: Tensor | None, draw: int) -> Graph:
    """Return the graph of ``tags`` [N], ``edges`` [2, E] and ``train`` [N], with features, labels and masks."""
    split = derive(draw if values.topology is None else values.topology, name, "split")
    shape = (values.nodes, values.samples)
    masks = _split_samples(shape, split) if train is None else _split_rest(train, split)
    return Graph(*_samples(name, values, tags, draw), edges, name, *masks)


def _published(name: str, values: _Values, draw: int) -> Graph:
    """Return the authors' graph with features of draw ``draw``."""
    found = topology(name)
    x, y = _samples(name, values, found.tags, draw, found.length)
    masks = found.masks or _split_samples((values.nodes, values.samples), derive(0, name, "split"))
    return Graph(x, y, found.edges, f"{name}, published", *masks)


def _samples(name: str, values: _Values, tags: Tensor, draw: int, length: float | None = None) -> tuple[Tensor, Tensor]:
    """Return features and labels for ``tags`` [N], shaped as :func:`draw_task` does; ``length`` is u's, None: drawn."""
    rng = derive(draw, name, "samples")
    shape = (values.nodes, values.samples)
    y = tags.unsqueeze(1).expand(shape)
    if name == "csbm-sc":
        y = (torch.rand(shape, generator=rng) < torch.where(y == 1, LIKELY, 1 - LIKELY)).long()
    p = values.dimensions
    direction = torch.randn(p, generator=rng) / math.sqrt(p)
    if length is not None:
        direction = direction * (length / direction.norm())
    noise = torch.randn(*shape, p, generator=rng) / math.sqrt(p)
    x = math.sqrt(values.feature_signal / values.nodes) * (2 * y - 1).unsqueeze(2) * direction + noise
    return (x, y) if name == "csbm-sc" else (x.squeeze(1), tags)


def _split_samples(shape: tuple[int, int], rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return train, val, test masks [N, S]; every node's samples are split alike."""
    rank = torch.rand(shape, generator=rng).argsort(1).argsort(1)
    count = max(1, round(SAMPLE_SHARE * shape[1]))
    return rank < count, (rank >= count) & (rank < 2 * count), rank >= 2 * count


def _split_rest(train: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return train, val, test masks [N]: as many validation as training nodes, the rest is tested."""
    rest = (~train).nonzero().squeeze(1)
    rest = rest[torch.randperm(len(rest), generator=rng)]
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[: int(train.sum().item())]] = True
    test[rest[int(train.sum().item()) :]] = True
    return train, val, test
