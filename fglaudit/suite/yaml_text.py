"""YAML text to plain data: mappings, lists, text, numbers, true, false and null, and nothing else.

The rules are those of YAML 1.2's core schema: ``on`` and ``no`` are text, ``1e-5`` is a number, ``1:30`` and
``2001-01-01`` are text; PyYAML's own defaults get these wrong. A key is text and is written once. Tags that ask for
other types are refused.

Any text ends in a value or in one :class:`FglauditError`, in bounded time and memory: depth and size are counted on
PyYAML's stream of events, before a tree exists, and aliases are counted as if written out, since nine lines of aliases
to aliases stand for a billion values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fglaudit.errors import FglauditError, shown
from fglaudit.files import limits

_CORE = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


class _Loader(yaml.SafeLoader):
    """Marks what stands unquoted and leaves its type to :func:`_plain_value`."""


_PLAIN = "!plain"
_Loader.yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(r"(?s)(?!<<\Z)")), (_CORE + "merge", re.compile("<<"))]}


def read_yaml(text: str) -> Any:
    """Return the plain data that ``text`` stands for.

    Raises:
        FglauditError: no YAML, more than one document, or beyond :mod:`fglaudit.files.limits`; names the line.
    """
    if len(text) > limits.SUITE_BYTES:
        raise FglauditError(
            f"YAML text may have at most {limits.SUITE_BYTES} characters; got {len(text)}; write less, or split it"
        )
    try:
        _count(text)
        root = _Loader(text).get_single_node()
        if root is None:
            return None
        _written_out(root, {}, set())
        return _value(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        if isinstance(error, yaml.reader.ReaderError):
            place = f"character {error.position + 1} is {shown(text[error.position : error.position + 1])}: "
        raise FglauditError(f"the text must be valid YAML; {place}{_problem(error)}; correct it there") from error


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).partition("\n")[0])


def _refuse(node: Node | yaml.Event, rule: str, got: str, fix: str) -> FglauditError:
    line = node.start_mark.line + 1 if node.start_mark else "?"
    return FglauditError(f"{rule}; line {line} has {got}; {fix}")


def _count(text: str) -> None:
    """Raise if the text nests too deep or holds too many values; the parser itself needs no recursion."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            values += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > limits.SUITE_DEPTH:
            raise _refuse(event, f"YAML may nest {limits.SUITE_DEPTH} deep", "more", "flatten it")
        if values > limits.SUITE_VALUES:
            raise _refuse(event, f"YAML may hold {limits.SUITE_VALUES} keys and values", "one more", "split it")


def _written_out(node: Node, known: dict[int, tuple[int, int]], above: set[int]) -> tuple[int, int]:
    """Return (values, depth) of ``node`` with its aliases written out; ``known`` holds what was counted before."""
    if id(node) in above:
        raise _refuse(node, "an alias may not stand inside of what it names", "such a circle", "remove the alias")
    if id(node) in known:
        return known[id(node)]
    children: list[Node] = []
    if isinstance(node, MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, SequenceNode):
        children = list(node.value)
    above.add(id(node))
    counted = [_written_out(child, known, above) for child in children]
    above.remove(id(node))
    values, depth = 1 + sum(v for v, _ in counted), 1 + max((d for _, d in counted), default=0)
    if values > limits.SUITE_VALUES or depth > limits.SUITE_DEPTH + 1:
        raise _refuse(
            node,
            f"YAML may hold {limits.SUITE_VALUES} keys and values and nest {limits.SUITE_DEPTH} deep, aliases"
            " written out",
            f"{values} values, {depth} deep",
            "use fewer aliases",
        )
    known[id(node)] = values, depth
    return values, depth


def _value(node: Node) -> Any:
    if isinstance(node, MappingNode) and node.tag == _CORE + "map":
        return _mapping(node)
    if isinstance(node, SequenceNode) and node.tag == _CORE + "seq":
        return [_value(child) for child in node.value]
    if isinstance(node, ScalarNode):
        return _scalar(node)
    raise _unknown_tag(node)


def _unknown_tag(node: Node) -> FglauditError:
    return _refuse(
        node,
        "a suite is valid YAML of mappings, lists, text, numbers, true, false and null",
        f"the tag {shown(node.tag)}",
        "remove the tag",
    )


def _mapping(node: MappingNode) -> dict[str, Any]:
    own: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if key.tag == _CORE + "merge":
            merged = {**_merged(value), **merged}
            continue
        name = _scalar(key) if isinstance(key, ScalarNode) else None
        if not isinstance(name, str):
            raise _refuse(key, "a key must be text", "another kind of key", "write a name, quoted if need be")
        if name in own:
            raise FglauditError(
                f"a key may be written once; {shown(name)} is repeated at line {key.start_mark.line + 1}; remove one"
            )
        own[name] = _value(value)
    return {**merged, **own}


def _merged(node: Node) -> dict[str, Any]:
    """Return what ``<<: *alias`` or ``<<: [*one, *two]`` adds; of equal keys the first one counts."""
    parts = node.value if isinstance(node, SequenceNode) else [node]
    found: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, MappingNode):
            raise _refuse(part, "'<<' merges mappings", "something else", "name an alias of a mapping")
        found = {**_mapping(part), **found}
    return found


def _scalar(node: ScalarNode) -> Any:
    text = node.value
    if len(text) > limits.TEXT:
        raise _refuse(node, f"a text may have {limits.TEXT} characters", str(len(text)), "shorten it")
    if node.tag == _CORE + "merge":
        return text
    reader = _SCALARS.get(node.tag)
    if reader is None:
        raise _unknown_tag(node)
    try:
        value = reader(text)
    except (ValueError, KeyError, OverflowError) as error:
        kind = node.tag.removeprefix(_CORE)
        raise _refuse(node, f"the tag !!{kind} needs such a value", shown(text), "remove the tag") from error
    if isinstance(value, str):
        return _checked_text(node, value)
    if isinstance(value, int) and abs(value) > limits.INTEGER:
        raise _refuse(node, "whole numbers lie within +-2^63", f"{shown(text[:40])} ...", "write a smaller one")
    return value


def _checked_text(node: ScalarNode, text: str) -> str:
    bad = next((c for c in text if not c.isprintable() and c != "\N{NO-BREAK SPACE}"), None)
    if bad is not None:
        raise _refuse(node, "a text is one line of printable characters", shown(bad), "remove that character")
    return text


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    if len(text) > 100:  # Python takes quadratic time to convert digits, and refuses above 4300 of them
        return limits.INTEGER + 1
    return int(text, 0 if text[:2] in ("0o", "0x") else 10)


def _float(text: str) -> float:
    if _INFINITE.fullmatch(text):
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)
    if not _FLOAT.fullmatch(text) and text not in (".nan", ".NaN", ".NAN"):
        raise ValueError(text)
    return float(text.lstrip(".") if text[1:].lower() == "nan" else text)


def _word(kind: type[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = _WORDS[text]
        if not isinstance(value, kind):
            raise ValueError(text)
        return value

    return read


def _plain_value(text: str) -> Any:
    """Return what unquoted ``text`` means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text) or _INFINITE.fullmatch(text):
        return _float(text)
    return text


_SCALARS: dict[str, Callable[[str], Any]] = {
    _PLAIN: _plain_value,
    _CORE + "str": str,
    _CORE + "int": _integer,
    _CORE + "float": _float,
    _CORE + "bool": _word(bool),
    _CORE + "null": _word(type(None)),
}
