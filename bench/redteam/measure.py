"""``python -m bench redteam``: what becomes of every planted defense, one row per case and seed, resumable.

A broken one must not end as verified: an audit refutes it, or says that it could not test it, or nothing is accounted.
An honest one must not be refuted, and all its audits should pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.redteam.cases import CASES, Case
from fglaudit.empirical.audits import audits
from fglaudit.errors import FglauditError
from fglaudit.guarantees import Audit, Outcome
from fglaudit.privacy.from_facts import account
from fglaudit.reproduce.measurements import Table
from fglaudit.testing import record

KEY = ("case", "seed")
VALUES = ("broken", "outcome", "by", "epsilon", "power", "seconds", "detail")
SETTLED = 0.9
"""Power against noise too small by 1.5 below which nothing is verified."""


@dataclass(frozen=True)
class Result:
    """What became of one case.

    Attributes:
        outcome: "refuted", "claimed" (nothing accounted, unstated changes, or an audit without an answer), "verified".
        by: the audits that refuted, or left it open.
        epsilon: accounted; None where nothing was.
        power: largest of an audit against noise too small by 1.5.
    """

    outcome: str
    by: tuple[str, ...]
    epsilon: float | None
    power: float
    detail: str
    audits: tuple[Audit, ...] = ()


def judged(case: Case, seed: int) -> Result:
    """Train, account, audit."""
    protocol, graph, defense = case.build()
    try:
        run = record(protocol, graph, defense, seed=seed)
    except FglauditError as error:
        return Result("claimed", ("training",), None, 0.0, str(error))
    guarantee, counted = run.session.guarantee(), run.channel.counted
    accounted = account(protocol.context(graph), run.session.facts(), guarantee, counted)
    if isinstance(accounted, str):
        return Result("claimed", ("account",), None, 0.0, accounted)
    found = audits(protocol, graph, defense, run.session, accounted, seed=seed, device=torch.device("cpu"))
    power = max((audit.power or 0.0 for audit in found), default=0.0)
    refuted = [audit for audit in found if audit.outcome is Outcome.REFUTED]
    if refuted:
        details = "; ".join(f"{audit.name}: {audit.detail}" for audit in refuted)
        return Result("refuted", tuple(a.name for a in refuted), accounted.epsilon, power, details, found)
    open_ = [audit for audit in found if audit.outcome is Outcome.UNTESTED and not _answered(audit, found)]
    if run.truth.unstated or open_ or power < SETTLED:
        names = (*(["unstated"] if run.truth.unstated else []), *(audit.name for audit in open_))
        details = "; ".join([*(str(u.why) for u in run.truth.unstated[:1]), *(a.detail for a in open_)])
        return Result("claimed", names or ("power",), accounted.epsilon, power, details, found)
    return Result("verified", (), accounted.epsilon, power, "", found)


def _answered(audit: Audit, found: tuple[Audit, ...]) -> bool:
    """Whether another audit answers what this one left open: how large the noise is."""
    return audit.name == "trade-off" and any(
        other.name == "noise" and other.outcome is Outcome.PASSED and (other.power or 0) >= SETTLED for other in found
    )


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
            "outcome": result.outcome,
            "by": " ".join(result.by).replace(" ", "+"),
            "epsilon": "" if result.epsilon is None else f"{result.epsilon:.4g}",
            "power": f"{result.power:.3f}",
            "seconds": f"{time.process_time() - start:.1f}",
            "detail": result.detail.replace("\n", " ")[:300],
        }
        table.add(row)
        print(f"{case.name} (seed {seed}): {result.outcome} {' '.join(result.by)} [{row['seconds']} s]", flush=True)
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
