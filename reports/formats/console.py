"""What a run prints at its end: alarms, what each observer learns in every setting, what fresh seeds confirm."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from fglaudit.reports.alarms import alarms
from fglaudit.reports.answers import answers, applies, idle_words
from fglaudit.reports.choosing.choice import Confirmations, chosen
from fglaudit.reports.epsilons import epsilon_notes
from fglaudit.reports.formats.console_tables import NARROW, Place, lines_of, safe
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.numbers import few
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting, summarize
from fglaudit.reports.wording.observers import observer_label


def print_answers(console: Console, run: Run) -> None:
    """Print alarms and answers, the latter as two tables per data set and partition: feature rows by setting and
    observer, beside what each setting is worth; and all else that observers learn."""
    settings = summarize(run)
    labels = Labels.of(settings)
    if lines := alarms(run, settings, labels):
        console.print("[bold red]Alarms[/bold red]")
        for line in lines:
            _line(console, f"  [red]![/red] {safe(line)}")
    tried = [setting for setting in settings if applies(setting)]
    for where in dict.fromkeys(place(setting) for setting in tried):
        here = [setting for setting in settings if place(setting) == where]
        _line(console, f"\n[bold]Who learns what[/bold] {safe(where)}")
        shown = Place.of([setting for setting in here if applies(setting)], answers(here), labels)
        for features in shown.feature_tables():
            _table(console, features)
        for note in (*epsilon_notes(here, labels), *shown.feature_notes()):
            _line(console, f"  {safe(note)}")
        if (others := shown.other_table()) is not None:
            console.print()
            _table(console, others)
            for note in shown.other_notes():
                _line(console, f"  {safe(note)}")
        if untried := shown.untried():
            _line(console, f"  not tested: {safe(', '.join(untried))} (coverage.csv says why)")
    if idle := idle_words(settings):
        _line(console, f"{idle} (see the report and coverage.csv)")
    if not tried:  # nothing else says why there is nothing to see
        for reason, names in _why_idle(settings, labels).items():
            _line(console, f"  {safe(reason)} ({safe(few(names, 4, '; '))})")


def _why_idle(settings: Sequence[Setting], labels: Labels) -> dict[str, list[str]]:
    """Return the names of settings by why they could not be run."""
    found: dict[str, list[str]] = {}
    for setting in settings:
        for reason in dict.fromkeys(reason for leak in setting.leaks for reason in leak.reasons):
            found.setdefault(reason, []).append(labels.setting(setting))
    return found


def print_confirmed(console: Console, run: Run) -> None:
    """Print what fresh seeds say of the settings that ``run`` chose, of each observer against whom it chose them."""
    again, settings = Confirmations.of(run), summarize(run)
    labels = Labels.of(settings)
    if again.settings:
        console.print("[bold]Chosen settings on fresh seeds[/bold]", highlight=False)
    for observer in dict.fromkeys(answer.observer for answer in answers(settings)):
        for setting in chosen(settings, observer):
            if setting.key in again.settings:
                told = f"{labels.setting(setting)} against {observer_label(observer)}: {again.words(setting, observer)}"
                _line(console, f"  {safe(told)}")


def _table(console: Console, table: Table) -> None:
    if console.width >= NARROW:
        console.print(table)
    else:
        for line in lines_of(table):
            _line(console, line)


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
