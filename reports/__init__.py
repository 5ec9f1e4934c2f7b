"""Reports of a finished (or unfinished) run: ``summary.csv``, ``report.html`` and ``report.md``.

They are made from the stored records alone, hold no timestamp, and are equal for equal records.
"""

from __future__ import annotations

from pathlib import Path

from fglaudit.own_files import write_atomic
from fglaudit.reports.html import render_html
from fglaudit.reports.markdown import render_markdown
from fglaudit.reports.records import Run, load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.tables import summary_csv

__all__ = ["write_report"]


def write_report(run_dir: Path, run: Run | None = None) -> list[Path]:
    """Write ``summary.csv``, ``report.html`` and ``report.md`` into ``run_dir`` and return their paths.

    A record that cannot be read is announced in the report instead of stopping it. Every file appears whole or not at
    all.

    Args:
        run: what :func:`fglaudit.reports.records.load_run` read of it, if that was done already.

    Raises:
        FglauditError: if ``run_dir`` is not the folder of a run, or cannot be written.
    """
    run = run or load_run(run_dir)
    settings = summarize(run)
    texts = {
        "summary.csv": summary_csv(settings),
        "report.html": render_html(run, settings),
        "report.md": render_markdown(run, settings),
    }
    for name, text in texts.items():
        write_atomic(run_dir / name, text)
    return [run_dir / name for name in texts]
