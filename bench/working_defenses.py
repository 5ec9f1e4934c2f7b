"""For every protocol and observer: the weakest setting of each defense that works, and the accuracy it costs.

A defense works where every attack's ``advantage_high`` is at most 0.02 while some attack succeeds through the same
defense at strength -> 0 (its own code with the noise all but switched off; for a defense without noise that is no
defense at all). Attacks that link the uploads of one client are left out: these parties know who sends. Observers know
all edges and one row in ten.

Noise is searched by bisection over epsilons a factor of about three apart, each with fresh training runs, attacks,
self-tests and intervals pooled over clients and seeds. The largest epsilon is the largest one that can be accounted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.working_cases import CASES, Case, Family
from fglaudit import registry
from fglaudit.attacking import run_attacks
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.finding import Status
from fglaudit.interfaces import Attack, Defense, DefenseSession
from fglaudit.observers import ObserverSpec, expand
from fglaudit.recording import Recording, record_training
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.scoring import GroundTruth, Measurement, score
from fglaudit.scoring.clusters import NOTHING, PairedClusters
from fglaudit.scoring.metrics import metric_interval, read_clusters
from fglaudit.suite.cell import arguments
from fglaudit.wire.channel import Keep, RecordingChannel

WORKS_UP_TO = 0.02
NEAR_ZERO = 1e-6
KEY = ("dataset", "protocol", "arguments", "defense", "settings", "strength", "observer", "attack")
VALUES = (
    "status",
    "metric",
    "value",
    "control",
    "advantage",
    "advantage_low",
    "advantage_high",
    "accuracy",
    "epsilon_accounted",
    "seeds",
    "cpu_seconds",
    "reason",
)
Rows = list[dict[str, str]]


def run(results: Path, cases: Sequence[Case] = CASES) -> None:
    """Measure what is missing in ``results/working_defenses.csv``, then print a Markdown table."""
    table = Table(results / "working_defenses.csv", KEY, VALUES)
    lines = [line for case in cases for line in search(case, table)]
    print(
        "| protocol | observer | defense | advantage without | at strength 0 | at the setting | accuracy without |"
        " with |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(*lines, sep="\n")


def search(case: Case, table: Table) -> list[str]:
    """Return the rows of one protocol, one per observer and defense."""
    plain = evaluated(case, NoDefense(), "set", table)
    lines = []
    graph = case.partition.apply(case.dataset.load(), case.dataset, derive(0, "partition"))
    context = case.protocol.context(graph)
    for family in case.families:
        if refused := family.ladder[-1].unsupported(context):
            lines.append(
                f"| {case.protocol.name} ({arguments(case.protocol)}) | all | {family.name}: does not apply, {refused}"
                " | | | | | |"
            )
            continue
        zero = evaluated(case, family.ladder[0], "near zero", table) if family.noise else plain
        for observer in case.observers:
            setting = weakest(case, family, observer, table)
            lines.append(described(case, family, observer, setting, plain, zero, table))
    return lines


def weakest(case: Case, family: Family, observer: ObserverSpec, table: Table) -> Defense | None:
    """Return the first setting on the ladder under which no attack of ``observer`` succeeds, or None. Stronger ones are
    taken to be no worse; those under which training diverges are left out."""
    low, high = 0, len(family.ladder) - 1
    while high > 0 and diverged(evaluated(case, family.ladder[high], "set", table)):
        high -= 1
    if not quiet(evaluated(case, family.ladder[high], "set", table), observer):
        return None
    while low < high:
        middle = (low + high) // 2
        if quiet(evaluated(case, family.ladder[middle], "set", table), observer):
            high = middle
        else:
            low = middle + 1
    return family.ladder[high]


def diverged(rows: Rows) -> bool:
    """Whether nothing was trained."""
    return all(row["accuracy"] == "" for row in rows)


def of(rows: Rows, observer: ObserverSpec) -> Rows:
    """Return the rows of one observer."""
    return [row for row in rows if row["observer"] == observer.name]


def quiet(rows: Rows, observer: ObserverSpec) -> bool:
    """Whether every attack that ran stays below the bar, and none failed."""
    return all(
        row["status"] == Status.NOT_APPLICABLE
        or (row["status"] == Status.OK and row["advantage_high"] != "" and float(row["advantage_high"]) <= WORKS_UP_TO)
        for row in of(rows, observer)
    )


def strongest(rows: Rows, observer: ObserverSpec, column: str) -> dict[str, str] | None:
    """Return the attack with the largest value of ``column``, or None where none ran."""
    ran = [row for row in of(rows, observer) if row["status"] == Status.OK and row[column] != ""]
    return max(ran, key=lambda row: float(row[column]), default=None)


def described(
    case: Case, family: Family, observer: ObserverSpec, setting: Defense | None, plain: Rows, zero: Rows, table: Table
) -> str:
    """Return one line of the table."""
    trained = [
        d for d in family.ladder if setting is None and _known(case, d, table) and not diverged(_known(case, d, table))
    ]
    shown = setting or (trained or list(family.ladder))[-1]
    rows = evaluated(case, shown, "set", table)
    without, at_zero, left = (
        strongest(r, observer, c) for r, c in ((plain, "advantage"), (zero, "advantage"), (rows, "advantage_high"))
    )
    succeeds = at_zero is not None and float(at_zero["advantage_low"]) > WORKS_UP_TO
    verdict = "none" if setting is None else "no attack at strength 0" if not succeeds else "works"
    entries = (
        f"{case.protocol.name} ({arguments(case.protocol)}) on {case.dataset.name}",
        observer.name,
        f"{verdict}: {family.name}, {arguments(shown)}",
        _entry(without),
        _entry(at_zero),
        _entry(left) + ("" if left is None else f", at most {float(left['advantage_high']):.3f}"),
        plain[0]["accuracy"],
        rows[0]["accuracy"],
    )
    return f"| {' | '.join(entries)} |"


def _entry(row: dict[str, str] | None) -> str:
    return "no attack applies" if row is None else f"{row['attack']} {float(row['advantage']):+.3f}"


def evaluated(case: Case, defense: Defense, strength: str, table: Table) -> Rows:
    """Return the rows of one defense, measured if they are not in ``table`` yet."""
    named = (
        case.dataset.name,
        case.protocol.name,
        arguments(case.protocol),
        defense.name,
        arguments(defense),
        strength,
    )
    key = dict(zip(KEY, named, strict=False))
    found = _select(table, key)
    if not found:
        try:
            rows = evaluate(case, defense, strength == "near zero")
        except FglauditError as error:  # noise too strong for any training
            blank = {**dict.fromkeys(VALUES, ""), "status": Status.FAILED.value, "reason": str(error), "attack": ""}
            rows = [{**blank, "observer": observer.name} for observer in case.observers]
        for row in rows:
            table.add({**key, **row})
        found = _select(table, key)
        worst = max(
            (r for r in found if r["advantage_high"]), key=lambda r: float(r["advantage_high"]), default=found[0]
        )
        print(*named, worst["observer"], worst["attack"], worst["advantage_high"], worst["accuracy"], flush=True)
    return found


def _known(case: Case, defense: Defense, table: Table) -> Rows:
    """Return the rows of a defense as far as they were measured."""
    named = (case.dataset.name, case.protocol.name, arguments(case.protocol), defense.name, arguments(defense), "set")
    return _select(table, dict(zip(KEY, named, strict=False)))


def _select(table: Table, key: dict[str, str]) -> Rows:
    return [row for row in table.rows() if all(row[name] == value for name, value in key.items())]


def evaluate(case: Case, defense: Defense, near_zero: bool) -> Rows:
    """Train and attack once per seed; return one row per observer and attack, with intervals over all seeds."""
    start = time.process_time()
    names = [registry.build("attack", name, {}) for name in registry.names("attack")]
    sent = set(type(case.protocol).emits)
    attacks = [a for a in names if sent.issuperset(type(a).consumes) and type(a).quantity != "linkage"]
    accuracy, epsilon = [], None
    measured: dict[tuple[str, str], list[Measurement]] = {}
    for seed in range(case.seeds):
        recording, truth = train(case, defense, near_zero, attacks, seed)
        accuracy.append(truth.trained.whole_test_set)
        epsilon = None if near_zero else recording.verdict.epsilon
        for found in score(run_attacks(recording, case.observers, attacks), truth):
            measured.setdefault((found.finding.observer, found.finding.attack), []).append(found)
    shared = {
        "accuracy": f"{sum(accuracy) / len(accuracy):.4f}",
        "epsilon_accounted": "" if epsilon is None else f"{epsilon:.4g}",
        "seeds": str(case.seeds),
        "cpu_seconds": f"{time.process_time() - start:.0f}",
    }
    redrawn = case.partition.scheme != "per-node"
    return [{**shared, "observer": o, "attack": a, **pooled(found, redrawn)} for (o, a), found in measured.items()]


def train(
    case: Case, defense: Defense, near_zero: bool, attacks: Sequence[Attack], seed: int
) -> tuple[Recording, GroundTruth]:
    """Return a recorded run under ``defense``."""
    graph = case.partition.apply(case.dataset.load(), case.dataset, derive(seed, "partition"))
    observers = [o for spec in case.observers for o in expand(spec, graph.num_clients)[0]]
    return record_training(
        graph,
        case.protocol,
        defense,
        seed=seed,
        keep=Keep.for_attacks(observers, attacks),
        clients={k for o in observers for k in o.clients},
        fractions={spec.auxiliary for spec in case.observers},
        channel=quiet_channel if near_zero else RecordingChannel,
    )


def quiet_channel(session: DefenseSession, *rest: Any) -> RecordingChannel:
    """Return the channel of a defense whose noise is turned down."""
    turn_down(session)
    return RecordingChannel(session, *rest)


def turn_down(session: DefenseSession) -> None:
    """Multiply the noise of a bound defense by a millionth; everything else stays as it is."""
    if not isinstance(session, NoiseSession):
        raise TypeError(f"{type(session).__module__} has no noise that could be turned down")
    session.noised = {
        payload: (release, dataclasses.replace(mechanism, multiplier=mechanism.multiplier * NEAR_ZERO))
        for payload, (release, mechanism) in session.noised.items()
    }


def pooled(found: Sequence[Measurement], redrawn: bool) -> dict[str, str]:
    """Return the columns of one attack over all seeds; one failure makes it fail.

    Args:
        redrawn: whether every seed has clients of its own; one client per node is the same cluster under every seed.
    """
    findings = [m.finding for m in found]
    bad = next((f for f in findings if f.status is not Status.OK), None)
    if bad is not None:
        return {"status": bad.status.value, "reason": bad.reason} | dict.fromkeys(VALUES[1:7], "")
    metric, targets = findings[0].metric, sum(f.targets or 0 for f in findings)
    partitions = [str(f.seed) if redrawn else "" for f in findings]
    clusters = PairedClusters.pool([read_clusters(metric, m.clusters) for m in found], partitions)
    interval = NOTHING if clusters is None else metric_interval(metric, clusters)
    numbers = {
        "value": sum((f.value or 0.0) * (f.targets or 0) for f in findings) / targets,
        "control": sum((f.control or 0.0) * (f.targets or 0) for f in findings) / targets,
        "advantage": interval.value,
        "advantage_low": interval.low if interval.shown else None,
        "advantage_high": interval.high if interval.shown else None,
    }
    text = {name: "" if value is None else f"{value:.4f}" for name, value in numbers.items()}
    return {"status": Status.OK.value, "metric": findings[0].metric, **text, "reason": findings[0].reason}
