"""Attacks and the scorer know nothing by a protocol's or a defense's name or fields: what they may know of them is
stated in the protocol's structure and in the defense's facts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("attacks", "fglaudit/adversary", "fglaudit/scoring", "fglaudit/quantities")
FORBIDDEN = ("hyperparameters", "defense_parameters")
"""Public facts that are a protocol's or a defense's own fields."""
NAMES = ("protocol", "defense")


def reads(source: str) -> Iterator[str]:
    """Yield every place of ``source`` that reads a protocol's or a defense's name, fields or module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            public = isinstance(node.value, ast.Attribute | ast.Name) and _last(node.value).endswith("public")
            if node.attr in FORBIDDEN or (node.attr in NAMES and public):
                yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg in FORBIDDEN:
            yield f"line {node.value.lineno}: {node.arg}="
        elif isinstance(node, ast.Constant) and node.value in (*FORBIDDEN, *NAMES):
            yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if any(name.startswith(("fglaudit.protocols", "fglaudit.defenses")) for name in names):
                yield f"line {node.lineno}: import of a protocol or defense"


def _last(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_known_by_its_name_or_fields(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    found = [f"{file.relative_to(ROOT)}, {place}" for file in files for place in reads(file.read_text("utf-8"))]
    fix = "state it in structure() or facts(), and read view.public.structure or .facts: "
    assert not found, fix + "; ".join(found)


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
        'noise = view.public.defense_parameters["sigma"]',
        'if view.public.defense in ("none", "dp-sgd"): pass',
        "replace(public, defense_parameters={})",
        'getattr(public, "defense")',
        "from fglaudit.defenses.none import NoDefense",
    ],
)
def test_a_reader_is_found(line: str) -> None:
    assert list(reads(line))


def test_the_scorers_own_protocol_is_no_public_fact() -> None:
    assert not list(
        reads("rounds = truth.protocol.num_rounds\nrate = view.public.structure.of(Training).learning_rate")
    )
