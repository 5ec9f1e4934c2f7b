"""``python -m bench redteam``: what becomes of every planted defense, one row per case and seed, resumable.

Each is trained and judged as ``fglaudit run`` does it: the outcome is the word of the verdict. A broken one must not
end as verified; an honest one must not be refuted, and should be verified.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.redteam.cases import CASES, Case
from fglaudit.errors import FglauditError
from fglaudit.guarantees import Audit, Outcome, Verdict, Word
from fglaudit.recording import record_training
from fglaudit.reproduce.measurements import Table

KEY = ("case", "seed")
VALUES = ("broken", "outcome", "by", "epsilon", "power", "seconds", "detail")


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
    return _result(recording.verdict)


def _result(verdict: Verdict) -> Result:
    refuted = tuple(audit.name for audit in verdict.audits if audit.outcome is Outcome.REFUTED)
    open_ = tuple(audit.name for audit in verdict.audits if audit.outcome is Outcome.UNTESTED)
    power = next((audit.power or 0.0 for audit in verdict.audits if audit.name == "trade-off"), 0.0)
    by = () if verdict.word is Word.VERIFIED else refuted or open_
    return Result(verdict.word, by, verdict.epsilon, power, verdict.reason, verdict.audits)


def run(results: Path, seeds: int, only: str | None) -> None:
    """Measure what is missing in ``results/redteam.csv``, then print what slipped through."""
    table = Table(results / "redteam.csv", KEY, VALUES)
    for case, seed in _listed(seeds, only):
        if table.has({"case": case.name, "seed": seed}):
            continue
        start = time.process_time()
        result = judged(case, seed)
        row = {
            "case": case.name,
            "seed": seed,
            "broken": case.broken,
            "outcome": str(result.outcome),
            "by": " ".join(result.by).replace(" ", "+"),
            "epsilon": "" if result.epsilon is None else f"{result.epsilon:.4g}",
            "power": f"{result.power:.3f}",
            "seconds": f"{time.process_time() - start:.1f}",
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


def _listed(seeds: int, only: str | None) -> Iterator[tuple[Case, int]]:
    for seed in range(seeds):
        for case in CASES:
            if only is None or only.lower() in case.name.lower():
                yield case, seed
