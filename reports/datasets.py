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
    by as many fields as it takes to tell the data sets of that name apart, as in ``csbm (nodes=60)``; the column
    ``dataset_args`` has all."""
    columns = [record.findings[0].dataset for record in records]
    fields = [dict(_flat(record.description.get("dataset"))) for record in records]
    apart = {
        name: _telling([mine for column, mine in zip(columns, fields, strict=True) if column == name])
        for name in dict.fromkeys(columns)
    }
    told = [
        ", ".join(f"{field}={mine[field]}" for field in apart[column] if field in mine)
        for column, mine in zip(columns, fields, strict=True)
    ]
    return [f"{column} ({words})" if words else column for column, words in zip(columns, told, strict=True)]


def _telling(described: Sequence[Mapping[str, str]]) -> list[str]:
    """Return fields, in order, by whose values all that differ in ``described`` are told apart: each is taken only if
    it tells more of them apart than those before."""
    chosen: list[str] = []
    groups = 1
    for field in dict.fromkeys(field for one in described for field in one):
        told = len({tuple(one.get(name) for name in [*chosen, field]) for one in described})
        if told > groups:
            chosen, groups = [*chosen, field], told
    return chosen


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
