"""Facts about a run for the end of the report: its partitions, and what it takes to compute it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fglaudit.reports.labels import arguments, place
from fglaudit.reports.numbers import count, decimal
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting


def partition_rows(settings: Sequence[Setting]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Facts of every partition, averaged over the seeds' draws."""
    result = []
    for title in dict.fromkeys(place(s) for s in settings):
        facts = {
            r.cell: r.partition_facts for s in settings if place(s) == title for r in s.records if r.partition_facts
        }
        # Cells of one seed share their partition: count each draw once.
        draws = list({json.dumps(f, sort_keys=True, default=str): f for f in facts.values()}.values())
        keys = dict.fromkeys(key for draw in draws for key in draw if key != "digest")
        rows = [(key.replace("_", " "), _fact([draw[key] for draw in draws if key in draw])) for key in keys]
        if rows:
            result.append((f"{title} ({len(draws)} drawn)" if len(draws) > 1 else title, rows))
    return result


def _fact(values: Sequence[Any]) -> str:
    flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
    if flat and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in flat):
        if len(flat) == 1:
            return _number(flat[0])
        average = _number(round(sum(flat) / len(flat), 4))
        return (
            f"{average} ({_number(min(flat))} to {_number(max(flat))})" if min(flat) != max(flat) else _number(flat[0])
        )
    return " | ".join(
        dict.fromkeys(v if isinstance(v, str) else json.dumps(v, sort_keys=True, default=str) for v in values)
    )


def _number(value: float) -> str:
    return count(value) if float(value).is_integer() else decimal(value) if abs(value) < 100 else f"{value:.1f}"


def versions(run: Run, settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """Facts for reproducing the run: whatever scalars and small tables ``run.json`` holds."""
    facts = {key: value for key, value in run.facts.items() if key not in ("cells", "suite", "plugins", "sources")}
    rows = [("fglaudit" if key == "version" else key.replace("_", " "), _scalar(value)) for key, value in facts.items()]
    devices = sorted({f.device for s in settings for f in s.findings if f.device})
    plugins = run.facts.get("plugins")
    rows += [("device", ", ".join(devices))] if devices else []
    rows += [("plugin files", _scalar(plugins))] if plugins else []
    return rows


def sources(run: Run) -> list[tuple[str, str]]:
    """The source files of the plugins of the run: kind and name, SHA-256."""
    found = run.facts.get("sources")
    return [(str(name), str(digest)) for name, digest in found.items()] if isinstance(found, dict) else []


def _scalar(value: Any) -> str:
    if isinstance(value, dict):
        return arguments(";".join(f"{key} {_scalar(item)}" for key, item in value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
