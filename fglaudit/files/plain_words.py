"""What a value must be, in plain words: one table for suites, policies and fields of plugins.

Pydantic's own wording ("Input should be a valid integer") is that of Python, not of the file that a user writes.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from fglaudit.errors import shown

_TEXT, _WHOLE, _NUMBER, _FLAG, _LIST = "text", "a whole number", "a number", "true or false", "a list"
_MAPPING = "a mapping of keys to values"

RULES: Mapping[str, str] = {
    **dict.fromkeys(("string_type", "string_unicode", "string_sub_type"), f"must be {_TEXT}"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), f"must be {_WHOLE}"),
    **dict.fromkeys(("float_type", "float_parsing"), f"must be {_NUMBER}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), f"must be {_FLAG}"),
    **dict.fromkeys(("list_type", "tuple_type"), f"must be {_LIST}"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), f"must be {_MAPPING}"),
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "too_short": "must have at least {min_length} entry",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}
"""Rules by pydantic's types of errors, with places for the limits that come along."""

_KINDS: Mapping[Any, str] = {
    str: _TEXT,
    int: _WHOLE,
    float: _NUMBER,
    bool: _FLAG,
    list: _LIST,
    tuple: _LIST,
    dict: _MAPPING,
    type(None): "null",
}


def rule(problems: Iterable[Mapping[str, Any]]) -> str:
    """Return what pydantic's ``problems`` with one value come to: of "text | mapping" it has one for each branch."""
    said = dict.fromkeys(
        RULES[problem["type"]].format(**problem.get("ctx", {})) if problem["type"] in RULES else problem["msg"]
        for problem in problems
    )
    return " or ".join(said).replace(" or must be ", " or ")


def branches(hint: Any) -> tuple[Any, ...]:
    """Return the types of which a field with this type hint takes any: of ``float | None`` both."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def kind(hint: Any) -> str:
    """Return what a field with this type hint takes: ``float | None`` is "a number or null"."""
    if len(parts := branches(hint)) > 1:
        return " or ".join(map(kind, parts))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    plain = typing.get_origin(hint) or hint
    inner = [_KINDS[part] for part in typing.get_args(hint) if isinstance(part, type) and part in _KINDS]
    if plain in (list, tuple) and len(set(inner)) == 1:
        return f"{_LIST}, each entry {inner[0]}"
    return _KINDS.get(plain) or (hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", ""))


def kind_of(value: Any) -> str:
    """Return what ``value`` is: "a whole number" for 3."""
    return _KINDS.get(type(value), type(value).__name__)


def flag_meant(value: Any) -> str:
    """Return what to write where a flag is wanted: ``true`` for yes, and both words for what is no yes or no."""
    said = str(value).strip().lower()
    if said in ("true", "yes", "y", "on", "1"):
        return "write true"
    return "write false" if said in ("false", "no", "n", "off", "0") else "write true or false"


def fix(wanted: str, value: Any) -> str:
    """Return how ``value`` becomes what a rule or :func:`kind` calls ``wanted``; nothing where that is not plain."""
    if wanted.removeprefix("must be ").split(" or null")[0] == _FLAG:
        return flag_meant(value)
    if isinstance(value, str) and wanted.removeprefix("must be ").startswith((_WHOLE, _NUMBER)) and _digits(value):
        return "write it without quotes, in digits alone"
    if wanted.startswith(f"{_LIST}, each entry") and isinstance(value, str | int | float):
        return f"write [{shown(value)}]"
    return ""


def _digits(text: str) -> bool:
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False
