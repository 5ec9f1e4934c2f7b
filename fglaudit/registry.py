"""Where plugins are found: each folder's table, entry points of other distributions, or ``path/to/file.py:Class``.

Looking a name up imports nothing heavy; :func:`load` imports the one module that is asked for. An unknown name is an
error that lists the known ones, never a default.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError, meant, shown, unknown, with_article
from fglaudit.files.field_types import as_declared, hints_of
from fglaudit.plugins.modules import is_loaded, load_file, read_plugin, refuse_without_class
from fglaudit.plugins.modules import load_files as load_files
from fglaudit.plugins.modules import loaded_files as loaded_files


@dataclass(frozen=True)
class Kind:
    """One kind of plugin: the package with its table, and the name of its base class in ``fglaudit.interfaces``."""

    package: str
    table: str
    base: str


KINDS: dict[str, Kind] = {
    "protocol": Kind("fglaudit.protocols", "PROTOCOLS", "FederatedProtocol"),
    "defense": Kind("fglaudit.defenses", "DEFENSES", "Defense"),
    "attack": Kind("fglaudit.attacks", "ATTACKS", "Attack"),
}


def _base(kind: str) -> type[Any]:
    base: type[Any] = getattr(importlib.import_module("fglaudit.interfaces"), KINDS[kind].base)
    return base


def _builtin(kind: str) -> dict[str, str]:
    spec = KINDS[kind]
    table: dict[str, str] = getattr(importlib.import_module(spec.package), spec.table)
    return table


@cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    builtin, found = _builtin(kind), {}
    for point in entry_points(group=KINDS[kind].package):
        owner = point.dist.name if point.dist else "a distribution"
        if point.name in builtin or point.name in found:
            raise FglauditError(
                f"{kind} names must be unique; the entry point {point.name!r} of {owner} ({point.value}) takes a name"
                f" that is in use; rename it there or uninstall {owner}"
            )
        found[point.name] = point
    return found


def names(kind: str) -> list[str]:
    """Return the names of all known plugins of ``kind`` (protocol, defense, attack), built-in ones first."""
    return [*_builtin(kind), *sorted(_entry_points(kind))]


def target(kind: str, name: str) -> str:
    """Return ``module:Class`` of a named plugin.

    Raises:
        FglauditError: if the name is not known.
    """
    if name in (table := _builtin(kind)):
        return table[name]
    if name in (points := _entry_points(kind)):
        return points[name].value
    if name.partition(":")[0] in sys.modules:  # a class of a program that is running: see :func:`reference`
        return name
    refuse_without_class(name)
    if kind == "attack" and name == "all":
        raise FglauditError(
            "no single attack is called 'all'; got that name; write attacks: all without brackets (fglaudit attack"
            " takes names alone)"
        )
    raise unknown(kind, name, names(kind), f"fglaudit list {kind}s")


@cache
def summary(kind: str, name: str) -> str:
    """Return the first paragraph of the plugin's docstring as plain text, read from its source so that listing imports
    no plugin. Other plugins are called by the names that suites use."""
    module, _, cls = target(kind, name).partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls]
    text = (ast.get_docstring(classes[0]) if classes else None) or ast.get_docstring(tree) or ""
    called = {place.replace(":", "."): known for known, place in _builtin(kind).items()}
    first = re.sub(
        r":\w+:`~?([\w.]+)`", lambda m: called.get(m[1], m[1].rpartition(".")[2]), text.strip().split("\n\n")[0]
    )
    return first.replace("\n", " ").replace("``", "`")


def load(kind: str, name: str) -> type[Any]:
    """Return the plugin class called ``name``, or the one at ``path/to/file.py:Class``.

    Raises:
        FglauditError: unknown name, missing file or class, or a class that is no plugin of this kind.
    """
    if ".py:" in name:
        path, _, cls_name = name.rpartition(":")
        module = load_file(Path(path))
    else:
        module_name, _, cls_name = target(kind, name).partition(":")
        module = importlib.import_module(module_name)
    if not hasattr(module, cls_name):
        classes = [
            n for n, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__
        ]
        raise unknown("class", cls_name, classes)
    return _checked(kind, name, getattr(module, cls_name))


def _checked(kind: str, name: str, cls: Any) -> type[Any]:
    base = _base(kind)
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise FglauditError(
            f"{with_article(kind)} must be a subclass of fglaudit.interfaces.{base.__name__}; {name} is {cls!r}"
        )
    if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise FglauditError(
            f"{with_article(kind)} must be a frozen dataclass; put @dataclass(frozen=True) on {cls.__name__} ({name})"
        )
    if abstract := getattr(cls, "__abstractmethods__", None):
        raise FglauditError(
            f"{with_article(kind)} must implement every method of {base.__name__}; {name} lacks"
            f" {', '.join(sorted(abstract))}"
        )
    own_name = getattr(cls, "name", None)
    if not isinstance(own_name, str) or not own_name:
        raise FglauditError(f'a {kind} must have a name; add name: ClassVar[str] = "..." to {cls.__name__} ({name})')
    if ".py:" in name and own_name in names(kind):
        raise FglauditError(f"{kind} names must be unique; {name} calls itself {own_name!r}, which is taken; rename it")
    return cls


@dataclass(frozen=True)
class _Unread:
    """Field of a plugin whose file was not imported: the arguments as written."""

    arguments: str = ""


def stand_in(kind: str, name: str, arguments: Mapping[str, Any], where: str = "") -> Any:
    """Return an object in place of the plugin ``file.py:Class``, without running the file: ``--dry-run`` plans with it.

    Its class has the plugin's name and no behaviour; what the file would make of ``arguments`` is not known.

    Raises:
        FglauditError: the file is no Python, or has no class of that name.
    """
    file, _, cls_name = name.rpartition(":")
    try:
        tree = ast.parse(read_plugin(Path(file))[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FglauditError(f"{where}: a plugin file must be Python; {file}: {error}; correct the file") from error
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if cls_name not in classes:
        raise FglauditError(f"{where}: {unknown('class', cls_name, classes)}")
    empty = {"name": name, "emits": (), "consumes": (), "__module__": __name__}
    made: Any = dataclass(frozen=True)(type(cls_name, (_Unread, _base(kind)), empty))
    made.__abstractmethods__ = frozenset()
    return made(arguments=shown(dict(arguments), 400))


def is_stand_in(plugin: Any) -> bool:
    """Return whether ``plugin`` comes from :func:`stand_in`, or is a stack with such a part."""
    return isinstance(plugin, _Unread) or any(map(is_stand_in, getattr(plugin, "parts", ())))


def build(kind: str, name: str, arguments: Mapping[str, Any], where: str = "") -> Any:
    """Return the plugin ``name`` with ``arguments`` as its fields.

    Args:
        where: where the arguments were written, e.g. ``protocols[1]``, for messages.

    Raises:
        FglauditError: unknown name or field, wrong type, or a value that the plugin refuses.
    """
    try:
        cls = load(kind, name)
    except FglauditError as error:
        raise FglauditError(f"{where}: {error}" if where else str(error)) from error
    return construct(cls, f"{kind} {name!r}", arguments, where)


def _called(also: Mapping[str, str], field: str) -> list[str]:
    """Return the other words for ``field``."""
    return [word for word, meant in also.items() if meant == field]


def construct(cls: type[Any], what: str, arguments: Mapping[str, Any], where: str = "") -> Any:
    """Return ``cls(**arguments)`` after checking the keys and coercing the values to the fields' types.

    A class may have ``also``: other words for its fields, such as those that other classes use for the same.
    Whole numbers become floats where a float is wanted and lists become tuples; text is never silently taken for a
    flag.
    """
    prefix = f"{where}: " if where else ""
    known = {f.name: f for f in fields(cls) if f.init}
    words = getattr(cls, "also", {})
    also: Mapping[str, str] = words if isinstance(words, Mapping) else {}
    values: dict[str, Any] = {}
    try:
        hints = hints_of(cls, what)
        for key, value in arguments.items():
            field = key if key in known else also.get(key, key)
            if field not in known:
                raise unknown(f"field of {what}", str(key), known)
            if field in values:
                raise FglauditError(
                    f"{what}: {field} is also called {', '.join(_called(also, field))}; got both; give one"
                )
            values[field] = _built(value, hints[field], f"{what}: field {key!r}")
    except FglauditError as error:
        raise FglauditError(f"{prefix}{error}") from error
    required = [
        n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING and n not in values
    ]
    if required:
        example = getattr(cls, "example", f"{required[0]}: ...")
        raise FglauditError(f"{prefix}{what} needs a value for {', '.join(required)}; write e.g. {example}")
    try:
        return cls(**as_declared(cls, values))
    except FglauditError as error:
        raise FglauditError(f"{prefix}{what}: {error}") from error
    except Exception as error:  # whatever a constructor raises, it is these values that it refuses
        raise FglauditError(
            f"{prefix}{what} refuses these values; got {shown(values)} ({type(error).__name__}: {error}); change them"
        ) from error


def _built(value: Any, hint: Any, what: str) -> Any:
    """Return the plugins that a list names for a field of such, and the object that a mapping describes."""
    if (kind := _listed_kind(hint)) is not None and isinstance(value, list | tuple):
        return tuple(named(kind, entry, f"{what}[{number}]") for number, entry in enumerate(value))
    nested = [part for part in (hint, *typing.get_args(hint)) if is_dataclass(part)]
    if nested and isinstance(value, Mapping):
        return construct(typing.cast(type[Any], nested[0]), what, value)
    return value


def _listed_kind(hint: Any) -> str | None:
    """Return the kind of plugin of which a field holds a tuple, or None."""
    if typing.get_origin(hint) is not tuple:
        return None
    bases = {getattr(part, "__name__", "") for part in typing.get_args(hint)}
    return next((kind for kind, spec in KINDS.items() if spec.base in bases), None)


def named(kind: str, entry: Any, what: str) -> Any:
    """Return the plugin that ``entry`` names, as text or as a mapping with a name; one that is built already as it is.

    Raises:
        FglauditError: see :func:`build`; or ``entry`` is something else.
    """
    if isinstance(entry, str):
        return build(kind, entry, {}, what)
    if not isinstance(entry, Mapping):
        return _checked_instance(kind, entry, what)
    if not isinstance(name := entry.get("name"), str):
        raise FglauditError(f"{what}: {nameless(kind, entry)}")
    return build(kind, name, {key: value for key, value in entry.items() if key != "name"}, what)


def nameless(kind: str, entry: Mapping[str, Any]) -> str:
    """Return what is wrong with an entry without a name."""
    keys = f"; got the keys {', '.join(map(shown, entry))}" if entry else ""
    also = ", or the key stack" if kind == "defense" else ""
    slip = meant(entry, "name", *(["stack"] if kind == "defense" else []))
    return f"{with_article(kind)} needs a name{also}{keys}{slip}; known: {', '.join(names(kind))}"


def _kind_of(cls: type[Any]) -> str | None:
    return next((kind for kind in KINDS if issubclass(cls, _base(kind))), None)


def kind_of(plugin: Any) -> str:
    """Return "protocol", "attack" or "defense".

    Raises:
        FglauditError: ``plugin`` is an instance of neither.
    """
    if (kind := _kind_of(type(plugin))) is not None:
        return kind
    bases = ", ".join(spec.base for spec in KINDS.values())
    raise FglauditError(
        f"a plugin is an instance of a class that extends one of {bases}; got {shown(plugin)}; make one"
    )


def _checked_instance(kind: str, value: Any, what: str) -> Any:
    base = _base(kind)
    if not isinstance(value, base):
        if isinstance(value, type) and issubclass(value, base):
            fix = f"make an instance: {value.__name__}()"
        elif kind == "protocol" and _is_model(value):
            fix = "a model does not say what is sent: put it into a protocol, as fglaudit new protocol NAME writes one"
        else:
            fix = f"name one (fglaudit list {kind}s), or write one (fglaudit new {kind} NAME)"
        raise FglauditError(
            f"{what} must be of kind {kind}, by name or as a mapping with a name; got {shown(value)}; {fix}"
        )
    return value


def _is_model(value: Any) -> bool:
    """Whether ``value`` is a torch module or a class of them."""
    cls = value if isinstance(value, type) else type(value)
    return any(base.__module__.startswith("torch.nn") for base in cls.__mro__)


def reference(plugin: Any) -> str:
    """Return the name by which a suite finds the class of ``plugin`` again: its name, or ``file.py:Class``.

    A class that has the name of a known plugin without being it, such as a subclass made in Python that keeps its
    base's name, is ``module:Class``: no suite finds it, and no result of the known one stands for its own.
    """
    cls = type(plugin)
    origin = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if origin and is_loaded(Path(origin)):
        return f"{origin}:{cls.__name__}"
    return f"{cls.__module__}:{cls.__qualname__}" if borrows_a_name(plugin) else str(cls.name)


def borrows_a_name(plugin: Any) -> bool:
    """Whether the class of ``plugin`` has the name of a known plugin without being it."""
    cls: Any = type(plugin)
    return _borrows(cls)


def shipped(kind: str, plugin: Any) -> bool:
    """Whether the class of ``plugin`` is one of this package's own; a subclass is not, whatever it is called."""
    cls = type(plugin)
    return cls.name in _builtin(kind) and load(kind, cls.name) is cls


@cache
def _borrows(cls: type[Any]) -> bool:
    kind = _kind_of(cls)
    return kind is not None and cls.name in names(kind) and load(kind, cls.name) is not cls


def source_digest(plugin: Any) -> str:
    """Return the SHA-256 of the file that the class of ``plugin`` stands in: which text made a result."""
    origin = getattr(sys.modules.get(type(plugin).__module__), "__file__", None)
    return hashlib.sha256(Path(origin).read_bytes()).hexdigest() if origin else "no source file"
