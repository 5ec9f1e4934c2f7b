"""What the intervals of findings cover, in simulation, beside other methods: the tables of ``docs/intervals.md``.

Clusters of targets are drawn with a known truth (``draws.py``); a cell is a number of clusters, equal or
uneven sizes, an intra-cluster correlation and a truth. Parts: "rate", "beyond" (rates at correlations above the stated
0.5), "advantage" (in a rate, over a control on the same targets), "score" (cosine, F1 ...), "idle" (scores of which
many clusters show no change), "auc" (over positives and negatives), "trainings" (rates of ten clients each of several
trainings, whose own rates have the correlation of the cell), "null" (seven attacks that are no better than their
control) and "leak" (one of the seven is).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bench.intervals import rivals
from bench.intervals.draws import (
    Drawn,
    Floats,
    cluster_rates,
    cluster_sizes,
    generator,
    hits,
    paired_hits,
    ranked,
    ranked_advantage,
    score_advantage,
    scores,
    trained_hits,
)
from bench.intervals.rate_interval import rate_interval
from fglaudit.quantities.ranking import against, placements
from fglaudit.reproduce.measurements import Table
from fglaudit.scoring.clusters import TAIL, Interval, PairedClusters
from fglaudit.scoring.many_attacks import step_down
from fglaudit.scoring.metrics import clusters_of, exceeds_zero, metric_interval
from fglaudit.scoring.rates import advantage_interval, clusters_needed
from fglaudit.scoring.scores import score_advantage_interval

KEY = ("part", "clusters", "sizes", "correlation", "truth", "method")
VALUES = ("coverage", "width", "median_width", "runs")
OURS = "ours"
SIZES = ("equal", "uneven")
ATTACKS = 7
RUNS = {
    "rate": 20000,
    "beyond": 4000,
    "advantage": 250,
    "score": 1000,
    "idle": 300,
    "auc": 1000,
    "trainings": 100,
    "null": 100,
    "leak": 100,
}
SCORE_FAMILY_RUNS = 500
"""Runs of "null" and "leak" where scores are attacked, whose intervals are quick."""
RIVAL_RUNS = 1000
"""Most runs of a cell that other methods see, which are slower where they resample."""
SIDES = ((500, 500), (500, 100), (1000, 30), (100, 1000))
"""Positives and negatives of a ranking."""
ALONE = "positives alone"
CLIENTS_ALONE = "over clients alone"
CLIENTS = 10
"""Of a training."""
AMONG_CLIENTS = 0.1
"""Intra-cluster correlation of a client's targets beside what its training has in common."""
PAIRED_RATES = ((0.01, 0.01), (0.05, 0.01), (0.5, 0.01), (0.3, 0.3), (0.8, 0.3), (0.8, 0.7))
TIES = ("independent", "alike", "superset", "copy", "opposed")
STRESS = "opposed"
"""The tie that is no part of the bar: see docs/intervals.md."""


class Cell(NamedTuple):
    """One simulated truth.

    Attributes:
        rate: the true rate or mean score; in families, that of the control and of every harmless attack.
        shape: of the clusters' rates, the tie to a control, the kind of control, or what a family attacks.
        second: the control's rate, the share of idle clusters, or how much better the one attack that leaks is.
    """

    part: str
    clusters: int
    sizes: str
    correlation: float
    rate: float
    shape: str
    second: float = 0.0

    def key(self) -> dict[str, object]:
        """Return the columns that identify it, but for the method."""
        truth = f"{self.shape} {self.rate:g}" + (f" {self.second:g}" if self.second else "")
        return {**{name: getattr(self, name) for name in KEY[:4]}, "truth": truth}


class Result(NamedTuple):
    """One method in one cell; ``coverage`` is the share of runs with a leak called in "null" and "leak"."""

    coverage: float
    width: float
    median_width: float
    runs: int

    @staticmethod
    def of(low: Floats, high: Floats, truth: float) -> Result:
        """Count how often limits [R] hold the truth, and how wide they are."""
        holds = (low <= truth + 1e-9) & (high >= truth - 1e-9)
        width = np.minimum(high, 1) - np.maximum(low, -1)
        return Result(float(holds.mean()), float(width.mean()), float(np.median(width)), len(low))


def cells() -> Iterator[Cell]:
    """Yield everything that is simulated."""
    yield from _rate_cells()
    yield from _advantage_cells()
    yield from _score_cells()
    yield from _flag_cells()


def _rate_cells() -> Iterator[Cell]:
    """Yield rates over clusters, also of clusters more alike than is assumed, and over trainings."""
    for clusters, sizes, shape in product((5, 6, 10, 20, 40), SIZES, ("beta", "mixture")):
        for correlation, rate in product((0.0, 0.1, 0.3, 0.5), (0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9)):
            if correlation or shape == "beta":
                yield Cell("rate", clusters, sizes, correlation, rate, shape)
    for clusters, sizes, correlation, rate in product((5, 10), SIZES, (0.8, 1.0), (0.01, 0.1, 0.3, 0.5, 0.9)):
        yield Cell("beyond", clusters, sizes, correlation, rate, "mixture")
    for trainings, correlation, rate in product((3, 5, 20), (0.0, 0.1, 0.5), (0.05, 0.3)):
        yield Cell("trainings", trainings, "equal", correlation, rate, "beta")


def _advantage_cells() -> Iterator[Cell]:
    """Yield rates beside a control."""
    for clusters, sizes, tie in product((5, 20), SIZES, TIES):
        for value, control in PAIRED_RATES:
            if tie != "copy" or value <= control + 0.2 * (1 - control):
                yield Cell("advantage", clusters, sizes, 0.5, value, tie, control)


def _score_cells() -> Iterator[Cell]:
    """Yield means of scores, also where many clusters are idle, and areas under a curve."""
    for clusters, sizes, correlation in product((5, 40), SIZES, (0.0, 0.3, 0.5)):
        for mean, kind in product((0.1, 0.5, 0.9), ("none", "independent", "shared")):
            yield Cell("score", clusters, sizes, correlation, mean, kind)
    for clusters, sizes, idle, score in product((5, 10), SIZES, (0.3, 0.5, 0.8), (0.1, 0.5)):
        yield Cell("idle", clusters, sizes, 0.3, score, "none", idle)
    for clusters, sizes, correlation, shift in product((10, 40), SIZES, (0.0, 0.2), (0.0, 0.5)):
        for positives, negatives in SIDES:
            yield Cell("auc", clusters, sizes, correlation, shift, f"{positives}/{negatives}")


def _flag_cells() -> Iterator[Cell]:
    """Yield seven attacks beside one control: none is better than it, or one."""
    for part, clusters, sizes, correlation in product(("null", "leak"), (5, 20), SIZES, (0.0, 0.5)):
        if part == "null" or sizes == "equal":
            better = 0.0 if part == "null" else 0.2
            for rate in (0.01, 0.3):
                yield Cell(part, clusters, sizes, correlation, rate, "rate", better)
            yield Cell(part, clusters, sizes, correlation, 0.3, "score", better)


def run(results: Path) -> None:
    """Simulate what is missing in ``results/intervals.csv``, then print the tables."""
    table = Table(results / "intervals.csv", KEY, VALUES)
    done = {tuple(row[column] for column in KEY[:-1]) for row in table.rows() if row["method"] == OURS}
    for cell in cells():
        if tuple(str(value) for value in cell.key().values()) not in done:
            for method, result in reversed(simulate(cell, RUNS[cell.part]).items()):  # ours last: it ends the cell
                figures = {name: f"{value:.5g}" for name, value in result._asdict().items()}
                table.add({**cell.key(), "method": method, **figures})
    for line in report(table.rows()):
        print(line)


def simulate(cell: Cell, runs: int) -> dict[str, Result]:
    """Return every method's coverage and width in one cell, ours first."""
    rng = generator(*(str(value) for value in cell))
    sizes = cluster_sizes(cell.clusters, cell.sizes)
    if cell.part in ("rate", "beyond"):
        return _rates(cell, sizes, hits(rng, sizes, cell.rate, cell.correlation, cell.shape, runs), rng)
    if cell.part == "advantage":
        drawn = paired_hits(rng, sizes, cell.rate, cell.second, cell.correlation, cell.shape, runs)
        return _advantages(sizes, drawn, (cell.rate - cell.second) / (1 - cell.second), advantage_interval, rng)
    if cell.part in ("score", "idle"):
        drawn = scores(rng, sizes, cell.rate, cell.correlation, cell.shape, cell.second, runs)
        truth = score_advantage(cell.rate, cell.shape, cell.second)
        return _advantages(sizes, drawn, truth, score_advantage_interval, rng)
    if cell.part == "trainings":
        return _trainings(cell, runs, rng)
    if cell.part == "auc":
        return _rankings(cell, sizes, runs, rng)
    return _families(cell, sizes, SCORE_FAMILY_RUNS if cell.shape == "score" else runs, rng)


def _rates(cell: Cell, sizes: Floats, drawn: Floats, rng: np.random.Generator) -> dict[str, Result]:
    # The interval depends on the total and on whether all clusters are all or nothing: one call for each such pair.
    whole = ((drawn == 0) | (drawn == sizes)).all(1)
    _, first, index = np.unique(drawn.sum(1) * 2 + whole, return_index=True, return_inverse=True)
    limits = np.array([_ends(rate_interval(sizes, drawn[row])) for row in first])[index]
    few = drawn[:RIVAL_RUNS]
    sized = np.broadcast_to(sizes, few.shape)
    others = {
        "plain t": rivals.plain_t(few, sized),
        "Korn-Graubard": rivals.korn_graubard(few, sized),
        **rivals.resamplings(few, sized, rng),
    }
    return _judged(cell.rate, limits, others)


def _advantages(
    sizes: Floats, drawn: Drawn, truth: float, interval: Callable[[PairedClusters], Interval], rng: np.random.Generator
) -> dict[str, Result]:
    pairs = [PairedClusters(sizes, *row) for row in zip(*drawn, strict=True)]
    usable = np.array([pair.informative and bool(np.count_nonzero(pair.room) > 1) for pair in pairs])
    limits = np.array([_ends(interval(pair)) for pair, use in zip(pairs, usable, strict=True) if use])
    net, room = (drawn.gained - drawn.lost)[usable][:RIVAL_RUNS], (sizes - drawn.control)[usable][:RIVAL_RUNS]
    others = {
        "plain t": rivals.plain_t(net, room),
        "jackknife t": rivals.jackknife_t(net, room),
        **rivals.resamplings(net, room, rng),
    }
    if not drawn.control.any():
        others["logit t"] = rivals.logit_t(net, room)
    return _judged(truth, limits, others)


def _rankings(cell: Cell, sizes: Floats, runs: int, rng: np.random.Generator) -> dict[str, Result]:
    """Ours beside an error that takes the negatives for all there are."""
    positives, negatives = map(int, cell.shape.split("/"))
    limits: dict[str, list[tuple[float, float]]] = {OURS: [], ALONE: []}
    for _ in range(runs):
        drawn = ranked(rng, sizes, (positives, negatives), cell.correlation, cell.rate)
        positive, negative, clusters, others = (torch.from_numpy(part) for part in drawn)
        values, found = placements(positive, negative), against(positive, negative, others)
        control, half = torch.full_like(values, 0.5), found._replace(values=torch.full_like(found.values, 0.5))
        for method, sides in ((OURS, (found, half)), (ALONE, None)):
            limits[method].append(_ends(metric_interval("auc", clusters_of("auc", clusters, values, control, sides))))
    truth = ranked_advantage(sizes, cell.correlation, cell.rate)
    ends = {method: np.array(found) for method, found in limits.items()}
    return {method: Result.of(found[:, 0], found[:, 1], truth) for method, found in ends.items()}


def _trainings(cell: Cell, runs: int, rng: np.random.Generator) -> dict[str, Result]:
    """Ours beside intervals that take all clients of all trainings for independent."""
    sizes = cluster_sizes(cell.clusters * CLIENTS, cell.sizes)
    own = cluster_rates(rng, cell.rate, cell.correlation, cell.shape, (runs, cell.clusters))
    found = trained_hits(rng, sizes, own.repeat(CLIENTS, 1), AMONG_CLIENTS)
    trainings, none = np.arange(float(cell.clusters)).repeat(CLIENTS), np.zeros_like(sizes)
    limits: dict[str, list[tuple[float, float]]] = {OURS: [], CLIENTS_ALONE: []}
    for row in found:
        alone = PairedClusters(sizes, none, row, none)
        together = dataclasses.replace(alone, trainings=trainings)
        limits[CLIENTS_ALONE].append(_ends(metric_interval("exact_rate", alone)))
        limits[OURS].append(_ends(metric_interval("exact_rate", together)))
    ends = {method: np.array(each) for method, each in limits.items()}
    return {method: Result.of(each[:, 0], each[:, 1], cell.rate) for method, each in ends.items()}


def _judged(truth: float, limits: Floats, others: Mapping[str, rivals.Limits]) -> dict[str, Result]:
    judged = {OURS: Result.of(limits[:, 0], limits[:, 1], truth)}
    return judged | {name: Result.of(*ends, truth) for name, ends in others.items()}


def _ends(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None and interval.high is not None
    return interval.low, interval.high


def _families(cell: Cell, sizes: Floats, runs: int, rng: np.random.Generator) -> dict[str, Result]:
    """Seven attacks that share one control; in "leak" the first is better than it."""
    family = []
    for attack in range(ATTACKS):
        value = cell.rate + (cell.second if attack == 0 else 0.0)
        family.append(_attack(cell, sizes, value, runs, rng))
    runs_of = [[Drawn(*(part[i] for part in drawn)) for drawn in family] for i in range(runs)]
    metric = "exact_rate" if cell.shape == "rate" else "f1"
    judged: dict[str, list[list[bool]]] = {
        OURS: [_called(sizes, one, metric, alone=False) for one in runs_of],
        "uncorrected": [_called(sizes, one, metric, alone=True) for one in runs_of],
    }
    bootstrap = [rivals.resamplings(d.gained - d.lost, sizes - d.control, rng)["percentile"][0] > 0 for d in family]
    judged["percentile, uncorrected"] = np.stack(bootstrap, 1).tolist()
    counted = judged if cell.part == "null" else {name: [row[:1] for row in rows] for name, rows in judged.items()}
    return {n: Result(float(np.mean([any(row) for row in rows])), 0, 0, runs) for n, rows in counted.items()}


def _attack(cell: Cell, sizes: Floats, value: float, runs: int, rng: np.random.Generator) -> Drawn:
    """One attack with rate or mean score ``value`` beside the control that all attacks of the cell share."""
    shared = generator("control", *(str(v) for v in cell))  # the same stream for every attack: the same control
    if cell.shape == "rate":
        control = hits(shared, sizes, cell.rate, cell.correlation, "beta", runs).astype(np.int64)
        own = _own_rates(rng, cell, value, control.shape)
        gained, lost = rng.binomial(sizes.astype(np.int64) - control, own), rng.binomial(control, 1 - own)
        return Drawn(*(part.astype(np.float64) for part in (control, gained, lost)))
    guess = scores(shared, sizes, cell.rate, cell.correlation, "none", 0.0, runs).gained
    moved = scores(rng, sizes, value, cell.correlation, "none", 0.0, runs).gained - guess
    return Drawn(guess, np.maximum(moved, 0), np.maximum(-moved, 0))


def _own_rates(rng: np.random.Generator, cell: Cell, value: float, shape: tuple[int, ...]) -> Floats:
    """Draw an attack's own rate in every cluster of every run."""
    if cell.correlation == 0:
        return np.full(shape, value)
    concentration = (1 - cell.correlation) / cell.correlation
    return rng.beta(value * concentration, (1 - value) * concentration, shape)


def _called(sizes: Floats, family: list[Drawn], metric: str, *, alone: bool) -> list[bool]:
    """Return which attacks are called leaks over all clusters, as reports call them; ``alone``: without correction."""
    tries = [partial(_above_its_control, PairedClusters(sizes, *drawn), metric) for drawn in family]
    return [one(TAIL) for one in tries] if alone else step_down(tries)


def _above_its_control(paired: PairedClusters, metric: str, tail: float) -> bool:
    """Whether its lower limit lies above 0; where its mean does not, that takes no time."""
    return paired.informative and paired.advantage > 0 and exceeds_zero(metric, paired, tail=tail)


Row = Mapping[str, str]


def report(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield the tables as Markdown."""
    yield from _zero_hits()
    for part in ("rate", "beyond", "advantage", "score", "idle", "auc", "trainings"):
        here = [row for row in rows if row["part"] == part]
        groups: dict[str, list[dict[str, str]]] = {"all": [row for row in here if not _stress(row)]}
        for row in here:
            label = row["truth"].split()[0] if part in ("advantage", "auc") else f"correlation {row['correlation']}"
            groups.setdefault(f"idle {row['truth'].split()[2]}" if part == "idle" else label, []).append(row)
            if not _stress(row):
                groups.setdefault(f"{row['clusters']} clusters, {row['sizes']}", []).append(row)
        yield f"\n### {part}\n"
        methods = list(dict.fromkeys(row["method"] for row in here if row["method"] != OURS))
        yield "| cells | " + " | ".join(f"{m}: min / mean width" for m in (OURS, *methods)) + " |"
        yield "|---|" + "---|" * (len(methods) + 1)
        for name, group in groups.items():
            yield f"| {name} | " + " | ".join(_summary(group, method) for method in (OURS, *methods)) + " |"
        if part == "score" and here:
            yield from _widths(here)
    yield "\n### families of seven attacks: share of runs with a leak called, largest of any cell (mean)\n"
    for part, shape in product(("null", "leak"), ("rate", "score")):
        here = [row for row in rows if row["part"] == part and row["truth"].split()[0] == shape]
        for method in dict.fromkeys(row["method"] for row in here):
            called = [float(row["coverage"]) for row in here if row["method"] == method]
            yield f"{part}, {shape}, {method}: {max(called):.3f} ({statistics.fmean(called):.3f})"


def _stress(row: Row) -> bool:
    return row["part"] == "advantage" and row["truth"].startswith(STRESS)


def _summary(rows: Iterable[Row], method: str) -> str:
    own = [row for row in rows if row["method"] == method]
    if not own:
        return ""
    return f"{min(float(r['coverage']) for r in own):.3f} / {statistics.fmean(float(r['width']) for r in own):.3f}"


def _widths(rows: list[dict[str, str]]) -> Iterator[str]:
    """Median widths beside the plain t-interval's, over cells."""
    cell = {method: {} for method in (OURS, "plain t")}  # type: dict[str, dict[tuple[str, ...], float]]
    for row in rows:
        if row["method"] in cell:
            cell[row["method"]][tuple(row[column] for column in KEY[:-1])] = float(row["median_width"])
    ratios = [width / cell["plain t"][key] for key, width in cell[OURS].items()]
    over = f"median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}"
    yield f"\nmedian width over the plain t-interval's: {over}"


def _zero_hits() -> Iterator[str]:
    yield "\n### upper limit of a rate without a hit\n"
    yield "| targets per cluster | 5 clusters | 10 | 20 | 40 | 50 | clusters for 0.02 | for 0.05 |"
    yield "|---|---|---|---|---|---|---|---|"
    for targets in (1, 10, 60, 300):
        highs = [rate_interval(np.full(c, float(targets)), np.zeros(c)).high or 0.0 for c in (5, 10, 20, 40, 50)]
        needed = [clusters_needed(bound, targets) for bound in (0.02, 0.05)]
        yield f"| {targets} | " + " | ".join([f"{h:.4f}" for h in highs] + [str(n) for n in needed]) + " |"
