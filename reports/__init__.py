"""Reports of a finished (or unfinished) run, made from its stored records alone.

What writes them is imported when asked for: the words of reports, and what PNG files need, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fglaudit.reports.writing import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fglaudit.reports.writing import write_report

    return write_report


def __dir__() -> list[str]:
    """Return the names to be used, also those that were not asked for yet: for ``help`` and completion."""
    return sorted({*globals(), *__all__})
