"""``report.md``: the verdict and the main table, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fglaudit import __version__
from fglaudit.reports.answers import applies, idle_words
from fglaudit.reports.choosing.accuracy_gains import accuracy_words
from fglaudit.reports.epsilons import accounted_words
from fglaudit.reports.formats.pages import Failure, ObserverCell, Row, Section, failures
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES
from fglaudit.reports.next_steps import next_steps
from fglaudit.reports.numbers import decimal, epsilon, interval, percent, percent_spread, plural, size
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting
from fglaudit.reports.verdict import MOST_COSTS, RunVerdict
from fglaudit.reports.wording.names import quantity_name, reading
from fglaudit.reports.wording.observers import observer_label
from fglaudit.scoring.clusters import TOO_FEW


def render_markdown(run: Run, settings: Sequence[Setting], parts: Sequence[Section], verdict: RunVerdict) -> str:
    """Return the file's text; everything that comes from records is escaped."""
    labels = Labels.of(settings)
    lines = [
        f"# fglaudit: {escape(run.name)}",
        "",
        *_alarms(verdict.alarms),
        *_who_learns_what(verdict),
        *_titled("What stops it, at what cost?", _costs(verdict)),
        *_titled("How sure is that?", verdict.certainty),
        *_titled("What next?", next_steps(run, settings, labels)),
        *_notes(verdict.warnings),
        *(line for section in parts for line in (*_table(section), *_nothing_trained(section))),
        *(_KEY if settings else ()),
        *_failures(failures(settings, labels)),
        f"Details: report.html, findings.csv (what did not apply: coverage.csv), summary.csv. fglaudit {__version__}.",
    ]
    return "\n".join(lines) + "\n"


_KEY = (
    "Per observer: score of the strongest attack (a guess's score); advantage [interval]; attack.",
    "",
    "Bought: points of the whole test set above the best setting that sends no feature but in models.",
    "",
)
"""How the cells of the tables are read."""


def _costs(verdict: RunVerdict) -> Sequence[str]:
    more = max(len(verdict.accuracy) - MOST_COSTS, 0)
    rest = [f"{plural(more, 'more sentence')}: see report.html."] if more else []
    return [*verdict.accuracy[:MOST_COSTS], *rest] or ["Nothing was trained."]


def _titled(title: str, said: Sequence[str]) -> list[str]:
    return [f"**{title}**", "", *(f"- {escape(line)}" for line in said), ""]


def _alarms(alarms: Sequence[str]) -> list[str]:
    if not alarms:
        return []
    return ["> **Incomplete or unsound results**", ">", *(f"> - {escape(line)}" for line in alarms), ""]


def _notes(warnings: Sequence[str]) -> list[str]:
    return [*(f"> Note: {escape(line)}" for line in warnings), ""] if warnings else []


def _who_learns_what(verdict: RunVerdict) -> list[str]:
    lines = ["**Who learns what?**", ""]
    for item in verdict.observers:
        who = f"{escape(observer_label(item.observer))}, {item.word.value}"
        lines.append(f"- {who}: **{escape(item.headline)}** {escape(item.detail)}".rstrip())
        if item.lowest:
            lines.append(f"  Least against this observer: {escape(item.lowest)}")
    if not verdict.observers:
        lines.append("- Nobody's view was attacked.")
    lines += [f"- {escape(line)}" for line in verdict.assurances]
    return [*lines, "", *([escape(" ".join(verdict.terms)), ""] if verdict.terms else [])]


def _table(section: Section) -> list[str]:
    """Return the settings of ``section`` that were trained, one a row."""
    heads = [
        *("protocol", "defense", "accuracy", "whole test set", "chance", "bought"),
        *map(observer_label, section.observers),
        *("ε accounted", "ε claimed", "bytes up", "bytes down"),
    ]
    bought = {id(row.setting): (percent(row.chance), row.bought) for row in section.heat}
    rows = [_row(row, *bought.get(id(row.setting), ("", ""))) for row in section.rows if applies(row.setting)]
    return [f"## {escape(section.title)}", "", *map(_line, [heads, ["---"] * len(heads), *rows]), ""]


def _nothing_trained(section: Section) -> list[str]:
    idle: dict[str, dict[str, None]] = {}
    for row in section.rows:
        if not applies(row.setting):
            idle.setdefault(row.protocol, {})[row.defense] = None
    if not idle:
        return []
    pairs = "; ".join(f"{protocol} ({', '.join(defenses)})" for protocol, defenses in idle.items())
    return [f"{escape(idle_words(row.setting for row in section.rows))}: {escape(pairs)}.", ""]


def _failures(problems: Sequence[Failure]) -> list[str]:
    if not problems:
        return []
    rows = [[item.outcome, str(item.findings), item.reason] for item in problems]
    return ["| status | findings | reason |", "| --- | --- | --- |", *map(_line, rows), ""]


def _row(row: Row, chance: str, bought: str) -> list[str]:
    return [
        row.protocol,
        row.defense,
        accuracy_words(row.setting),
        percent_spread(*row.stat("accuracy_global")),
        chance,
        bought,
        *([row.outcome] * len(row.observers) if row.outcome else map(_observer, row.observers)),
        accounted_words(row.setting),
        epsilon(row.setting.largest("epsilon_claimed")),
        size(row.average("bytes_up")),
        size(row.average("bytes_down")),
    ]


def _observer(cell: ObserverCell) -> str:
    leak = cell.leak
    parts = list(cell.problems)
    if leak is not None:
        value, control = reading(leak.metric, leak.mean("value")), reading(leak.metric, leak.mean("control"))
        few = "" if leak.estimate.shown else f" {TOO_FEW}: range"
        reach = f"{few} [{interval(leak.low, leak.high)}]" if leak.low is not None else ""
        reach += f"; worst client {decimal(leak.worst_client)}" if leak.worst_client is not None else ""
        others = [
            f"{quantity_name(o.quantity)}: {o.metric} {reading(o.metric, o.mean('value'))} "
            f"({reading(o.metric, o.mean('control'))}); {o.attack}"
            for o in cell.others
        ]
        said = f"{leak.metric} {value} ({control}); {decimal(leak.advantage)}{reach}; {leak.attack}"
        if leak.quantity != FEATURES:
            said = f"features: not tested; {quantity_name(leak.quantity)}: {said}"
        parts = [said, *others, *parts]
    return "; ".join(parts) or cell.nothing


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escape(cell) for cell in cells)} |"


def escape(text: str) -> str:
    """Escape what Markdown or HTML in it would read as markup."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", " ".join(text.split()))
