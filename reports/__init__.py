"""Reports of a finished (or unfinished) run, made from its stored records alone.

What writes them is imported when asked for: the words of reports, and what PNG files need, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fglaudit.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from fglaudit.reports.writing import write_report

__all__ = ["write_report"]

__getattr__, __dir__ = lazy_imports(__name__, {"write_report": "fglaudit.reports.writing"})
