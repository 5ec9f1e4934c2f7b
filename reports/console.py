"""What a run prints at its end: alarms, then per observer what it learns in every setting, features first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fglaudit.errors import printable
from fglaudit.reports.achieved import in_words
from fglaudit.reports.alarms import alarms, few
from fglaudit.reports.answers import Answer, Word, answers, applies
from fglaudit.reports.bought import beside, chance, gains
from fglaudit.reports.choice import Confirmations
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.leaks import FEATURES, sd
from fglaudit.reports.numbers import THIN, percent, percent_spread, plural
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting, summarize
from fglaudit.reports.wording import QUANTITY_NAMES, observer_label

MOST = 16
"""Lines of one observer and quantity; the rest is counted, and stands in the report."""
STYLES = {Word.LEAKS: "bold red", Word.HELD: "green", Word.NOT_SHOWN: "yellow", Word.NOT_TESTED: "yellow"}


def print_answers(console: Console, run: Run, settings: Sequence[Setting] | None = None) -> None:
    """Print alarms and answers.

    Args:
        settings: :func:`fglaudit.reports.summary.summarize` of ``run``, if it was made already.
    """
    settings = summarize(run) if settings is None else settings
    labels = Labels.of(settings)
    if lines := alarms(run, settings, labels):
        console.print("[bold red]Alarms[/bold red]")
        for line in lines:
            console.print(f"  [red]![/red] {_safe(line)}", highlight=False, soft_wrap=True)
    places = list(dict.fromkeys(place(setting) for setting in settings))
    if not settings:
        return
    console.print(f"[bold]Who learns what[/bold] {_safe('; '.join(places))}", highlight=False)
    found = [answer for answer in answers(settings) if answer.applies]
    beside_accuracy = _accuracies(settings, labels)
    for observer in dict.fromkeys(answer.observer for answer in found):
        console.print(f"[bold]{_safe(observer_label(observer))}[/bold]", highlight=False)
        mine = [answer for answer in found if answer.observer == observer]
        # Features always have their line, also where nothing could be tried; other quantities once some attack ran.
        measured = {a.quantity for a in mine if a.leak is not None} | {FEATURES}
        for quantity in sorted(measured, key=lambda name: (name != FEATURES, name)):
            if about := [a for a in mine if a.quantity == quantity]:
                console.print(f"  {_name(quantity)}", highlight=False)
                console.print(_table(about, labels, beside_accuracy, len(places) > 1))
        if untried := sorted({_name(a.quantity) for a in mine if a.quantity not in measured}):
            told = f"  not tested: {', '.join(untried)} (coverage.csv says why)"
            console.print(told, highlight=False, soft_wrap=True)
    idle = sum(not applies(setting) for setting in settings)
    if idle:
        console.print(
            f"{plural(idle, 'setting')} where the defense does not apply to the protocol: see the report and"
            " coverage.csv",
            highlight=False,
        )


def print_confirmed(console: Console, run: Run) -> None:
    """Print what fresh seeds say of the settings that ``run`` chose."""
    again = Confirmations.of(run)
    labels = Labels.of(summarize(run))
    if again.settings:
        console.print("[bold]Chosen settings on fresh seeds[/bold]", highlight=False)
    for setting in again.settings.values():
        text = f"{labels.setting(setting)}: {again.words(setting)}"
        console.print(f"  {_safe(text)}", highlight=False, soft_wrap=True)


def _table(found: Sequence[Answer], labels: Labels, beside_accuracy: Mapping[int, str], many_places: bool) -> Table:
    """One line per setting; settings without a figure and with the same reason share one, and of other quantities than
    features those with the same figure."""
    groups: dict[tuple[Word, str], list[Answer]] = {}
    for number, answer in enumerate(found):
        text = in_words(answer)
        apart = answer.leak is not None and answer.quantity == FEATURES
        key = (answer.word, f"{number} {text}" if apart else text)
        groups.setdefault(key, []).append(answer)
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=10, no_wrap=True)
    for _ in range(2):
        table.add_column(overflow="fold")
    shown = list(groups.items())
    for (word, _), same in shown[:MOST]:
        names = few(dict.fromkeys(_where(answer, labels, beside_accuracy, many_places) for answer in same), 4)
        style = STYLES[word]
        table.add_row(f"    [{style}]{word.upper()}[/{style}]", _safe(in_words(same[0])), _safe(names))
    if len(shown) > MOST:
        rest = Counter(answer.word for _, same in shown[MOST:] for answer in same)
        told = ", ".join(f"{count} {word.value}" for word, count in rest.items())
        table.add_row("", f"and {plural(sum(rest.values()), 'more setting')} ({told}): see the report", "")
    return table


def _name(quantity: str) -> str:
    return _safe(QUANTITY_NAMES.get(quantity, quantity))


def _safe(text: str) -> str:
    return escape(printable(text.replace(THIN, " ")))


def _accuracies(settings: Sequence[Setting], labels: Labels) -> dict[int, str]:
    """Return what is said of the accuracy of each setting, by its identity: beside it chance, and what it bought."""
    found, result = gains(settings, labels), {}
    for setting in settings:
        if values := setting.per_seed("accuracy"):
            level, bought = chance(setting), beside(setting, found)
            parts = [f"{percent_spread(values, sd(values))} accuracy"]
            parts += [f"chance {percent(level)}"] if level is not None else []
            result[id(setting)] = f" ({', '.join([*parts, *([bought] if bought else [])])})"
    return result


def _where(answer: Answer, labels: Labels, beside_accuracy: Mapping[int, str], many_places: bool) -> str:
    setting = answer.setting
    where = f" on {place(setting)}" if many_places else ""
    return f"{labels.setting(setting)}{where}{beside_accuracy.get(id(setting), '')}"
