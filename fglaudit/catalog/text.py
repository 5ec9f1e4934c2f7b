"""How ``fglaudit show`` writes docstrings and fields."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fglaudit.plugins.class_source import class_source


def plain(doc: str) -> str:
    """Return a docstring as a terminal shows it: names in single backticks, without the roles of Sphinx."""
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", doc).replace("``", "`")


def listed(lines: Sequence[str]) -> list[str]:
    """Return the ``lines`` of a plugin's or an entry's fields under their heading."""
    return ["fields:", *(f"  {line}" for line in lines)] if lines else ["fields: none"]


def entry(module: str, cls: str) -> list[str]:
    """Return docstring and fields of what an entry of a suite is made into."""
    source = class_source(module, cls)
    return [plain(source.doc), "", *listed([f"{f.name}: {f.type}{f.default}" for f in source.fields])]
