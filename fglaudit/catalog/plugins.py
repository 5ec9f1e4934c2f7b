"""What plugins say of themselves: from their source, so that nothing is imported, or from their class."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.files.plain_words import branches
from fglaudit.plugins.class_source import class_source, with_words


@dataclass(frozen=True)
class Description:
    """What ``show`` says of a plugin: docstrings, one line per field, and class attributes in words."""

    docs: tuple[str, ...]
    fields: tuple[str, ...]
    attributes: tuple[str, ...]


_ATTRIBUTES = (("emits", "sends"), ("consumes", "reads"), ("quantity", "infers"), ("metric", "primary metric"))
_NONE = {"emits": "nothing", "consumes": "whatever is sent"}
"""What an empty list of payloads says."""


def described(kind: str, name: str) -> Description:
    """Describe a named plugin from its source; nothing is imported.

    Raises:
        UnreadableError: the source alone does not say it all.
    """
    module, _, cls = registry.target(kind, name).partition(":")
    source = class_source(module, cls)
    said = {attribute: source.constant(attribute) for attribute, _ in _ATTRIBUTES}
    return Description(
        tuple(filter(None, (source.doc, *source.base_docs, source.module_doc))),
        tuple(f"{f.name}: {f.type}{f.default}" for f in source.fields),
        _attributes(said),
    )


def _attributes(said: dict[str, str | tuple[str, ...] | None]) -> tuple[str, ...]:
    """Return the lines that say class attributes in words: texts, or names of payloads; those that there are."""
    lines = []
    for attribute, words in _ATTRIBUTES:
        value = said[attribute]
        if value is not None:
            text = value if isinstance(value, str) else ", ".join(value) or _NONE[attribute]
            lines.append(f"{words}: {text}")
    return tuple(lines)


def described_class(cls: type[Any]) -> Description:
    """Describe a plugin class that is imported; :func:`described` of a named one is equal."""
    docs = [inspect.getdoc(cls) or ""]
    for base in cls.__mro__[1:]:  # fields that several plugins share are described where they are declared
        if dataclasses.is_dataclass(base) and "Attributes:" in (base.__doc__ or ""):
            docs.append(inspect.cleandoc(base.__doc__ or ""))
    module = inspect.getmodule(cls)
    docs.append(inspect.cleandoc(module.__doc__ or "") if module else "")
    said = {attribute: getattr(cls, attribute, None) for attribute, _ in _ATTRIBUTES}
    return Description(
        tuple(filter(None, docs)),
        tuple(_field(cls, f) for f in dataclasses.fields(cls)),
        _attributes({a: tuple(t.__name__ for t in v) if isinstance(v, tuple) else v for a, v in said.items()}),
    )


def _field(cls: type[Any], f: dataclasses.Field[Any]) -> str:
    """Return a field with its type and default; a key of a suite entry."""
    if f.default is not dataclasses.MISSING:
        default = f" = {f.default!r}"
    else:
        default = "" if f.default_factory is dataclasses.MISSING else f" = {f.default_factory()!r}"
    home = next((base for base in cls.__mro__ if f.name in vars(base).get("__annotations__", {})), cls)
    names = vars(sys.modules[home.__module__]) if home.__module__ in sys.modules else {}

    def called(name: str) -> tuple[str, ...]:
        found = names.get(name)
        return typing.get_args(found) if typing.get_origin(found) is typing.Literal else ()

    said = f.type if isinstance(f.type, str) else _name_of(f.type)
    return f"{f.name}: {with_words(said, called)}{default}"


def _name_of(hint: Any) -> str:
    """Return a type that is written without quotes as its source has it."""
    if len(parts := branches(hint)) > 1:
        return " | ".join("None" if part is type(None) else _name_of(part) for part in parts)
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
