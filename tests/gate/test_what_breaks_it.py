"""Whatever a policy asks and a run does not show breaks the gate, one case at a time; by the command itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_runs import (
    EXAMINED,
    FEATURES,
    GOOD,
    HELD,
    Change,
    cells,
    first_failed,
    gate,
    rows,
    self_test_failed,
    server_trusted,
    with_delta,
)

from fglaudit.execution.exit_code import ExitCode
from fglaudit.finding import Status
from fglaudit.guarantees import FieldState, Protection, Word

BROKEN: list[tuple[str, Change, str, str]] = [
    ("failed", first_failed, "accuracy: {min: 0.1}", "failed: wanted at most 0 failed rows; got 2"),
    (
        "self-test",
        rows(lambda r: replace(r, status=Status.BROKEN_ATTACK) if r.attack == "row-space" else r),
        FEATURES,
        "failed their self-test: row-space",
    ),
    ("unadapted", rows(lambda r: replace(r, adapted="no: Rounded")), FEATURES, "not adapted to Rounded"),
    (
        "payload",
        rows(lambda r: r if r.attack == "map-prior" else replace(r, adapted="no: Rounded")),
        FEATURES,
        "no attack here that allows for what was done reads NeighborSums",
    ),
    (
        "trainings",
        lambda c: c,
        "{accuracy: {min: 0.1}, trainings: {min: 3}}",
        "trainings: wanted at least 3 of every setting; got 2",
    ),
    ("accuracy", lambda c: c, "accuracy: {min: 0.99}", "accuracy: wanted at least 0.99; got 0.7"),
    (
        "unexamined",
        lambda c: replace(c, fields=(FieldState("server", "ModelUpdate", "vector", Protection.UNEXAMINED, "nobody"),)),
        HELD,
        "unexamined: ModelUpdate.vector",
    ),
    ("no fields", lambda c: replace(c, fields=()), HELD, "2 cells whose records do not say which fields"),
    (
        "claimed",
        lambda c: replace(c, verdict=replace(GOOD, word=Word.CLAIMED)),
        "epsilon: {max: 8, unit: node}",
        "the guarantee is claimed",
    ),
    ("no verdict", lambda c: replace(c, verdict=None), "epsilon: {max: 8, unit: node}", "no guarantee was judged"),
    (
        "unit",
        lambda c: replace(c, verdict=replace(GOOD, unit="client")),
        "epsilon: {max: 8, unit: node}",
        "the guarantee is per client",
    ),
    ("delta", with_delta(0.9), "epsilon: {max: 8, unit: node}", "delta: wanted at most 1e-05"),
    ("no delta", with_delta(None), "epsilon: {max: 8, unit: node}", "a guarantee that names none"),
    (
        "own delta",
        lambda c: c,
        "epsilon: {max: 8, unit: node, delta: 1.0e-6}",
        "delta: wanted at most 1e-06; got 1e-05",
    ),
    (
        "delta of many nodes",
        lambda c: replace(c, partition_facts={"client_sizes": [60_000, 60_000]}),
        "epsilon: {max: 8, unit: node}",
        "1e-05 with 120000 nodes",
    ),
    ("trusted server", server_trusted, "epsilon: {max: 8, unit: node}", "nothing is promised to server. Not covered"),
    (
        "trusted server named",
        server_trusted,
        'epsilon: {max: 8, unit: node, against: ["client:each", server]}',
        "the server, which is trusted",
    ),
    ("no word", rows(lambda r: replace(r, guarantee="")), "epsilon: {max: 8, unit: node}", "nothing is promised to"),
    (
        "broken attack",
        self_test_failed,
        "accuracy: {min: 0.1}",
        "broken attacks: wanted at most 0 rows of attacks that fail their self-test (allow.broken); got 2 (subset-sum)",
    ),
    (
        "epsilon",
        lambda c: c,
        "epsilon: {max: 7, unit: node}",
        "epsilon: wanted verified, at most 7 per node replaced (epsilon.relation); got 7.98",
    ),
]


@pytest.mark.parametrize(("change", "policy", "words"), [case[1:] for case in BROKEN], ids=[c[0] for c in BROKEN])
def test_whatever_is_not_shown_breaks_it(
    change: Change, policy: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = cells(change)
    if words.startswith("no attack here"):  # only the field's state says that something read it
        records = [replace(record, fields=(replace(EXAMINED[0], state=Protection.COVERED),)) for record in records]
    code, out, _ = gate(tmp_path, records, policy, capsys)
    assert code == ExitCode.GATE, out
    assert words in out, out
