"""Contextual stochastic block model: a graph with communities whose nodes carry class-dependent features.

Edges follow a degree-corrected block model (Karrer and Newman, 2011): endpoints are drawn in proportion to a power-law
propensity, a fixed share of the edges (the homophily) inside a class, the rest across classes. Features are either
words (binary; Zipf frequencies, tilted per class) or Gaussian around a class centre, as in Deshpande et al. (2018):
their ``sqrt(mu / N)`` is ``signal`` here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.datasets.csbm_options import BORDER_MIXING, CsbmOptions
from fglaudit.errors import FglauditError
from fglaudit.files import limits
from fglaudit.graph import Graph, canonical_edges
from fglaudit.rng import derive

PUBLIC_TRAIN_PER_CLASS, PUBLIC_VAL, PUBLIC_TEST = 20, 500, 1000  # Cora's public split
MAX_REDRAWS = 1000


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
