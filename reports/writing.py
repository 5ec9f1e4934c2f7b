"""The files of a report: ``summary.csv``, ``report.html``, ``report.md``, and the same for programs
and papers: ``findings.json``, ``summary.tex``, ``figure-1.svg`` and so on; as PNG too where ``resvg-py`` is installed.

They are made from the stored records alone, hold no timestamp, and are equal for equal records.
"""

from __future__ import annotations

from pathlib import Path

from fglaudit.files.own import write_atomic
from fglaudit.reports.formats.figure_files import figure_files, remove_older
from fglaudit.reports.formats.findings_json import findings_json
from fglaudit.reports.formats.html import SIZES, render_html
from fglaudit.reports.formats.latex import summary_tex
from fglaudit.reports.formats.markdown import render_markdown
from fglaudit.reports.formats.pages import sections
from fglaudit.reports.formats.png import draws, png
from fglaudit.reports.formats.tables import summary_csv
from fglaudit.reports.labels import Labels
from fglaudit.reports.records import Run, load_run
from fglaudit.reports.summary import summarize
from fglaudit.reports.verdict import make_verdict, observers_of


def write_report(run_dir: Path, run: Run | None = None) -> list[Path]:
    """Write the reports into ``run_dir`` and return their paths.

    A record that cannot be read is announced in the report instead of stopping it. Every file appears whole or not at
    all.

    Args:
        run: what :func:`fglaudit.reports.records.load_run` read of it, if that was done already.

    Raises:
        FglauditError: if ``run_dir`` is not the folder of a run, or cannot be written.
    """
    run = run or load_run(run_dir)
    settings = summarize(run)
    labels = Labels.of(settings)
    observers = observers_of(settings)
    parts = sections(settings, labels, observers, SIZES)
    verdict = make_verdict(run, settings, labels)
    figures = figure_files(parts, observers, SIZES[0])
    drawn = {f"{name.removesuffix('.svg')}.png": png(text) for name, text in figures.items()} if draws() else {}
    texts: dict[str, str | bytes] = {
        "summary.csv": summary_csv(settings),
        "report.html": render_html(run, settings, parts, verdict),
        "report.md": render_markdown(run, settings, parts, verdict),
        "findings.json": findings_json(run, settings, labels),
        "summary.tex": summary_tex(parts),
        **figures,
        **drawn,
    }
    remove_older(run_dir, list(texts))
    for name, text in texts.items():
        write_atomic(run_dir / name, text)
    return [run_dir / name for name in texts]
