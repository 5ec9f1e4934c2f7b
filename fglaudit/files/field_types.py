"""Types of the fields that users set, from a suite or in Python: one check for both, before anything uses a value.

Whole numbers become floats where a float is wanted, lists tuples, NumPy's scalars plain numbers and paths text, so that
equal settings are equal wherever they were written; text is never silently taken for a number, nor a flag for one.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files import limits, plain_words


class CheckedFields:
    """Base of frozen dataclasses whose fields are checked when an instance is made, before their ``__post_init__``.

    Raises:
        FglauditError: a value that its field cannot be. What a field has by default is its author's business.
    """

    def __post_init__(self) -> None:
        _check(self)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        own = cls.__post_init__
        if own is not CheckedFields.__post_init__ and not hasattr(own, "checks_fields"):
            cls.__post_init__ = _checking(own)  # type: ignore[method-assign]


def _checking(own: Callable[..., None]) -> Callable[..., None]:
    """Return ``own`` with the check before it; once, where one class calls that of another."""

    @functools.wraps(own)
    def checked(self: Any, *given: Any) -> None:
        if type(self).__post_init__ is checked:
            _check(self)
        own(self, *given)

    checked.checks_fields = True  # type: ignore[attr-defined]
    return checked


def _check(made: Any) -> None:
    defaults = {f.name: f.default for f in fields(made) if f.init}
    given = {name: value for name in defaults if (value := getattr(made, name)) is not defaults[name]}
    for name, value in as_declared(type(made), given).items():
        object.__setattr__(made, name, value)


def hints_of(cls: type[Any], what: str) -> dict[str, Any]:
    """Return the types of the fields of ``cls``, which messages call ``what``.

    Raises:
        FglauditError: an annotation that leads nowhere.
    """
    try:
        return typing.get_type_hints(cls)
    except Exception as error:  # the annotations of a user's class are expressions of any kind
        raise FglauditError(
            f"the fields of {what} must have types that can be found; {type(error).__name__}: {error}; correct its"
            " annotations"
        ) from error


def as_declared(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values``, by field of the dataclass ``cls``, in the types that it declares.

    Raises:
        FglauditError: a value of another type, one that is not finite, or beyond :mod:`fglaudit.files.limits`.
    """
    if not values:
        return {}
    hints = hints_of(cls, cls.__name__)
    metadata = {f.name: f.metadata for f in fields(cls)}
    found = {}
    for name, value in values.items():
        what = f"field {name!r}"
        found[name] = _coerced(_plain(value), hints[name], name, what)
        limits.refuse_large(found[name], name, what, metadata[name])
    return found


def _plain(value: Any) -> Any:
    """Return NumPy's scalars as numbers of Python and paths as text, also in a list."""
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ != "numpy":
        return value
    import numpy as np

    return value.item() if isinstance(value, np.generic) else value


def words_of(hint: Any) -> tuple[str, ...]:
    """Return the words that a field with this type hint takes, a ``Literal``, also beside None; none for others."""
    parts = [part for part in plain_words.branches(hint) if part is not type(None)]
    if len(parts) != 1 or typing.get_origin(parts[0]) is not typing.Literal:
        return ()
    words = typing.get_args(parts[0])
    return words if all(isinstance(word, str) for word in words) else ()


def _coerced(value: Any, hint: Any, name: str, what: str) -> Any:
    if type(value) is hint and hint in (bool, int, str):
        return value
    if type(value) is str and (words := words_of(hint)):
        if value not in words:
            raise unknown(name, value, words)
        return value
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    wanted = plain_words.kind(hint)

    def refuse(reason: str = "") -> FglauditError:
        single = "give one value (the defenses of a suite take several, as {sweep: [...]})"
        listed = isinstance(value, list | Mapping) and isinstance(hint, type)
        fix = single if listed else plain_words.fix(wanted, value) or "change it"
        got = f"{shown(value)} ({plain_words.kind_of(value)}){reason and f': {reason}'}"
        return FglauditError(f"{what} must be {wanted}; got {got}; {fix}")

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
        made = adapter.validate_python(value)
    except ValidationError as error:
        raise refuse() from error
    except Exception as error:  # a user's class may have types that pydantic cannot check
        raise refuse(f"{type(error).__name__}: {error}") from error
    if not _as_given(value, made):
        raise refuse()
    if not _finite(made):
        raise refuse("a number must be finite")
    return made


def _as_given(given: Any, made: Any) -> bool:
    """Whether pydantic made of ``given`` nothing that it does not say: of "no" it makes False, of "nan" a number."""
    if isinstance(given, list | tuple) and isinstance(made, list | tuple):
        return all(itertools.starmap(_as_given, zip(given, made, strict=True)))
    if isinstance(given, bool) or isinstance(made, bool):
        return type(given) is type(made)
    return not (isinstance(given, str | bytes) and isinstance(made, int | float))


def _finite(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
