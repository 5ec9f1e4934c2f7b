"""What documentation and scaffolds import is what docs/use.md lists as names that stay, and can be imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCAFFOLDS = sorted((ROOT / "fglaudit" / "scaffold").glob("*.txt"))
PYTHON = re.compile(r"^```(?:python|py)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def public_modules() -> list[str]:
    """Return the modules in the table of docs/use.md."""
    section = (ROOT / "docs/use.md").read_text("utf-8").split("### Names that stay\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(fglaudit[.\w]*)` \|", section, re.MULTILINE)


def named(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything of fglaudit that ``text`` imports, or reads from ``import fglaudit``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fglaudit":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "fglaudit")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fglaudit":
            yield "fglaudit", node.attr


@pytest.mark.parametrize("path", [*PAGES, *SCAFFOLDS], ids=lambda path: path.name)
def test_only_public_names_are_shown(path: Path) -> None:
    text = path.read_text("utf-8")
    blocks = [re.sub("@[A-Z]+@", "Name", text)] if path in SCAFFOLDS else PYTHON.findall(text)
    public = {module: set(import_module(module).__all__) for module in public_modules()}
    for block in blocks:
        for module, name in named(block):
            assert module in public, f"{path.name}: {module} is none of {', '.join(public)}"
            assert not name or name in public[module], f"{path.name}: {name} is not in {module}.__all__"


def test_every_public_name_is_there() -> None:
    modules = public_modules()
    assert {"fglaudit", "fglaudit.interfaces", "fglaudit.testing"} < set(modules)
    for module in modules:
        found = import_module(module)
        assert all(hasattr(found, name) for name in found.__all__)


def test_what_is_no_public_name_is_found() -> None:
    text = "import fglaudit\nfrom fglaudit.suite.overrides import load_suite\nfglaudit.audit()\nimport fglaudit.view\n"
    assert set(named(text)) == {
        ("fglaudit", ""), ("fglaudit.suite.overrides", "load_suite"), ("fglaudit.view", ""), ("fglaudit", "audit")
    }  # fmt: skip
