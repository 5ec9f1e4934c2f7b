"""What stops the attacks on features: runs the suites of this folder, confirms what they choose on fresh seeds, and
prints one table of all of them.

Each is an ordinary suite: ``fglaudit run bench/what_stops_it/fedgcn.yaml --confirm 4`` does the same for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from fglaudit.commands.confirming import confirm_chosen
from fglaudit.execution.engines.by_name import make_engine
from fglaudit.execution.engines.engine import default_jobs
from fglaudit.reports.achieved import why_so
from fglaudit.reports.answers import Answer, AnswerWord, answers
from fglaudit.reports.choosing.choice import Confirmations, chosen
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES, says_most
from fglaudit.reports.numbers import decimal, percent_spread
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting, summarize
from fglaudit.reports.wording.observers import observer_label
from fglaudit.run import run_suite
from fglaudit.suite.overrides import load_suite

FOLDER = Path(__file__).parent
FRESH_SEEDS = 4
SECONDS_PER_CELL = 900.0


def run(results: Path) -> None:
    """Run what is missing below ``results/what_stops_it``, then print a Markdown table."""
    console = Console(width=200)
    lines: list[str] = []
    for path in sorted(FOLDER.glob("*.yaml")):
        suite = load_suite(str(path))
        engine = make_engine("local", default_jobs(len(suite.cells()), "cpu"), cell_timeout=SECONDS_PER_CELL)
        folder = results / "what_stops_it" / path.stem
        run_suite(suite, folder, engine, "cpu", console)
        whole, _ = confirm_chosen(suite, folder, engine, "cpu", console, seeds=FRESH_SEEDS)
        lines += table_lines(whole)
    print(*HEAD, *lines, sep="\n")


HEAD = (
    "| protocol, observer | best defense | advantage without | with, on fresh seeds [high] | accuracy without | with |",
    "|---|---|---|---|---|---|",
)


def table_lines(run: Run) -> Iterator[str]:
    """Yield a line for each observer and each setting that was chosen against it."""
    settings = summarize(run)
    labels = Labels.of(settings)
    again = Confirmations.of(run).settings
    bare = next(setting for setting in settings if setting.undefended)
    for plain in _on_features(bare):
        tried = [again[key] for s in chosen(settings, plain.observer) if (key := s.key) in again]
        who = f"{labels.protocol(bare)}, {observer_label(plain.observer)}"
        without = _strongest(plain)
        if not tried:
            yield f"| {who} | **none of those tried** | {without} | | {_accuracy(bare)} | |"
        for setting in tried:
            (found,) = (answer for answer in _on_features(setting) if answer.observer == plain.observer)
            word = "" if found.word is AnswerWord.HELD else f" **{found.word}**: {why_so(found)}"
            figures = f"{_strongest(found)}{word}"
            accuracies = f"{_accuracy(bare)} | {_accuracy(setting)}"
            yield f"| {who} | {labels.defense(setting)} | {without} | {figures} | {accuracies} |"


def _on_features(setting: Setting) -> list[Answer]:
    return [answer for answer in answers([setting]) if answer.quantity == FEATURES]


def _strongest(answer: Answer) -> str:
    """Return the largest advantage of any attack, with the largest upper end of those that can show a leak."""
    measured = [leak for leak in answer.leaks if leak.measured]
    if not measured:
        return "nothing to attack"
    best = max(measured, key=says_most)
    highs = [leak.high for leak in measured if leak.reassures and leak.high is not None]
    return f"{decimal(best.advantage)}" + (f" [{decimal(max(highs))}]" if highs else "")


def _accuracy(setting: Setting) -> str:
    values: Sequence[float] = setting.per_seed("accuracy_global") or setting.per_seed("accuracy")
    return percent_spread(values, None)
