"""Names of a package that are imported when asked for, so that what needs no torch does not wait for it (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_imports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return what a package has as ``__getattr__`` and ``__dir__``.

    Args:
        package: its ``__name__``; it lists its public names in ``__all__``.
        homes: the module of each name that is imported when asked for.
    """
    own = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(own['__all__'])}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        """Return the names to be used, also those that were not asked for yet: for ``help`` and completion."""
        return sorted({*own, *own["__all__"]})

    return get, names
