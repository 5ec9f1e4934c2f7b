"""What suites find undefended: runs those that ``tables.yaml`` names and prints its tables, every figure from their
findings.

A line of ``tables.yaml`` names one row of ``findings.csv`` by some of its columns; what is left out must not matter:
several rows that fit are an error. Seed 0 alone, no guarantee audited (``fglaudit run SUITE --quick``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from fglaudit.errors import FglauditError
from fglaudit.execution.engines.by_name import make_engine
from fglaudit.execution.engines.engine import default_jobs
from fglaudit.finding import Finding, Status
from fglaudit.reports.numbers import THIN, decimal, percent
from fglaudit.reports.records import load_run
from fglaudit.run import run_suite
from fglaudit.suite.overrides import load_suite

TABLES = Path(__file__).parent / "tables.yaml"
TOO_FEW_PARTIES = "range"
WORDS = ("sent", "reader", "inferred", "suite")
"""What a line says of itself; all else in it are columns of ``findings.csv`` with their values."""


def run(results: Path) -> None:
    """Run what is missing below ``results/what_leaks``, then print the tables as Markdown."""
    tables = read_tables()
    folders = {}
    for name in sorted({row["suite"] for table in tables for row in table["rows"]}):
        suite = dataclasses.replace(load_suite(name), empirical=False)
        folders[name] = results / "what_leaks" / name
        engine = make_engine("local", default_jobs(len(suite.cells()), "cpu"))
        run_suite(suite, folders[name], engine, "cpu", Console(width=200))
    print_tables(tables, folders)


def read_tables(path: Path = TABLES) -> list[dict[str, Any]]:
    """Return the tables, each with ``columns`` and ``rows``; a row inherits what its table's ``defaults`` say."""
    tables = yaml.safe_load(path.read_text(encoding="utf-8"))
    for table in tables:
        table["rows"] = [{**table.get("defaults", {}), **row} for row in table["rows"]]
    return list(tables)


def print_tables(tables: Sequence[Mapping[str, Any]], folders: Mapping[str, Path]) -> None:
    """Print the tables from the runs in ``folders`` (by name of suite)."""
    findings = {name: [f for cell in load_run(folder).cells for f in cell.findings] for name, folder in folders.items()}
    for table in tables:
        print(*table_lines(table, findings), "", sep="\n")


def table_lines(table: Mapping[str, Any], findings: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """Yield the lines of one table; ``findings`` by name of suite."""
    columns = table["columns"]
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for row in table["rows"]:
        where = {column: value for column, value in row.items() if column not in WORDS}
        finding = the_finding(where, findings[row["suite"]])
        cells = [str(row[c]) if c in WORDS else FORMATS[c](finding) for c in columns]
        yield "| " + " | ".join(cells) + " |"


def the_finding(where: Mapping[str, Any], findings: Sequence[Finding]) -> Finding:
    """Return the one finding whose columns have the values in ``where``.

    Raises:
        FglauditError: none, or several fit, or the one was not measured.
    """
    fitting = [f for f in findings if all(str(getattr(f, column)) == str(value) for column, value in where.items())]
    said = "; ".join(f"{column}: {value}" for column, value in where.items())
    if len(fitting) != 1:
        seen = sorted({tuple(str(getattr(f, column)) for column in where) for f in findings})
        raise FglauditError(
            f"a line of a table is one row of findings.csv; {len(fitting)} fit {said}; there are, with these columns:"
            f" {seen[:20]}; name more columns or other values"
        )
    if fitting[0].status is not Status.OK:
        raise FglauditError(f"a table shows what was measured; {said} is {fitting[0].status}: {fitting[0].reason}")
    return fitting[0]


def with_interval(f: Finding) -> str:
    """Return the primary metric with the ends of its interval, which ``findings.csv`` has on the advantage's scale."""
    if f.value is None or f.control is None:
        raise FglauditError(f"{f.attack} has no value in {f.metric}; choose a row that is measured")
    show: Callable[[float | None], str] = percent if f.metric.endswith("_rate") else decimal
    figure = f"**{show(f.value)}**"
    if f.advantage_low is None or f.advantage_high is None:
        return figure
    ends = [f.control + (1 - f.control) * end for end in (f.advantage_low, f.advantage_high)]
    low, high = (show(max(end, 0.0)).removesuffix(f"{THIN}%") for end in ends)
    few = ", range: too few parties" if f.interval == TOO_FEW_PARTIES else ""
    return f"{figure} [{low}, {high}{few}]"


FORMATS: dict[str, Callable[[Finding], str]] = {
    "attack": lambda f: f.attack,
    "command": lambda f: f"`fglaudit run {f.suite}`",
    "figure [95 %]": lambda f: f"{f.metric.replace('_', ' ')} {with_interval(f)}",
    "exact rows [95 %]": with_interval,
    "a guess": lambda f: percent(f.control) if f.metric.endswith("_rate") else decimal(f.control),
    "exact rows": lambda f: percent(f.exact_rate),
    "exact rows, best assignment": lambda f: percent(f.matched_rate),
    "proven": lambda f: percent(f.identifiable_rate),
    "F1 (guess)": lambda f: f"{decimal(f.f1, 2)} ({decimal(f.control_f1, 2)})",
    "false claims": lambda f: percent(f.false_claim_rate),
    "accuracy": lambda f: percent(f.accuracy_global if f.accuracy_global is not None else f.accuracy),
}
