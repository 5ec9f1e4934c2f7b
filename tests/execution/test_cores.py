"""How many CPU threads a worker gets."""

from __future__ import annotations

import pytest

from fglaudit.execution.engines import cores
from fglaudit.execution.engines.local_engine import LocalEngine


@pytest.mark.parametrize(
    ("allowed", "jobs", "threads"),
    [(None, 1, 8), (None, 3, 2), (None, 20, 1), ("1", 1, 1), ("3", 2, 3), ("64", 2, 4), ("2,4", 1, 2), ("0", 2, 4)],
)
def test_an_even_share_of_the_cores_and_no_more_than_allowed(
    allowed: str | None, jobs: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if allowed is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", allowed)
    assert cores.threads_of(jobs) == threads
    assert LocalEngine(jobs).threads == threads
