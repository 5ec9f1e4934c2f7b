"""Names of a run's data sets: two graphs that share one, such as a generated one in two sizes, are told apart.

Settings on different graphs must never be compared with one another, and readers must know which is which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fglaudit.finding import CellRecord
from fglaudit.suite.cell import anywhere


def names_apart(records: Sequence[CellRecord]) -> list[str]:
    """Return the name of the data set of every one of ``records``, each with findings: the column ``dataset``, followed
    by the fields in which data sets of that name differ, as in ``csbm (nodes=60, edges=120)``."""
    columns = [record.findings[0].dataset for record in records]
    fields = [dict(_flat(record.description.get("dataset"))) for record in records]
    values: dict[tuple[str, str], set[str]] = {}
    for column, mine in zip(columns, fields, strict=True):
        for field, value in mine.items():
            values.setdefault((column, field), set()).add(value)
    apart = [
        ", ".join(f"{field}={value}" for field, value in mine.items() if len(values[column, field]) > 1)
        for column, mine in zip(columns, fields, strict=True)
    ]
    return [f"{column} ({told})" if told else column for column, told in zip(columns, apart, strict=True)]


def _flat(described: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of a data set's description and of the mappings in it, without where its files lie."""
    if not isinstance(described, Mapping):
        return
    for field, value in anywhere(dict(described)).items():
        if isinstance(value, Mapping):
            yield from ((name, _short(inner)) for name, inner in value.items())
        else:
            yield field, _short(value)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:12]
