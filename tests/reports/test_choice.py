"""What a run would choose, and what is said of it before and after fresh seeds."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from report_runs import DEFENSES, clustered_cell, hits_in_clusters, store, texts
from rich.console import Console

from fglaudit.execution.folder.run_folder import CONFIRMED
from fglaudit.finding import CellRecord
from fglaudit.reports.choosing.choice import CHOSEN, Confirmations, chosen, seeds_for
from fglaudit.reports.formats.console import print_confirmed
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import Setting, summarize

NONE, DROP, NOISE = DEFENSES
LOUD, QUIET = hits_in_clusters([40] * 45), hits_in_clusters([0] * 45)


def made(
    defense: tuple[str, dict[str, object]], rows: Sequence[Sequence[float]], accuracy: float, seed: int = 0
) -> CellRecord:
    return clustered_cell({"a": [list(row) for row in rows]}, seed=seed, defense=defense, accuracy=accuracy)


def settings_of(folder: Path, *cells: CellRecord) -> list[Setting]:
    return summarize(load_run(store(folder, cells)))


def test_the_most_accurate_of_the_held_settings_is_chosen(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "run", made(NONE, LOUD, 0.9), made(DROP, QUIET, 0.7), made(NOISE, QUIET, 0.6))
    assert [s.first.defense for s in chosen(settings)] == ["drop-singletons"]


def test_a_better_one_that_only_lacks_parties_is_chosen_beside_it(tmp_path: Path) -> None:
    few = hits_in_clusters([0] * 10)
    settings = settings_of(tmp_path / "run", made(NONE, LOUD, 0.9), made(DROP, few, 0.8), made(NOISE, QUIET, 0.6))
    assert [s.first.defense for s in chosen(settings)] == ["gaussian", "drop-singletons"]
    assert seeds_for(chosen(settings)[1], 1) == 4  # ten parties a seed, forty needed
    assert seeds_for(chosen(settings)[1], 6) == 6
    # A worse one is of no use, and one whose attack is ahead is no candidate at all.
    worse = settings_of(tmp_path / "worse", made(DROP, few, 0.5), made(NOISE, QUIET, 0.6))
    assert [s.first.defense for s in chosen(worse)] == ["gaussian"]
    ahead = settings_of(tmp_path / "ahead", made(NONE, LOUD, 0.9), made(DROP, hits_in_clusters([3] * 10), 0.8))
    assert chosen(ahead) == []


def test_reports_say_what_fresh_seeds_found(tmp_path: Path) -> None:
    def run_with(name: str, fresh: Sequence[Sequence[float]] | None) -> str:
        folder = store(tmp_path / name, [made(NONE, LOUD, 0.9), made(DROP, QUIET, 0.7)])
        if fresh is not None:
            store(folder / CONFIRMED / "again", [made(DROP, fresh, 0.68, seed=seed) for seed in (1, 2, 3)])
        return texts(folder)["report.md"]

    assert CHOSEN in run_with("alone", None)
    good = run_with("good", QUIET)
    assert CHOSEN not in good and "confirmed on fresh seeds 1 to 3: no attack on features succeeded" in good
    bad = run_with("bad", LOUD)
    assert re.search("not confirmed on fresh seeds 1 to 3: leaks, [0-9.]+.% exact .* by [a-z-]+, 68", bad)


def test_the_console_asks_fresh_seeds_about_the_observer_a_setting_was_chosen_against(tmp_path: Path) -> None:
    """What holds against a client alone is no failure because the server reads it, as it did when it was chosen."""

    def both(defense: tuple[str, dict[str, object]], client: Sequence[Sequence[float]], seed: int) -> CellRecord:
        server, other = made(defense, LOUD, 0.7, seed), made(defense, client, 0.7, seed)
        theirs = tuple(replace(finding, observer="client:each") for finding in other.findings)
        clusters = {**server.clusters, "client:each||a": [list(rows) for rows in client]}
        return replace(server, findings=(*server.findings, *theirs), clusters=clusters)

    folder = store(tmp_path / "run", [both(NONE, LOUD, 0), both(DROP, QUIET, 0)])
    store(folder / CONFIRMED / "again", [both(DROP, QUIET, seed) for seed in (1, 2, 3)])
    console = Console(file=io.StringIO(), width=300)
    print_confirmed(console, load_run(folder))
    (line,) = [line for line in console.file.getvalue().splitlines() if "drop-singletons" in line]  # type: ignore[attr-defined]
    assert "against One client: confirmed on fresh seeds 1 to 3" in line


def test_of_two_confirmations_the_one_of_more_seeds_counts(tmp_path: Path) -> None:
    """Who tries again and again until it comes out right is left with the largest try."""
    folder = store(tmp_path / "run", [made(NONE, LOUD, 0.9), made(DROP, QUIET, 0.7)])
    store(folder / CONFIRMED / "z-lucky", [made(DROP, QUIET, 0.7, seed=1)])
    store(folder / CONFIRMED / "a-larger", [made(DROP, LOUD, 0.7, seed=seed) for seed in (1, 2)])
    run = load_run(folder)
    (setting,) = chosen(summarize(run))
    assert Confirmations.of(run).words(setting).startswith("not confirmed on fresh seeds 1, 2")


def test_a_damaged_confirmation_is_announced(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", [made(NONE, LOUD, 0.9)])
    (folder / CONFIRMED / "empty").mkdir(parents=True)
    (bad,) = load_run(folder).unreadable
    assert bad.file == f"{CONFIRMED}/empty" and "cells" in bad.reason
