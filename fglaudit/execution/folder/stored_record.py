"""How the record of a cell is stored, and how damage is noticed: by digest, and by the type and range of each value.

A damaged record is as good as none: its cell is computed again. So a figure in a report is one that was measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from fglaudit.errors import FglauditError, shown
from fglaudit.files.own import stamped, unstamped
from fglaudit.finding import INTERVALS, NO, YES, Cause, CellRecord, Finding, Status
from fglaudit.guarantees import (
    RELATIONS,
    Audit,
    AuditName,
    FieldState,
    MeasuredCurve,
    Outcome,
    Protection,
    Verdict,
    Word,
)
from fglaudit.quantities.rows.examples import RowExample
from fglaudit.scoring.clusters import PairedClusters

FORMAT = 1
"""Of a record: raised with every change of what is stored or of what it means; records of another one are not read."""
NAME = re.compile(r"[0-9a-f]{16}")
"""A cell's hash, the only thing that may name its files."""
_SLACK = 1e-4  # means of float32 values may be a little above 1
_RATES = frozenset(
    {
        "accuracy", "accuracy_global", "exact_rate", "matched_rate", "f1", "auc", "tpr_at_fpr_1", "tv_error",
        "control_exact_rate", "control_f1", "control_auc", "identifiable_rate", "delta", "worst_decile", "f1_unproven",
        "control_f1_unproven", "direction_rate", "false_claim_rate", "epsilon_p_value",
        "p_value", "power", "margin", "tpr_at_fpr_01", "tpr_at_fpr_1_low", "tpr_at_fpr_1_high", "accuracy_balanced",
    }
)  # fmt: skip
_COSINES = frozenset({"cosine", "control_cosine"})
_NOT_NEGATIVE = frozenset(
    {
        "clients", "targets", "relative_error", "epsilon_claimed", "epsilon_accounted", "epsilon_empirical", "releases",
        "bytes_up", "bytes_down", "ciphertext_bytes", "seconds_train", "seconds_attack", "claimed_rate",
        "unique_exact",
        "epsilon", "claimed", "largest_epsilon", "ceiling", "mu", "replays",
    }
)  # fmt: skip


class OtherVersionError(ValueError):
    """A record is whole, but this version does not write such records."""


@dataclass(frozen=True)
class Made:
    """What all cells of a run must have in common to be compared, as far as the suite does not say it.

    Attributes:
        version: of this package.
        threads: CPU threads of a cell.
        data: digests of the data sets' content.
        plugins: SHA-256 of plugin files.
    """

    version: str
    threads: int
    data: Mapping[str, str] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "threads": self.threads,
            "data": dict(self.data),
            "plugins": dict(self.plugins),
        }

    @staticmethod
    def from_json(data: Any) -> Made:
        """Raises ValueError for anything but what :meth:`to_json` gave."""
        _demand(isinstance(data, dict) and set(data) == {f.name for f in fields(Made)}, "made", data)
        _demand(isinstance(data["version"], str), "version", data["version"])
        _demand(type(data["threads"]) is int and 0 < data["threads"] < 10**6, "threads", data["threads"])
        for key in ("data", "plugins"):
            _demand(_is_mapping(data[key], str), key, data[key])
        return Made(**data)


def record_text(record: CellRecord, made: Made) -> str:
    """Return the text of ``cells/CELL.json``.

    Raises:
        ValueError: for values out of range, which no reader would accept.
    """
    data = record.to_json()
    check_record(data)
    return stamped({"format": FORMAT, **data, "made": made.to_json()}, f"{record.cell}.json")


def parse_record(text: bytes, cell: str) -> tuple[CellRecord, Made]:
    """Return the record of ``cell``, and what it was made with.

    Raises:
        OtherVersionError: whole, but of another format, or with other keys or values than this version writes.
        ValueError: damaged.
    """
    data = unstamped(text, f"{cell}.json")
    if (form := data.pop("format", None)) != FORMAT:
        raise OtherVersionError(f"its format is {shown(form)}, this version reads {FORMAT}")
    try:
        made = Made.from_json(data.pop("made", None))
        check_record(data)
        _demand(data["cell"] == cell, "cell", data["cell"])
        return CellRecord.from_json(data), made
    except ValueError as error:  # its digest is right: this is what somebody's version wrote
        raise OtherVersionError(str(error)) from error


def check_record(data: Mapping[str, Any]) -> None:
    """Raise ValueError unless ``data`` is a record with values of the right types and in range."""
    _demand(set(data) == _KEYS, "keys", sorted(data))
    _demand(isinstance(data["cell"], str) and NAME.fullmatch(data["cell"]) is not None, "cell", data["cell"])
    for key in ("description", "partition_facts"):
        _demand(_is_mapping(data[key], object), key, data[key])
    _demand(isinstance(data["findings"], (list, tuple)) and len(data["findings"]) > 0, "findings", data["findings"])
    for row in data["findings"]:
        _check_row(row)
    _demand(_is_list_of_text(data["notes"]), "notes", 0)
    _demand(_is_mapping(data["history"], (list, tuple)), "history", data["history"])
    for values in data["history"].values():
        _demand(set(map(type, values)) <= {int, float}, "history", values)
    _demand(_is_mapping(data["clusters"], (list, tuple)), "clusters", data["clusters"])
    for clusters in data["clusters"].values():
        for cluster in clusters:
            _demand(isinstance(cluster, (list, tuple)) and set(map(type, cluster)) <= {int, float}, "clusters", cluster)
        try:
            PairedClusters.from_rows(clusters)
        except (FglauditError, OverflowError) as error:
            raise ValueError(f"clusters: {error}") from error
    _check_guarantee(data["verdict"], data["fields"])
    _demand(_is_mapping(data["breakdowns"], dict), "breakdowns", data["breakdowns"])
    for groups in data["breakdowns"].values():
        for buckets in groups.values():
            _demand(_is_mapping(buckets, (int, float)), "breakdowns", buckets)
    _demand(_is_mapping(data["examples"], (list, tuple)), "examples", 0)
    for rows in data["examples"].values():
        for row in rows:
            RowExample.from_json(row)


def _check_guarantee(verdict: Any, states: Any) -> None:
    """Raise ValueError unless these are a verdict or None, and rows of ``guarantees.csv``."""
    _demand(isinstance(states, (list, tuple)), "fields", states)
    for row in states:
        _demand(isinstance(row, dict), "fields", row)
        _check_keys("a field's state", row, _STATE)
        for name, value in row.items():
            _demand(_STATE[name](value), name, value)
    if verdict is None:
        return
    _demand(isinstance(verdict, dict), "verdict", verdict)
    _demand(verdict.keys() == _VERDICT.keys(), "verdict", verdict)
    _demand(isinstance(verdict["audits"], (list, tuple)), "audits", verdict["audits"])
    _demand(_is_list_of_text(verdict["covers"]), "covers", verdict["covers"])
    curves = [audit.get("measured") for audit in verdict["audits"] if isinstance(audit, dict)]
    for columns, row in (
        (_VERDICT, verdict),
        *((_AUDIT, audit) for audit in verdict["audits"]),
        *((_MEASURED, curve) for curve in curves if curve is not None),
    ):
        _demand(isinstance(row, dict) and row.keys() == columns.keys(), "verdict", row)
        for name, value in row.items():
            _demand(columns[name](value), name, value)


_KEYS = {f.name for f in fields(CellRecord)}


def _check_row(row: Any) -> None:
    _demand(isinstance(row, dict), "a finding", row)
    _check_keys("a finding", row, _COLUMNS)
    check_columns(row)


def _check_keys(what: str, row: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    if odd := sorted(map(str, row.keys() ^ known.keys())):
        raise ValueError(f"other columns of {what}: {', '.join(odd[:3])}{' ...' if len(odd) > 3 else ''}")


def check_columns(row: Mapping[str, Any]) -> None:
    """Raise ValueError unless the columns of a finding in ``row`` have values that these can have."""
    for name, value in row.items():
        # A run has hundreds of thousands of rows, most of whose columns are text or empty: these need no call.
        plain = name in _OPTIONAL if value is None else type(value) is str and name in _TEXT
        if not plain and not _COLUMNS[name](value):
            raise ValueError(f"{name} cannot be {shown(value)}")


_NUMBERS = {"int": (True, False), "int | None": (True, True), "float": (False, False), "float | None": (False, True)}
"""By the name of a type: whether whole numbers alone are of it, and whether it may be empty."""


def column_checks(kind: Any, own: Mapping[str, Callable[[Any], bool]]) -> dict[str, Callable[[Any], bool]]:
    """Return what checks every column of the dataclass ``kind``: its ``own`` checks, else what its type says."""
    return {f.name: own[f.name] if f.name in own else _column(f.name, str(f.type)) for f in fields(kind)}


def _column(name: str, kind: str) -> Callable[[Any], bool]:
    """Return whether a value fits the column ``name``, whose type is called ``kind``.

    Raises:
        TypeError: no check of such a type is known here. It would pass for a number, and a record with any text in it
            for damaged.
    """
    if kind == "Status":
        return _one_of(Status)
    if kind == "str":
        return lambda value: isinstance(value, str)
    if kind not in _NUMBERS:
        raise TypeError(f"a column is of type str, Status, int or float; {name} is {kind}; give it a check of its own")
    low = -math.inf
    high = math.inf
    if name in _RATES:
        low, high = -_SLACK, 1 + _SLACK
    elif name in _COSINES:
        low, high = -1 - _SLACK, 1 + _SLACK
    elif name in _NOT_NEGATIVE:
        low = 0.0
    elif name.startswith("advantage"):
        high = 1 + _SLACK
    whole, optional = _NUMBERS[kind]

    def fits(value: Any) -> bool:
        if value is None:
            return optional
        if type(value) is int:
            return low <= value <= high
        return not whole and type(value) is float and (low <= value <= high or value != value)

    return fits


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)


def _one_of(words: type[StrEnum]) -> Callable[[Any], bool]:
    known = {word.value for word in words}
    return lambda value: isinstance(value, str) and value in known


_COLUMNS = column_checks(
    Finding,
    {
        "guarantee": lambda value: value == "" or _one_of(Word)(value),
        "succeeds_weakened": lambda value: value in ("", YES, NO),
        "interval": lambda value: value in INTERVALS,
        "cause": _one_of(Cause),
    },
)
_OPTIONAL = frozenset(f.name for f in fields(Finding) if str(f.type).endswith("None"))
_TEXT = frozenset(f.name for f in fields(Finding) if f.type == "str") - {"guarantee", "succeeds_weakened", "interval"}
_STATE = column_checks(
    FieldState,
    {
        "state": _one_of(Protection),
        "seal": _one_of(Word),
        "unstated": lambda value: isinstance(value, bool),
        "others": _is_list_of_text,
    },
)
_VERDICT = column_checks(
    Verdict,
    {
        "word": _one_of(Word),
        "audits": lambda value: True,
        "covers": lambda value: True,
        "relation": lambda value: value in ("", *RELATIONS),
    },
)
_AUDIT = column_checks(
    Audit,
    {
        "name": _one_of(AuditName),
        "outcome": _one_of(Outcome),
        "measured": lambda value: value is None or isinstance(value, dict),
    },
)
_MEASURED = column_checks(
    MeasuredCurve,
    dict.fromkeys(
        ("alarms", "hits", "stated_alarms", "stated_hits"),
        lambda value: isinstance(value, (list, tuple)) and all(_is_number(one) and 0 <= one <= 1 for one in value),
    ),
)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_mapping(value: Any, kind: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, kind) for k, v in value.items())


def _demand(true: bool, name: str, value: Any) -> None:
    if not true:
        raise ValueError(f"{name} cannot be {shown(value)}")


FIX = "the same run command computes it again"


def damaged(path: object, error: Exception) -> FglauditError:
    """Return the error for a record that cannot be used."""
    if isinstance(error, OtherVersionError):
        return FglauditError(
            f"a record must be of this version's form; {path} was written by another version of fglaudit ({error}); run"
            " the suite again, with a new --out where the folder is refused, or read the folder with the version that"
            " wrote it"
        )
    return FglauditError(f"a record must be whole; {path} is damaged ({error}); {FIX}")


def unusable(error: FglauditError) -> str:
    """Return why a record cannot be used that raised ``error``, in words that many records share: without its path, and
    without what to do about it."""
    if isinstance(error.__cause__, OtherVersionError):
        return f"written by another version of fglaudit: {error.__cause__}"
    return f"damaged: {error.__cause__}" if error.__cause__ else str(error)
