"""What an attack infers, read from its source: rows of attacks that did not apply say no quantity of their own."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

from fglaudit import registry
from fglaudit.errors import FglauditError

FEATURES = "features"


@cache
def attack_quantity(name: str) -> str:
    """Return the class attribute ``quantity`` of the attack ``name``; "features", its default, for unknown attacks.

    No attack is imported: reports are made where plugins of others may be missing.
    """
    try:
        if name not in registry.names("attack"):
            return FEATURES
        module, _, cls = registry.target("attack", name).partition(":")
        return _attribute(module, cls) or FEATURES
    except (FglauditError, ImportError, OSError, SyntaxError, ValueError):
        return FEATURES


def _attribute(module: str, cls: str) -> str:
    """Return the ``quantity`` of a class, or of the nearest base that states one; empty if none does."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    node = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls), None)
    if node is None:
        return ""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == "quantity":
            return str(line.value.value) if isinstance(line.value, ast.Constant) else ""
    imported = {
        alias.asname or alias.name: (line.module or "", alias.name)
        for line in tree.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    bases = (imported.get(base.id, (module, base.id)) for base in node.bases if isinstance(base, ast.Name))
    return next((found for base in bases if base[1] != cls and (found := _attribute(*base))), "")
