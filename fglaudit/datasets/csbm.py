"""Contextual stochastic block model: a graph with communities whose nodes carry class-dependent features.

Edges follow a degree-corrected block model (Karrer and Newman, 2011): endpoints are drawn in proportion to a power-law
propensity, a fixed share of the edges (the homophily) inside a class, the rest across classes. Features are either
words (binary; Zipf frequencies, tilted per class) or Gaussian around a class centre, as in Deshpande et al. (2018):
their ``sqrt(mu / N)`` is ``signal`` here.

``CORA_LIKE`` has Cora's counts, so that everything runs without a download.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files import limits
from fglaudit.graph import Graph, canonical_edges
from fglaudit.rng import derive

PUBLIC_TRAIN_PER_CLASS, PUBLIC_VAL, PUBLIC_TEST = 20, 500, 1000  # Cora's public split
MAX_REDRAWS = 1000
BORDER_MIXING = 0.7  # share of a border node's edges that leave its class


@dataclass(frozen=True)
class CsbmOptions:
    """Parameters of the model.

    Attributes:
        nodes: number of nodes N.
        edges: exact number of undirected edges.
        classes: number of classes.
        dimensions: number of features F.
        homophily: share of edges that join two nodes of one class, met exactly (rounded to a whole edge).
        features: "binary" or "gaussian".
        ones_per_row: mean number of words in a row (binary only).
        signal: how strongly features depend on the class. Binary: standard deviation of the class's tilt of the log
            word frequencies. Gaussian: ratio of the class centre's norm to the noise's norm.
        degree_exponent: the node of rank r has propensity r ** -degree_exponent; 0 gives nearly equal degrees.
        border: share of nodes between the classes, as interdisciplinary papers are: they take most of the edges across
            classes (border * 0.7 <= 1 - homophily) and their features do not depend on the class. With 0 every node is
            equally typical of its class, and a GCN is right almost everywhere.
        class_sizes: nodes per class; None for sizes that differ by at most one.
        seed: of the draw. It belongs to the data set, not to the cell: all cells of a suite see one graph.
    """

    nodes: int = 1000
    edges: int = 3000
    classes: int = 5
    dimensions: int = 300
    homophily: float = 0.8
    features: str = "binary"
    ones_per_row: float = 18.0
    signal: float = 1.0
    degree_exponent: float = 0.5
    border: float = 0.0
    class_sizes: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features not in ("binary", "gaussian"):
            raise unknown("csbm feature type", self.features, ["binary", "gaussian"])
        if self.class_sizes is not None:
            object.__setattr__(self, "class_sizes", tuple(self.class_sizes))
        if self.classes > limits.CLASSES:
            raise FglauditError(
                f"csbm draws at most {limits.CLASSES} classes; got {self.classes}; set classes: {limits.CLASSES} or"
                " less"
            )
        sizes = self.sizes()
        rules = [
            (self.classes >= 2, f"csbm needs at least 2 classes; got {self.classes}; set classes: 2 or more"),
            (
                len(sizes) == self.classes and sum(sizes) == self.nodes and min(sizes, default=0) >= 1,
                (
                    "csbm needs one size of at least 1 per class, adding up to nodes; got class_sizes"
                    f" {shown(list(sizes))} for {self.classes} classes and {self.nodes} nodes; change class_sizes,"
                    " classes or nodes"
                ),
            ),
            (0 <= self.homophily <= 1, f"csbm needs homophily in [0, 1]; got {self.homophily}; it is a share of edges"),
            (self.dimensions >= 1, f"csbm needs at least 1 feature; got dimensions: {self.dimensions}; raise it"),
            (
                max(self.nodes, self.classes) * self.dimensions <= limits.ENTRIES,
                (
                    f"csbm draws at most {limits.ENTRIES} features in all; got {self.nodes} nodes with"
                    f" {self.dimensions} each; lower nodes or dimensions"
                ),
            ),
            (
                self.edges <= limits.SIZES["edges"],
                f"csbm draws at most {limits.SIZES['edges']} edges; got {self.edges}; lower edges",
            ),
            (
                self.signal >= 0,
                f"csbm needs signal >= 0; got {self.signal}; use 0 for features that do not depend on the class",
            ),
            (
                self.degree_exponent >= 0,
                f"csbm needs degree_exponent >= 0; got {self.degree_exponent}; use 0 for nearly equal degrees",
            ),
            (
                self.border >= 0 and self.border * BORDER_MIXING <= 1 - self.homophily + 1e-9,
                (
                    f"csbm needs 0 <= border * {BORDER_MIXING} <= 1 - homophily; got border {self.border} with"
                    f" homophily {self.homophily}; lower border"
                ),
            ),
            (
                self.features == "gaussian" or 0 < self.ones_per_row <= self.dimensions,
                (
                    f"csbm needs ones_per_row in (0, dimensions]; got {self.ones_per_row} with dimensions"
                    f" {self.dimensions}; lower it"
                ),
            ),
        ]
        for holds, message in rules:
            if not holds:
                raise FglauditError(message)
        self._check_room(sizes)

    def _check_room(self, sizes: tuple[int, ...]) -> None:
        """Raise :class:`FglauditError` unless the pairs inside and across classes leave room for the edges."""
        inside, across = self.edge_counts()
        room_inside = sum(size * (size - 1) // 2 for size in sizes)
        room_across = self.nodes * (self.nodes - 1) // 2 - room_inside
        if self.edges < 0 or inside > room_inside // 2 or across > room_across // 2:
            raise FglauditError(
                f"csbm draws sparse graphs: at most half of all pairs may be edges; got {inside} edges inside classes"
                f" of {room_inside} pairs and {across} across of {room_across}; lower edges or change homophily"
            )

    def sizes(self) -> tuple[int, ...]:
        """Nodes per class."""
        if self.class_sizes is not None:
            return self.class_sizes
        share, extra = divmod(self.nodes, max(self.classes, 1))
        return tuple(share + (c < extra) for c in range(self.classes))

    def edge_counts(self) -> tuple[int, int]:
        """Undirected edges (inside a class, across classes)."""
        inside = round(self.homophily * self.edges)
        return inside, self.edges - inside


CORA_LIKE = CsbmOptions(
    nodes=2708,
    edges=5278,
    classes=7,
    dimensions=1433,
    homophily=0.81,
    features="binary",
    ones_per_row=18.2,
    signal=1.0,
    degree_exponent=0.68,
    border=0.27,
    class_sizes=(351, 217, 418, 818, 426, 298, 180),
    seed=2708,
)


def draw(options: CsbmOptions, name: str = "csbm") -> Graph:
    """Draw a graph; equal options give equal graphs.

    Public split: 20 nodes per class, then 500 validation and 1000 test nodes, as in Cora; where the classes or the
    graph are too small for that, a fifth of every class trains (at least one node) and the rest is validation and test
    as 1 : 2.
    """
    labels = torch.repeat_interleave(torch.arange(options.classes), torch.tensor(options.sizes()))
    edge_index = _draw_edges(options, labels)
    x = _draw_words(options, labels) if options.features == "binary" else _draw_gaussian(options, labels)
    # Up to here nodes are sorted by class; a fixed shuffle hides that from everything that looks at node ids.
    order = torch.randperm(options.nodes, generator=derive(options.seed, "csbm", "order"))
    position = torch.empty_like(order)
    position[order] = torch.arange(options.nodes)
    labels = labels[order]
    train, val, test = _public_split(options, labels)
    return Graph(
        x=x[order],
        y=labels,
        edge_index=canonical_edges(position[edge_index], options.nodes),
        name=name,
        train=train,
        val=val,
        test=test,
    )


def _draw_edges(options: CsbmOptions, labels: Tensor) -> Tensor:
    """Return undirected edges [2, edges], each once; no node is isolated if there are enough edges."""
    rng = derive(options.seed, "csbm", "edges")
    n = options.nodes
    rank = torch.randperm(n, generator=rng) + 1
    propensity = rank.double() ** -options.degree_exponent
    mixing = _mixing(options)

    def codes_of(a: Tensor, b: Tensor, same: bool) -> Tensor:
        # Rounding at an interval's end may pick the neighbouring class.
        good = (a != b) & ((labels[a] == labels[b]) == same)
        a, b = a[good], b[good]
        return torch.minimum(a, b) * n + torch.maximum(a, b)

    # One edge for every node first, of the kind that homophily says, then the rest in proportion to the propensities.
    first = torch.randperm(n, generator=rng) if options.edges >= n else torch.empty(0, dtype=torch.long)
    is_inside = torch.rand(len(first), generator=rng) >= mixing[first]
    kinds = []
    redraws = max(20, min(MAX_REDRAWS, limits.DRAWN // max(options.edges, 1)))
    for same, count in zip((True, False), options.edge_counts(), strict=True):
        ends = _Endpoints(propensity * (1 - mixing if same else mixing), labels, options)
        starts = first[is_inside == same][:count]
        codes = torch.empty(0, dtype=torch.long)
        for _ in range(redraws):
            partners = ends.partner(starts, same, rng)
            codes = torch.unique(torch.cat([codes, codes_of(starts, partners, same)]))
            starts = starts[starts == partners]  # drew themselves
            if len(starts) == 0:
                break
        for _ in range(redraws):
            missing = count - len(codes)
            if missing == 0:
                break
            starts = ends.any(missing, rng)
            codes = torch.unique(torch.cat([codes, codes_of(starts, ends.partner(starts, same, rng), same)]))
        else:
            raise FglauditError(
                f"csbm draws distinct edges; {count - len(codes)} of {count} could not be placed at degree_exponent "
                f"{options.degree_exponent}: hubs are full; lower edges or degree_exponent"
            )
        kinds.append(codes)
    codes = torch.cat(kinds)
    return torch.stack([torch.div(codes, n, rounding_mode="floor"), codes % n])


def _border(options: CsbmOptions) -> Tensor:
    """Return which nodes lie between the classes [N]."""
    return torch.rand(options.nodes, generator=derive(options.seed, "csbm", "border")) < options.border


def _mixing(options: CsbmOptions) -> Tensor:
    """Return the expected share of across-class edges of every node [N]; the mean is 1 - homophily."""
    rest = max(0.0, (1 - options.homophily - options.border * BORDER_MIXING) / max(1 - options.border, 1e-9))
    shares = torch.tensor([rest, BORDER_MIXING], dtype=torch.float64)
    return shares[_border(options).long()]


class _Endpoints:
    """Draws end points in proportion to ``weights`` [N]; nodes are sorted by class."""

    def __init__(self, weights: Tensor, labels: Tensor, options: CsbmOptions) -> None:
        self.labels = labels
        # Node i owns the interval (reach[i - 1], reach[i]]; those of a class are adjacent.
        self.reach = weights.cumsum(0)
        self.high = self.reach[torch.tensor(options.sizes()).cumsum(0) - 1]
        self.low = torch.cat([self.high.new_zeros(1), self.high[:-1]])
        self.total = self.reach[-1]

    def _pick(self, at: Tensor) -> Tensor:
        return torch.searchsorted(self.reach, at).clamp_(max=len(self.reach) - 1)

    def any(self, count: int, rng: torch.Generator) -> Tensor:
        return self._pick(torch.rand(count, generator=rng, dtype=torch.float64) * self.total)

    def partner(self, nodes: Tensor, same: bool, rng: torch.Generator) -> Tensor:
        """One end point per node, of its own class or of any other."""
        low, high = self.low[self.labels[nodes]], self.high[self.labels[nodes]]
        uniform = torch.rand(len(nodes), generator=rng, dtype=torch.float64)
        if same:
            return self._pick(low + uniform * (high - low))
        return self._pick((high + uniform * (self.total - (high - low))) % self.total)


def _draw_words(options: CsbmOptions, labels: Tensor) -> Tensor:
    """Return binary rows [N, F]: words without replacement (Gumbel top-k) from the class's tilted Zipf law."""
    rng = derive(options.seed, "csbm", "words")
    zipf = -torch.log(torch.arange(options.dimensions) + 10.0)  # offset (Mandelbrot): no single word dominates
    zipf = zipf[torch.randperm(options.dimensions, generator=rng)]
    tilt = options.signal * torch.randn(options.classes, options.dimensions, generator=rng)
    weights = zipf + torch.where(_border(options).unsqueeze(1), 0.0, tilt[labels])
    spread = options.ones_per_row / 4
    counts = options.ones_per_row + spread * torch.randn(options.nodes, generator=rng)
    counts = counts.round().long().clamp(1, options.dimensions)
    gumbel = -torch.log(-torch.log(torch.rand(options.nodes, options.dimensions, generator=rng).clamp(1e-12, 1 - 1e-7)))
    best = (weights + gumbel).topk(int(counts.max().item()), dim=1).indices
    kept = torch.arange(best.shape[1]) < counts.unsqueeze(1)
    return torch.zeros(options.nodes, options.dimensions).scatter_(1, best, kept.float())


def _draw_gaussian(options: CsbmOptions, labels: Tensor) -> Tensor:
    """Return rows [N, F] around class centres; noise and centres have unit expected norm before ``signal``."""
    rng = derive(options.seed, "csbm", "gaussian")
    scale = 1 / math.sqrt(options.dimensions)
    centres = torch.randn(options.classes, options.dimensions, generator=rng) * scale
    noise = torch.randn(options.nodes, options.dimensions, generator=rng) * scale
    shift = centres[labels] * (~_border(options)).unsqueeze(1)
    return noise + shift * options.signal


def _public_split(options: CsbmOptions, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return train, val, test masks [N]; see :func:`draw`."""
    order = torch.randperm(options.nodes, generator=derive(options.seed, "csbm", "split"))
    sizes = torch.tensor(options.sizes())
    cora_like = (
        int(sizes.min().item()) >= PUBLIC_TRAIN_PER_CLASS
        and options.nodes >= PUBLIC_TRAIN_PER_CLASS * options.classes + PUBLIC_VAL + PUBLIC_TEST
    )
    per_class = torch.full_like(sizes, PUBLIC_TRAIN_PER_CLASS) if cora_like else (sizes // 5).clamp(min=1)
    by_class = order[torch.argsort(labels[order], stable=True)]
    rank = torch.arange(options.nodes) - (sizes.cumsum(0) - sizes)[labels[by_class]]
    train = torch.zeros(options.nodes, dtype=torch.bool)
    train[by_class[rank < per_class[labels[by_class]]]] = True
    rest = order[~train[order]]
    num_val = PUBLIC_VAL if cora_like else len(rest) // 3
    num_test = PUBLIC_TEST if cora_like else len(rest) - num_val
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[:num_val]] = True
    test[rest[num_val : num_val + num_test]] = True
    return train, val, test
