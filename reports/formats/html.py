"""``report.html``: one file that needs nothing else; a content security policy in it forbids every request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from fglaudit import __version__
from fglaudit.finding import UNDEFENDED
from fglaudit.reports import numbers
from fglaudit.reports.answers import applies, idle_words
from fglaudit.reports.answers_table import idle_lines
from fglaudit.reports.choosing.options import UPPER_BOUND
from fglaudit.reports.epsilons import epsilon_rows, guarantee_word
from fglaudit.reports.examples import columns, shown_rows
from fglaudit.reports.facts import partition_rows, sources, versions
from fglaudit.reports.figures.curve_figure import curve_figure, curve_words
from fglaudit.reports.figures.svg import marker, sparkline
from fglaudit.reports.formats.pages import Section, breakdown, extras, failures
from fglaudit.reports.labels import Labels, arguments, place
from fglaudit.reports.leaks import NEGLIGIBLE
from fglaudit.reports.next_steps import next_steps
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting
from fglaudit.reports.verdict import MOST_COSTS, RunVerdict, observers_of
from fglaudit.reports.wording.names import METRICS, defense_words, metric_name, quantity_name, reading
from fglaudit.reports.wording.observers import observer_label, threat_model

SIZES = ((1140, 420), (350, 380))
"""Of figures: on wide and on narrow screens."""
DETAILED = 60
"""Up to so many settings the page has a table of every measured row; above, ``summary.csv`` alone has them."""


def render_html(run: Run, settings: Sequence[Setting], parts: Sequence[Section], verdict: RunVerdict) -> str:
    """Return the page with the sections ``parts`` of ``settings``.

    Names from suites and records are escaped; equal records give equal text.
    """
    labels = Labels.of(settings)
    ran = [setting for setting in settings if applies(setting)]
    observers = observers_of(settings)
    script = files("fglaudit.reports.templates").joinpath("report.js").read_text("utf-8")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            settings=settings,
            ran=len(ran),
            not_run=idle_words(settings, "further "),
            labels=labels,
            verdict=verdict,
            sections=parts,
            observers=observers,
            colour={observer: index for index, observer in enumerate(observers)},
            defenses=sorted({s.first.defense for s in settings}, key=lambda name: (name != UNDEFENDED, name)),
            epsilons=epsilon_rows(settings, labels),
            steps=next_steps(run, settings, labels),
            idle=idle_lines(settings, labels),
            detailed=len(ran) <= DETAILED,
            failures=failures(settings, labels),
            partitions=partition_rows(settings),
            versions=versions(run, settings),
            sources=sources(run),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _environment() -> Environment:
    """Return what fills in the template: it escapes names, and knows the words and functions that every page needs."""
    environment = Environment(
        loader=PackageLoader("fglaudit.reports"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (numbers.percent, numbers.decimal, numbers.epsilon, numbers.count, arguments)
    functions = (
        *(metric_name, quantity_name, observer_label, threat_model, defense_words, reading, place),
        *(numbers.plural, numbers.few, numbers.seeds_words, numbers.interval, guarantee_word),
        *(marker, sparkline, curve_figure, curve_words, shown_rows, columns, breakdown, extras),
    )
    environment.filters |= {each.__name__: each for each in filters}
    environment.globals |= {each.__name__: each for each in functions}
    environment.globals |= {
        "version": __version__,
        "upper_bound": UPPER_BOUND,
        "negligible": NEGLIGIBLE,
        "metrics": METRICS,
        "shown_costs": MOST_COSTS,
    }
    return environment
