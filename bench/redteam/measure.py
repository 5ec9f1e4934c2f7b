"""``python -m bench redteam``: what becomes of every planted defense, one row per case and seed, resumable.

Each is trained and judged as ``fglaudit run`` does it: the outcome is the word of the verdict. A broken one must not
end as verified; an honest one must not be refuted, and should be verified.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.redteam.cases import BUILT_IN, CASES, Case
from fglaudit.conformance.of_runs import checked
from fglaudit.errors import FglauditError
from fglaudit.guarantees import Audit, AuditName, Outcome, Verdict, Word
from fglaudit.recording import record_training
from fglaudit.reproduce.measurements import Table

KEY = ("case", "seed")
VALUES = ("broken", "outcome", "by", "epsilon", "power", "seconds", "training", "detail")


@dataclass(frozen=True)
class Result:
    """What became of one case.

    Attributes:
        outcome: the word of the verdict; "claimed" where it could not be trained.
        by: the audits that refuted, or had no answer.
        epsilon: accounted; None where nothing was.
        power: of the audit of the trade-off curve, against noise too small by 1.5; 0 where there was none.
        detail: the verdict's reason.
    """

    outcome: Word
    by: tuple[str, ...]
    epsilon: float | None
    power: float
    detail: str
    audits: tuple[Audit, ...] = ()


def judged(case: Case, seed: int) -> Result:
    """Train and judge, as ``fglaudit run`` does."""
    protocol, graph, defense = case.build()
    try:
        recording, _ = record_training(graph, protocol, defense, seed=seed, empirical=True)
    except FglauditError as error:
        return Result(Word.CLAIMED, ("training",), None, 0.0, str(error))
    return _result(checked(recording, protocol, graph).verdict)


def _training_seconds(case: Case, seed: int) -> float:
    """Return the CPU seconds of a training that is recorded and not audited; 0 where it could not be trained."""
    protocol, graph, defense = case.build()
    start = time.process_time()
    try:
        record_training(graph, protocol, defense, seed=seed, empirical=False)
    except FglauditError:
        return 0.0
    return time.process_time() - start


def _result(verdict: Verdict) -> Result:
    refuted = tuple(audit.name for audit in verdict.audits if audit.outcome is Outcome.REFUTED)
    open_ = tuple(audit.name for audit in verdict.audits if audit.outcome is Outcome.UNTESTED)
    power = next((audit.power or 0.0 for audit in verdict.audits if audit.name is AuditName.TRADE_OFF), 0.0)
    by = () if verdict.word is Word.VERIFIED else refuted or open_
    return Result(verdict.word, by, verdict.epsilon, power, verdict.reason, verdict.audits)


def run(results: Path, seeds: int, only: str | None) -> None:
    """Measure what is missing in ``results/redteam.csv``, then print what slipped through.

    Args:
        only: part of a case's name, or "built-in" for the honest defenses of this package.
    """
    table = Table(results / "redteam.csv", KEY, VALUES)
    for case, seed in _listed(seeds, only):
        if table.has({"case": case.name, "seed": seed}):
            continue
        training, start = _training_seconds(case, seed), time.process_time()
        result = judged(case, seed)
        row = {
            "case": case.name,
            "seed": seed,
            "broken": case.broken,
            "outcome": str(result.outcome),
            "by": " ".join(result.by).replace(" ", "+"),
            "epsilon": "" if result.epsilon is None else f"{result.epsilon:.4g}",
            "power": f"{result.power:.3f}",
            "seconds": f"{time.process_time() - start - training:.1f}",
            "training": f"{training:.2f}",
            "detail": result.detail.replace("\n", " ")[:300],
        }
        table.add(row)
        print(
            f"{case.name} (seed {seed}): {result.outcome} {' '.join(result.by)} [{row['seconds']} s] {result.detail}",
            flush=True,
        )
    rows = table.rows()
    broken = [row for row in rows if row["broken"] == "True"]
    honest = [row for row in rows if row["broken"] != "True"]
    slipped = [row["case"] for row in broken if row["outcome"] == "verified"]
    hurt = [row["case"] for row in honest if row["outcome"] == "refuted"]
    weak = [row["case"] for row in honest if row["outcome"] == "claimed"]
    print(f"{len(broken)} broken: {sum(row['outcome'] == 'refuted' for row in broken)} refuted, verified: {slipped}")
    print(f"{len(honest)} honest: refuted: {hurt}, not verified: {weak}")
    for line in _by_family(honest):
        print(line)


def _by_family(honest: list[dict[str, str]]) -> Iterator[str]:
    """Yield a table in Markdown: how often each honest defense got which word, and what that cost."""
    yield "| honest defense | seeds | verified | claimed | refuted | CPU s of the audits, median and most | training |"
    yield "|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(row["case"] for row in honest):
        rows = [row for row in honest if row["case"] == name]
        counts = [
            sum(row["outcome"] == str(word) for row in rows) for word in (Word.VERIFIED, Word.CLAIMED, Word.REFUTED)
        ]
        audits = [float(row["seconds"]) for row in rows]
        trained = statistics.median(float(row["training"]) for row in rows)
        yield (
            f"| {name.removeprefix('honest ')} | {len(rows)} | {' | '.join(map(str, counts))} |"
            f" {statistics.median(audits):.1f}, {max(audits):.1f} | {trained:.2f} |"
        )


def _listed(seeds: int, only: str | None) -> Iterator[tuple[Case, int]]:
    for seed in range(seeds):
        for case in CASES:
            built_in = case.name in {f"honest {family}" for family in BUILT_IN}
            if only is None or (built_in if only == "built-in" else only.lower() in case.name.lower()):
                yield case, seed
