"""What a class says of itself, read from its source without importing it: docstrings, fields with defaults, constants.

``fglaudit show`` explains plugins by it, since importing one takes seconds (torch). What the source alone does not tell
- a default that is computed - is :class:`UnreadableError`; the class is then imported.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard


class UnreadableError(Exception):
    """The source alone does not say it."""


@dataclass(frozen=True)
class FieldSource:
    """One field of a dataclass: its annotation as text (see :func:`with_words`), and " = DEFAULT" or nothing."""

    name: str
    type: str
    default: str


@dataclass(frozen=True)
class ClassSource:
    """A class as its source has it.

    Attributes:
        module_doc: docstring of the module that it stands in.
        doc: its own docstring, else that of the nearest base that has one; cleaned as ``inspect.getdoc`` does.
        base_docs: of the dataclasses among its bases, the docstrings that describe fields ("Attributes:").
        fields: in the order of the constructor.
    """

    module: str
    name: str
    module_doc: str
    doc: str
    base_docs: tuple[str, ...]
    fields: tuple[FieldSource, ...]

    def constant(self, attribute: str) -> Any:
        """Return a class attribute that is a literal, or a tuple of classes (by their names); None if there is none.

        Raises:
            UnreadableError: it is something else.
        """
        for module, node in _mro(self.module, self.name):
            for line in node.body:
                target, value = _assigned(line)
                if target == attribute and value is not None:
                    return _names_or_literal(module, value)
        return None


@cache
def class_source(module: str, name: str) -> ClassSource:
    """Read the class ``name`` of ``module``, a dotted name.

    Raises:
        UnreadableError: no such source, or a part of it is computed.
    """
    line = list(_mro(module, name))
    docs = [ast.get_docstring(node) for _, node in line]
    found: dict[str, FieldSource] = {}
    for where, node in reversed(line):
        if _is_dataclass(node):
            found |= {field.name: field for field in _own_fields(where, node)}
    return ClassSource(
        module,
        name,
        ast.get_docstring(_tree(module)) or "",
        next((doc for doc in docs if doc is not None), ""),
        tuple(
            doc
            for doc, (_, node) in zip(docs[1:], line[1:], strict=True)
            if _is_dataclass(node) and doc and "Attributes:" in doc
        ),
        tuple(found.values()),
    )


def subclasses(module: str, base: str) -> dict[str, ClassSource]:
    """Read the classes that ``module`` imports from its files and that extend the class ``base``, by name."""
    found = {}
    imports = [node for node in _tree(module).body if isinstance(node, ast.ImportFrom) and not node.level]
    for node in imports:
        for alias in node.names:
            home, name = _defined(node.module or "", alias.name)
            try:
                line = [cls.name for _, cls in _mro(home, name)]
            except UnreadableError:  # no class
                continue
            if base in line[1:]:
                found[alias.asname or alias.name] = class_source(home, name)
    return found


@cache
def _tree(module: str) -> ast.Module:
    path = _path(module)
    if path is None:
        raise UnreadableError(f"no source of {module}")
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from error


def _path(module: str) -> Path | None:
    """Return the file of a module; unlike ``importlib.util.find_spec`` without importing the packages above it."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return Path(loaded)
    parts = module.split(".")
    spec = find_spec(parts[0])  # by every finder: that of an editable install is not on the path
    for i in range(1, len(parts)):
        if spec is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[: i + 1]), list(spec.submodule_search_locations or []))
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _mro(module: str, name: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the class and its bases with their modules, nearest first; bases outside of sources that are found end the
    line. Right for bases that do not share a base of their own."""
    node = next((n for n in _tree(module).body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None:
        raise UnreadableError(f"{module} has no class {name}")
    yield module, node
    for base in node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        if not isinstance(plain, ast.Name):
            raise UnreadableError(f"a base of {name} is computed")
        where = _origin(module, plain.id)
        if where is not None and where[0].split(".")[0] not in sys.stdlib_module_names:
            yield from _mro(*where)


def _origin(module: str, name: str) -> tuple[str, str] | None:
    """Return module and name of what ``name`` stands for in ``module``; None where it is a builtin."""
    for node in _tree(module).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return module, name
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _defined(node.module, alias.name)
        if _assigned(node)[0] == name:
            return module, name
    return None


def _defined(module: str, name: str) -> tuple[str, str]:
    """Return where ``name``, imported from ``module``, is defined: rooms hand on what stands in their files."""
    if module.split(".")[0] in sys.stdlib_module_names:
        return module, name
    try:
        return _origin(module, name) or (module, name)
    except UnreadableError:
        return module, name


def _assigned(node: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return name and value of a plain assignment."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    return "", None


def _is_dataclass(node: ast.ClassDef) -> bool:
    plain = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(getattr(d, "id", getattr(d, "attr", "")) == "dataclass" for d in plain)


def _own_fields(module: str, node: ast.ClassDef) -> Iterator[FieldSource]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            annotation = ast.unparse(line.annotation)
            if not annotation.startswith(("ClassVar", "typing.ClassVar")):
                said = with_words(annotation, lambda name: _words_called(module, name))
                yield FieldSource(line.target.id, said, _default(module, line.value))


class _Words(ast.NodeTransformer):
    """Puts ``'a' | 'b'`` in place of ``Literal['a', 'b']`` and of names that stand for such."""

    def __init__(self, called: Callable[[str], tuple[str, ...]]) -> None:
        self.called = called

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words = self.called(node.id)
        return ast.parse(" | ".join(map(repr, words)), mode="eval").body if words else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not _is_literal(node):
            return self.generic_visit(node)
        words = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return ast.parse(" | ".join(map(ast.unparse, words)), mode="eval").body


def with_words(annotation: str, called: Callable[[str], tuple[str, ...]]) -> str:
    """Return an ``annotation`` as ``fglaudit show`` prints it: with the words that a field takes in place of the type
    that has them.

    Args:
        called: the words of a type of that name; empty if it is no ``Literal``.
    """
    return ast.unparse(_Words(called).visit(ast.parse(annotation, mode="eval")))


def _is_literal(node: ast.expr | None) -> TypeGuard[ast.Subscript]:
    plain = node.value if isinstance(node, ast.Subscript) else None
    return getattr(plain, "id", getattr(plain, "attr", "")) == "Literal"


def _words_called(module: str, name: str) -> tuple[str, ...]:
    """Return the words of the ``Literal`` that ``name`` stands for in ``module``; empty if it stands for another."""
    where = _origin(module, name)
    if where is None or where[0].split(".")[0] in sys.stdlib_module_names:
        return ()
    for node in _tree(where[0]).body:
        target, value = _assigned(node)
        if target == where[1] and _is_literal(value):
            words = _value(where[0], value.slice)
            return words if isinstance(words, tuple) else (words,)
    return ()


def _default(module: str, value: ast.expr | None) -> str:
    if value is None:
        return ""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        given = {word.arg: word.value for word in value.keywords}
        if "default_factory" in given:
            raise UnreadableError("a default is made by a factory")
        return _default(module, given.get("default"))
    return f" = {_value(module, value)!r}"


def _value(module: str, value: ast.expr) -> Any:
    """Return a literal, or the constant of a module that a name stands for."""
    if isinstance(value, ast.Name):
        where = _origin(module, value.id)
        if where is None:
            raise UnreadableError(f"{value.id} is no constant of {module}")
        for node in _tree(where[0]).body:
            target, assigned = _assigned(node)
            if target == where[1] and assigned is not None:
                return _value(where[0], assigned)
        raise UnreadableError(f"{value.id} is no constant")
    if isinstance(value, ast.Tuple):
        return tuple(_value(module, part) for part in value.elts)
    if isinstance(value, ast.BinOp) and (compute := _ARITHMETIC.get(type(value.op))):
        return compute(_value(module, value.left), _value(module, value.right))
    try:
        return ast.literal_eval(value)
    except ValueError as error:
        raise UnreadableError(f"{ast.unparse(value)} is computed") from error


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _names_or_literal(module: str, value: ast.expr) -> Any:
    if isinstance(value, ast.Tuple) and all(isinstance(part, ast.Name) for part in value.elts):
        names = [_origin(module, part.id) for part in value.elts if isinstance(part, ast.Name)]
        if any(where is None for where in names):
            raise UnreadableError(f"{ast.unparse(value)} names what is not imported")
        return tuple(where[1] for where in names if where is not None)
    return _value(module, value)
