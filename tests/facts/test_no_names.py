"""Attacks and the scorer know nothing by a protocol's name or fields: what they may know is stated in its structure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("attacks", "fglaudit/adversary", "fglaudit/scoring", "fglaudit/quantities")
FORBIDDEN = ("hyperparameters",)
"""Public facts that are a protocol's own fields."""


def reads(source: str) -> Iterator[str]:
    """Yield every place of ``source`` that reads a protocol's name, fields or module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            public = isinstance(node.value, ast.Attribute | ast.Name) and _last(node.value).endswith("public")
            if node.attr in FORBIDDEN or (node.attr == "protocol" and public):
                yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg in FORBIDDEN:
            yield f"line {node.value.lineno}: {node.arg}="
        elif isinstance(node, ast.Constant) and node.value in (*FORBIDDEN, "protocol"):
            yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if any(name.startswith("fglaudit.protocols") for name in names):
                yield f"line {node.lineno}: import of a protocol"


def _last(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


@pytest.mark.parametrize("room", ROOMS)
def test_no_protocol_is_known_by_its_fields(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    found = [f"{file.relative_to(ROOT)}, {place}" for file in files for place in reads(file.read_text("utf-8"))]
    assert not found, "state it in a protocol's structure(), and read view.public.structure: " + "; ".join(found)


@pytest.mark.parametrize(
    "line",
    [
        'rate = view.public.hyperparameters["rate"]',
        'if view.public.protocol == "fedgcn": pass',
        "public = self.public\nname = public.protocol",
        "replace(public, hyperparameters={})",
        'getattr(view.public, "hyperparameters")',
        'getattr(public, "protocol")',
        "from fglaudit.protocols.fedgcn.fedgcn import FedGCN",
        "import fglaudit.protocols.fedgcn.fedgcn",
    ],
)
def test_a_reader_is_found(line: str) -> None:
    assert list(reads(line))


def test_the_scorers_own_protocol_is_no_public_fact() -> None:
    assert not list(
        reads("rounds = truth.protocol.num_rounds\nrate = view.public.structure.of(Training).learning_rate")
    )
