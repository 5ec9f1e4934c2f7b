"""What an answer says in one line: the figures of its row, or why there are none."""

from __future__ import annotations

from fglaudit.quantities.base import UNINFORMATIVE
from fglaudit.reports.answers import Answer, AnswerWord
from fglaudit.reports.leaks import FEATURES, PROOF, Leak
from fglaudit.reports.numbers import decimal, percent
from fglaudit.reports.wording.names import METRIC_NAMES, metric_name, reading
from fglaudit.reports.wording.results import outcome_words


def achieved(leak: Leak) -> str:
    """Return what an attack got beside what a guess gets; of feature rows the exact ones first, for every attack.

    All figures are of this one row: means over its seeds, as in ``summary.csv``.
    """
    if leak.quantity != FEATURES:
        return outcome_words(leak)
    parts = []
    exact = leak.mean("exact_rate")
    if exact is not None:
        guess = percent(leak.mean("control_exact_rate") or 0.0)
        parts.append(f"{percent(exact)} of {rows_of(leak.observer[0])} exact (a guess: {guess})")
    own = _own_metric(leak)
    if own and parts:
        parts.append(own)
    for column in closeness(leak):
        value, control = leak.mean(column), leak.mean(f"control_{column}")
        beside = f" ({decimal(control, 2)})" if control is not None else ""
        parts.append(f"{METRIC_NAMES[column]} {decimal(value, 2)}{beside}")
    if not parts:
        return outcome_words(leak)
    if own and own not in parts:
        parts.append(own)
    if PROOF in leak.grounds and leak.proven:
        parts.append(f"{percent(leak.proven)} proven to be determined")
    return ", ".join(parts)


def briefly(leak: Leak) -> str:
    """Return the same in a few words: of feature rows the share that is exact where a guess has fewer, else the metric,
    each beside a guess's; the metric too where it is one of its own, such as rows up to a factor, since nothing else
    says what leaks then."""
    exact = leak.mean("exact_rate") if leak.quantity == FEATURES else None
    guess = leak.mean("control_exact_rate") or 0.0
    share = "" if exact is None else f"{percent(exact)} exact ({percent(guess)})" if exact else "0 % exact"
    if share and (own := _own_metric(leak)):
        return f"{share}, {own}"
    if exact and exact > guess:
        return share
    metric, value, control = leak.metric, leak.mean("value"), leak.mean("control")
    if near := closeness(leak) if leak.quantity == FEATURES else []:
        metric, value, control = near[0], leak.mean(near[0]), leak.mean(f"control_{near[0]}")
    figure = f"{metric_name(metric)} {reading(metric, value)} ({reading(metric, control)})"
    return f"{share}, {figure}" if share else figure


def why_so(answer: Answer) -> str:
    """Return why an answer is what it is, in a few words; where something leaks, what and by which attack."""
    if answer.word is AnswerWord.LEAKS and answer.leak is not None:
        return f"{briefly(answer.leak)} by {answer.leak.attack}"
    return answer.reason


def closeness(leak: Leak) -> list[str]:
    """Return the columns that say how near rebuilt feature rows come, the telling one first.

    That is F1, unless the attack is measured by the cosine or a guess finds all entries that are not zero, as where
    none is zero: then the cosine.
    """
    f1, guess = leak.mean("f1"), leak.mean("control_f1")
    telling = f1 is not None and (guess is None or guess < UNINFORMATIVE)
    by_cosine = leak.mean("cosine") is not None and (leak.metric == "cosine" or not telling)
    return ["cosine"] * by_cosine + ["f1"] * telling


def _own_metric(leak: Leak) -> str:
    """Return the figure of an attack on feature rows whose metric is none that all of them have; else nothing."""
    if leak.metric in ("exact_rate", "f1", "cosine") or not leak.metric:
        return ""
    value, control = (reading(leak.metric, leak.mean(column)) for column in ("value", "control"))
    return f"{metric_name(leak.metric)} {value} ({control})"


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
    return figures if answer.word in (AnswerWord.LEAKS, AnswerWord.HELD) else f"{figures}; {answer.reason}"
