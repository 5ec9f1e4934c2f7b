"""Random reports of rows: are they random at all, for every node by itself, and drawn from the generator?

Real clients are prepared with all entries in the middle of the range, where every bit of a report is a fair coin
whatever its epsilon. A row of such coins that is alike under all generators, or alike for two nodes under all of them,
has the probability at most that all its coins fall so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.empirical.replays.staging import Staged
from fglaudit.facts import MULTI_BIT, ROWS, Randomised, first
from fglaudit.graph import ClientGraph
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.rng import derive

GENERATORS = 12


def reports_audits(staged: Staged, clients: Sequence[ClientGraph], *, seed: int) -> tuple[Audit, ...]:
    """Return the audits of rows that are randomised otherwise than by adding noise; none where there are none."""
    fact = first(staged.facts, Randomised, ROWS)
    if fact is None:
        return ()
    parameters = dict(fact.parameters)
    if fact.kind != MULTI_BIT:
        return (Audit(AuditName.REPORTS, Outcome.UNTESTED, f"random reports of kind {fact.kind!r} have no test here"),)
    middle = (float(parameters["low"]) + float(parameters["high"])) / 2
    real = [_prepared(staged, clients, seed, generator) for generator in range(GENERATORS)]
    again = _prepared(staged, clients, seed, 0)
    coins = torch.stack([_prepared(staged, clients, seed, generator, middle) for generator in range(GENERATORS)])
    few = int(parameters["sampled_features"])
    width = coins.shape[2]
    # Bits at random places: which, and how each coin falls.
    alike = 0.5**few / math.comb(width, few)
    nodes = coins.shape[1]
    tests = {
        "reports of a node are the same under all generators": (
            bool((coins == coins[:1]).flatten(2).all(2).all(0).any()),
            nodes * alike ** (GENERATORS - 1),
        ),
        "two nodes have the same reports under all generators": (
            _twins(coins),
            nodes * (nodes - 1) / 2 * alike**GENERATORS,
        ),
        "rows are used as they are": (
            _untouched(clients, real),
            nodes * math.comb(width, few) ** -float(GENERATORS),
        ),
        "reports have more entries than are said to be sampled": (
            bool(((coins - float(parameters.get("center", 0.0))).abs() > 1e-9).sum(2).max() > few),
            0.0,
        ),
    }
    refuted = [(words, chance) for words, (seen, chance) in tests.items() if seen and 4 * chance <= REFUTED_AT]
    if refuted:
        words, chance = refuted[0]
        return (Audit(AuditName.REPORTS, Outcome.REFUTED, words, min(1.0, 4 * chance)),)
    foreign = not torch.equal(again, real[0])
    return (
        Audit(
            AuditName.REPORTS, Outcome.PASSED, f"{nodes} nodes under {GENERATORS} generators: random, each by itself"
        ),
        Audit(
            AuditName.FOREIGN_RANDOMNESS,
            Outcome.UNTESTED if foreign else Outcome.PASSED,
            "equal generators gave different reports" if foreign else "equal generators gave equal reports",
        ),
    )


def _prepared(
    staged: Staged, clients: Sequence[ClientGraph], seed: int, generator: int, value: float | None = None
) -> Tensor:
    """Return the prepared rows [n, F] of all clients; with all entries ``value`` where it is given."""
    rng, session = derive(seed, "audits", "reports", generator), staged.fresh()
    rows = []
    for client in clients:
        given = client if value is None else dataclasses.replace(client, x=torch.full_like(client.x, value))
        rows.append(session.prepare(given, rng).x.double().reshape(-1, client.x.shape[-1]))
    return torch.cat(rows)


def _twins(coins: Tensor) -> bool:
    """Whether two nodes have the same reports [G, n, F] under every generator."""
    rows = coins.movedim(0, 1).flatten(1)
    return len(torch.unique(rows, dim=0)) < len(rows)


def _untouched(clients: Sequence[ClientGraph], real: Sequence[Tensor]) -> bool:
    """Whether a row that is not all zeros leaves as it is under every generator."""
    rows = torch.cat([client.x.double().reshape(-1, client.x.shape[-1]) for client in clients])
    same = torch.stack([(each == rows).all(1) for each in real]).all(0)
    return bool((same & (rows != 0).any(1)).any())
