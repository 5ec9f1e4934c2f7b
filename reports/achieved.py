"""What an answer says in one line: the figures of its row, or why there are none."""

from __future__ import annotations

from fglaudit.reports.answers import Answer, Word
from fglaudit.reports.leaks import FEATURES, PROOF, Leak
from fglaudit.reports.numbers import decimal, percent
from fglaudit.reports.wording import METRIC_NAMES, deed, reading


def achieved(leak: Leak) -> str:
    """Return what an attack got beside what a guess gets; of feature rows the exact ones first, for every attack.

    All figures are of this one row: means over its seeds, as in ``summary.csv``.
    """
    if leak.quantity != FEATURES:
        return deed(leak)
    parts = []
    exact = leak.mean("exact_rate")
    if exact is not None:
        guess = percent(leak.mean("control_exact_rate") or 0.0)
        parts.append(f"{percent(exact)} of {rows_of(leak.observer[0])} exact (a guess: {guess})")
    own = _own_metric(leak)
    if own and parts:
        parts.append(own)
    for column in ("f1", "cosine"):
        value, control = leak.mean(column), leak.mean(f"control_{column}")
        if value is not None and (column == "f1" or leak.mean("f1") is None):
            beside = f" ({decimal(control, 2)})" if control is not None else ""
            parts.append(f"{METRIC_NAMES[column]} {decimal(value, 2)}{beside}")
    if not parts:
        return deed(leak)
    if own and own not in parts:
        parts.append(own)
    if PROOF in leak.grounds and leak.proven:
        parts.append(f"{percent(leak.proven)} proven to be determined")
    return ", ".join(parts)


def briefly(leak: Leak) -> str:
    """Return the same in a few words: of feature rows the share that is exact, else the metric beside a guess's; the
    metric too where it is one of its own, such as rows up to a factor, since nothing else says what leaks then."""
    exact, f1 = (leak.mean(column) if leak.quantity == FEATURES else None for column in ("exact_rate", "f1"))
    if exact is not None and (own := _own_metric(leak)):
        return f"{percent(exact)} exact, {own}"
    if exact:
        return f"{percent(exact)} exact"
    metric, value, control = leak.metric, leak.mean("value"), leak.mean("control")
    if f1 is not None:
        metric, value, control = "f1", f1, leak.mean("control_f1")
    figure = f"{METRIC_NAMES.get(metric, metric)} {reading(metric, value)} ({reading(metric, control)})"
    return figure if exact is None else f"0 % exact, {figure}"


def _own_metric(leak: Leak) -> str:
    """Return the figure of an attack on feature rows whose metric is none that all of them have; else nothing."""
    if leak.metric in ("exact_rate", "f1", "cosine") or not leak.metric:
        return ""
    value, control = (reading(leak.metric, leak.mean(column)) for column in ("value", "control"))
    return f"{METRIC_NAMES.get(leak.metric, leak.metric)} {value} ({control})"


def rows_of(parties: str) -> str:
    """Whose rows an observer is after."""
    if "client:" in parties and "server" not in parties and "wire" not in parties:
        return "its neighbours\N{RIGHT SINGLE QUOTATION MARK} rows"
    return "the clients\N{RIGHT SINGLE QUOTATION MARK} rows"


def in_words(answer: Answer) -> str:
    """Return figures and, unless it leaks, the reason; for what was not tested the reason alone."""
    if answer.leak is None:
        return answer.reason
    figures = achieved(answer.leak)
    return figures if answer.word in (Word.LEAKS, Word.HELD) else f"{figures}; {answer.reason}"
