"""What ``fglaudit run --dry-run`` foretells of a cell, beside what the cell takes.

``python -m bench estimates`` measures the cells of three suites and prints how far off the estimates were; ``python -m
bench costs`` measures other suites and prints the table of :mod:`fglaudit.execution.forecast.costs`. Every cell is
computed in a process of its own and is one line of a file; what stands there is not measured again. Seconds are those
of CPU: other work on the machine does not count.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from fglaudit.attacking import run_attacks
from fglaudit.execution.forecast.costs import AUDITS, machine_seconds
from fglaudit.execution.forecast.forecast import Forecast
from fglaudit.execution.forecast.probe import Probe, forget_peak, peak, probe
from fglaudit.execution.weakened import with_weakened
from fglaudit.recording import record
from fglaudit.scoring.score import Scorer
from fglaudit.suite.cell import Cell
from fglaudit.suite.suite import resolve

_GRAPH = {"classes": 4, "ones_per_row": 10, "homophily": 0.8, "degree_exponent": 0.4}
_SPLIT = {"split": "random", "train": 0.2, "val": 0.3, "test": 0.5}
_WATCHED = [{"parties": ["server"], "initial_weights": True, "auxiliary": 0.1}, {"parties": ["client:each"]}]


def _suite(nodes: int, features: int, clients: int, protocols: list[Any], defenses: list[Any]) -> dict[str, Any]:
    size = {"nodes": nodes, "edges": 2 * nodes, "dimensions": features}
    each = {"scheme": "per-node"} if not clients else {"scheme": "dirichlet", "clients": clients, "beta": 10000}
    return {
        "datasets": [{"name": "csbm", "csbm": {**_GRAPH, **size}, **_SPLIT}],
        "partitions": [each],
        "protocols": protocols,
        "defenses": defenses,
        "observers": _WATCHED,
        "attacks": "all",
    }


def _nodes(nodes: int, features: int) -> dict[str, Any]:
    task = {"nodes": nodes, "degree": 6, "dimensions": features}
    suite = _suite(1, 1, 0, [{"name": "gfl-appnp", "hidden": 16, "rounds": 10}], [{"name": "none"}])
    return {**suite, "datasets": [{"name": "csbm-dnc", "task": task}]}


_NOISE = {"name": "gaussian", "epsilon": 8, "delta": 1e-5, "unit": "node", "clip": 4.5, "on": "NeighborSums"}
_GCN, _GAT = {"name": "fedgcn", "hops": 1, "rounds": 10}, {"name": "fedgat", "remote": "embeddings", "rounds": 4}
CALIBRATION: dict[str, dict[str, Any]] = {
    "gcn-small": _suite(200, 100, 4, [_GCN], [{"name": "none"}, _NOISE]),
    "gcn-large": _suite(800, 400, 8, [_GCN], [{"name": "none"}, _NOISE]),
    "gat-small": _suite(40, 60, 3, [_GAT, {**_GAT, "variant": "vector"}], [{"name": "none"}]),
    "gat-large": _suite(100, 100, 4, [_GAT, {**_GAT, "variant": "vector"}], [{"name": "none"}]),
    "user-small": _suite(60, 60, 0, [{"name": "nfedgnn", "rounds": 6}, {"name": "cnfgnn", "rounds": 6}], ["none"]),
    "user-large": _suite(200, 200, 0, [{"name": "nfedgnn", "rounds": 6}, {"name": "cnfgnn", "rounds": 6}], ["none"]),
    "appnp-small": _nodes(20, 20),
    "appnp-large": _nodes(60, 40),
    "gt-small": _suite(60, 60, 3, [{"name": "fedgt", "rounds": 3}, {"name": "private-reports", "rounds": 3}], ["none"]),
    "gt-large": _suite(200, 120, 4, [{"name": "fedgt", "rounds": 3}, {"name": "private-reports"}], ["none"]),
}
"""Small suites of every family, each in two sizes: the table of costs is fitted to them."""
CHECKED: dict[str, dict[str, Any]] = {
    "quickstart": {
        "datasets": ["csbm-cora"],
        "partitions": [{"scheme": "dirichlet", "clients": 10, "beta": 10000}],
        "protocols": [{"name": "fedgcn", "hops": 0, "rounds": 100}, {"name": "fedgcn", "hops": 1, "rounds": 100}],
        "defenses": ["none", _NOISE],
        "observers": [{"parties": ["server"]}, {"parties": ["client:each"]}, {"parties": ["server", "client:0"]}],
        "attacks": "all",
    },
    "users": _suite(120, 150, 0, [{"name": "nfedgnn", "rounds": 40}, {"name": "cnfgnn", "rounds": 20}], ["none"]),
    "attention": _suite(70, 80, 3, [{**_GAT, "rounds": 20}], ["none", {"name": "drop-singletons"}]),
}
"""Other suites: what was foretold of them is compared with what they take."""


def run(results: Path, calibrate: bool) -> None:
    """Measure what is missing in the CSV file, and print the table of costs or the comparison."""
    results.mkdir(parents=True, exist_ok=True)
    file = results / ("costs.jsonl" if calibrate else "estimates.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for name, data in (CALIBRATION if calibrate else CHECKED).items():
        for cell in resolve({"name": name, **data}, name).cells():
            if all((line["suite"], line["cell"]) != (name, cell.hash()) for line in lines):
                line = {"suite": name, "cell": cell.hash(), **_apart(cell)}
                lines.append(line)
                with file.open("a") as out:
                    out.write(json.dumps(line) + "\n")
    print(table(lines) if calibrate else comparison(lines), flush=True)


def measure(cell: Cell) -> dict[str, Any]:
    """Return what was foretold of ``cell``, and what it takes."""
    torch.set_num_threads(1)
    speed = machine_seconds()
    foretold = probe(cell)
    words = f"{cell.protocol.name}, {cell.defense.name}"
    if isinstance(foretold, str):
        return {"words": words, "why": foretold}
    forget_peak()
    with TemporaryDirectory() as folder:
        start = time.process_time()
        recording, truth = record(replace(cell, empirical=False), folder=Path(folder))
        training = time.process_time() - start
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        scorer, attacks, outputs, measured = Scorer(truth), [], [], []
        for spec in cell.observers:
            for attack in cell.attacks:
                start = time.process_time()
                output = run_attacks(recording, [spec], [attack], nothing_to_ask=scorer.nothing_to_ask)
                found = [scorer.measure(one) for one in output]
                seconds = time.process_time() - start
                who = f"{spec.name} {spec.knowledge}".rstrip()
                size = foretold.attacks.get((who, type(attack).name))
                attacks.append((who, type(attack).name, size, seconds, found[0].finding.status.value))
                outputs += output
                measured += found
        start = time.process_time()
        with_weakened(cell, outputs, measured, torch.device("cpu"))
        again = time.process_time() - start
        memory = peak()
    start = time.process_time()
    record(cell)
    audits = max(0.0, time.process_time() - start - training)
    took = {"training": training, "again": again, "audits": audits, "memory": memory, "disk": disk}
    return {
        "words": words,
        "speed": speed,
        "foretold": {**asdict(foretold), "attacks": [[*key, size] for key, size in foretold.attacks.items()]},
        "took": took,
        "attacks": attacks,
    }


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the costs as Python: seconds to start and seconds per MB read, fitted to relative errors."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    speeds = []
    for line in lines:
        if "why" in line:
            continue
        speeds.append(line["speed"])
        for _, name, size, seconds, status in line["attacks"]:
            if size is not None and status in ("ok", "broken-attack"):
                points[name].append((size / 1e6, seconds))
        if released := line["foretold"]["released"]:
            points[AUDITS].append((released / 1e6, line["took"]["audits"]))
    rows = {name: _fitted(found) for name, found in sorted(points.items())}
    text = "\n".join(f'    "{name}": ({start:.2g}, {rate:.2g}),' for name, (start, rate) in rows.items())
    return f"REFERENCE = {statistics.median(speeds):.3g}\nCOSTS = {{\n{text}\n}}"


def _fitted(points: list[tuple[float, float]]) -> tuple[float, float]:
    sizes, seconds = np.array(points).T
    weights = 1 / np.maximum(seconds, 1e-3)
    found, _ = nnls(np.stack([weights, sizes * weights], 1), seconds * weights)
    return float(found[0]), float(found[1])


def comparison(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of what was foretold beside what was measured, over the cells of every suite."""
    rows = [
        "| suite | cell | seconds foretold | taken | MiB of memory foretold | taken | MB on disk foretold | taken |"
    ]
    rows.append("|---|---|---|---|---|---|---|---|")
    for line in lines:
        if "why" in line:
            continue
        stored = line["foretold"]
        foretold = Forecast.of(
            Probe(**{**stored, "attacks": {(o, a): size for o, a, size in stored["attacks"]}}), line["speed"]
        )
        took = line["took"]
        seconds = took["training"] + took["again"] + took["audits"] + sum(one[3] for one in line["attacks"])
        rows.append(
            f"| {line['suite']} | {line['words']} | {foretold.seconds:.3g} | {seconds:.3g}"
            f" | {foretold.memory / 2**20:.0f} | {took['memory'] / 2**20:.0f}"
            f" | {foretold.disk / 1e6:.3g} | {took['disk'] / 1e6:.3g} |"
        )
    return "\n".join(rows)


def _apart(cell: Cell) -> dict[str, Any]:
    """Return :func:`measure` of ``cell``, made in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, cell))
    process.start()
    there.close()
    found: dict[str, Any] = here.recv()
    process.join()
    return found


def _child(connection: Connection, cell: Cell) -> None:
    connection.send(measure(cell))
