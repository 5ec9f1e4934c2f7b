"""Reports of a finished (or unfinished) run: ``summary.csv``, ``report.html`` and ``report.md``.

They are made from the stored records alone, hold no timestamp, and are equal for equal records.
"""

from __future__ import annotations

from pathlib import Path

from fglaudit.execution.store import write_atomic
from fglaudit.reports.html import render_html
from fglaudit.reports.markdown import render_markdown
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.tables import summary_csv

__all__ = ["write_report"]


def write_report(run_dir: Path) -> list[Path]:
    """Write ``summary.csv``, ``report.html`` and ``report.md`` into ``run_dir`` and return their paths.

    A record that cannot be read is announced in the report instead of stopping it. Every file appears whole or not at
    all.

    Raises:
        FglauditError: if ``run_dir`` is not the folder of a run, or cannot be written.
    """
    run = load_run(run_dir)
    settings = summarize(run)
    texts = {
        "summary.csv": summary_csv(settings),
        "report.html": render_html(run, settings),
        "report.md": render_markdown(run, settings),
    }
    for name, text in texts.items():
        write_atomic(run_dir / name, text)
    return [run_dir / name for name in texts]
