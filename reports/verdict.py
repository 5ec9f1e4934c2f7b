"""The verdict: how accurate, who learns what, how sure are we - in sentences, each backed by numbers of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fglaudit.finding import Status
from fglaudit.reports.achieved import achieved
from fglaudit.reports.alarms import alarms as find_alarms
from fglaudit.reports.alarms import refuted
from fglaudit.reports.answers import Answer, AnswerWord, answers, applies, below_or_unseen, not_all, not_allowed_for
from fglaudit.reports.choosing.choice import Confirmations
from fglaudit.reports.choosing.cost import cost_lines
from fglaudit.reports.choosing.underperforming import underperforming
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.leaks import FEATURES, MEAN, NEGLIGIBLE, ONE_CLIENT, UNIQUE, Leak, says_most
from fglaudit.reports.numbers import against, count, decimal, few, percent, plural
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting, tested_epsilons
from fglaudit.reports.wording.assurance import PUBLIC_SEED, assurance, public_seed
from fglaudit.reports.wording.glossary import terms_used
from fglaudit.reports.wording.names import quantity_name
from fglaudit.reports.wording.results import interval_words, outcome_words, parties_words, shortage_words
from fglaudit.scoring.clusters import TOO_FEW

MOST_COSTS = 8
"""Sentences on accuracy that stand on the first screen; further ones are folded away, so that it has all answers."""
NOTHING = "Nothing was measured for this observer."
METHOD = (
    "Intervals take every client of every seed as one cluster: of rates by a beta-binomial law with correlation 0.5,"
    " of scores by a cluster jackknife; they are wider where clients of one seed do well or badly together."
)
GUESSED = "Nothing to learn for this observer: a guess without any message is right already."


@dataclass(frozen=True)
class ObserverVerdict:
    """The worst that one observer did anywhere in the run.

    Attributes:
        word: "leaks" (corrected for the number of attacks, or proven) | "held" (every attack that could show a leak has
            an upper end of 0.02 at most) | "not shown" (not everything or too little was measured) | "not tested".
        headline: what it got, or why nothing is shown: a sentence that stands beside the observer's name and the word.
        lowest: the setting in which this observer's strongest attack got least, with the words that it was chosen on
            the very seeds that are shown.
    """

    observer: tuple[str, str]
    word: AnswerWord
    headline: str
    detail: str
    lowest: str
    sure: str = ""
    """Where, and with which interval."""


@dataclass(frozen=True)
class RunVerdict:
    """Attributes:
    alarms: failed, broken or missing results and contradicted epsilons; shown first and in red.
    warnings: notes of the records.
    """

    alarms: tuple[str, ...]
    warnings: tuple[str, ...]
    accuracy: tuple[str, ...]
    observers: tuple[ObserverVerdict, ...]
    certainty: tuple[str, ...]
    assurances: tuple[str, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        """What the words of the observers' lines mean."""
        return terms_used(text for item in self.observers for text in (item.headline, item.sure))


def observers_of(settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """Return the (parties, knowledge) of a run in the order of the suite."""
    return list(dict.fromkeys(leak.observer for s in settings for leak in s.leaks if leak.observer[0]))


def make_verdict(run: Run, settings: Sequence[Setting], labels: Labels) -> RunVerdict:
    """Judge a run. ``settings`` come from :func:`fglaudit.reports.summary.summarize`."""
    notes = Counter(note for record in run.cells for note in record.notes)
    statements: dict[str, list[str]] = {}
    for setting in settings:
        if (text := assurance(setting)) and not setting.contradicted:
            statements.setdefault(text, []).append(labels.told(setting))
    again = Confirmations.of(run)
    answered = answers(settings)
    return RunVerdict(
        alarms=tuple(find_alarms(run, settings, labels)),
        warnings=(
            *(f"{note} ({plural(times, 'cell')})" for note, times in notes.items()),
            *underperforming(settings, labels),
            *([PUBLIC_SEED] if any(map(public_seed, settings)) else []),
        ),
        accuracy=tuple(cost_lines(settings, labels, again)),
        observers=tuple(_observer(observer, settings, answered, labels, again) for observer in observers_of(settings)),
        certainty=(*_certainty(settings), *_epsilons_tested(run, settings)),
        assurances=tuple(f"{few(dict.fromkeys(names), sep='; ')}: {text}" for text, names in statements.items()),
    )


def _observer(
    observer: tuple[str, str],
    settings: Sequence[Setting],
    answered: Sequence[Answer],
    labels: Labels,
    again: Confirmations,
) -> ObserverVerdict:
    every = [(s, leak) for s in settings for leak in s.leaks if leak.observer == observer]
    measured = [pair for pair in every if pair[1].measured]
    doubt = _doubt(every)
    if not measured:
        guessed = any(leak.uninformative for _, leak in every)
        detail = f"{doubt} {_why_nothing(every)} {'' if guessed else 'What this observer learns is unknown.'}".strip()
        return ObserverVerdict(observer, AnswerWord.NOT_TESTED, GUESSED if guessed else NOTHING, detail, "")
    found = _judged(observer, settings, answered, measured, labels, sure=not doubt)
    where, worst = found.where, found.worst
    sure = "; ".join(filter(None, (interval_words(worst), parties_words(worst))))
    ground = f"Attack {worst.attack}; {sure}; {labels.setting(where)}, on {place(where)}."
    alone = ""
    if UNIQUE in worst.grounds and MEAN not in worst.grounds:
        alone = f"{count(worst.unique_exact)} exact rows of one observer are of one node alone"
        ground += f" {alone}; chance deals few."
    strongest = [(s, leak) for s in settings for leak in s.strongest_by_quantity(observer).values()]
    best = [pair for pair in strongest if pair[1].quantity == worst.quantity and pair[0].dataset == where.dataset]
    leaks = [pair for pair in measured if pair[1].grounds]
    detail = " ".join(filter(None, (ground, found.why, _also(leaks, worst, labels), doubt)))
    where_and_sure = "; ".join(filter(None, (labels.told(where), interval_words(worst), alone)))
    lowest = _lowest(best, worst, labels, again)
    return ObserverVerdict(observer, found.word, found.headline, detail, lowest, where_and_sure)


def _doubt(every: Sequence[tuple[Setting, Leak]]) -> str:
    """Say how many findings failed or come from broken attacks; empty if none does."""
    lost = [finding.attack for _, leak in every for finding in leak.findings if finding.lost]
    if not lost:
        return ""
    come = "comes" if len(lost) == 1 else "come"
    return (
        f"{plural(len(lost), 'finding')} of this observer failed or {come} from a broken attack"
        f" ({few(dict.fromkeys(lost))})."
    )


class _Judged(NamedTuple):
    """What is said of an observer, the row that it rests on with its setting, and what stands beside it."""

    word: AnswerWord
    headline: str
    where: Setting
    worst: Leak
    why: str = ""


def _judged(
    observer: tuple[str, str],
    settings: Sequence[Setting],
    answered: Sequence[Answer],
    measured: Sequence[tuple[Setting, Leak]],
    labels: Labels,
    *,
    sure: bool,
) -> _Judged:
    """Return the worst that is shown of ``observer``; if nothing is, why not, where anything keeps it from "held".

    Args:
        measured: its attacks of which there are figures, one at least.
        sure: whether all of its attacks worked.
    """
    if leaks := [pair for pair in measured if pair[1].grounds]:
        where, worst = max(_about(leaks), key=lambda pair: says_most(pair[1]))
        return _Judged(AnswerWord.LEAKS, _leak_headline(worst), where, worst)
    unable, why = _unable(observer, settings, labels)
    ahead = [pair for pair in measured if pair[1].ahead]
    if ahead and (_about(ahead)[0][1].quantity == FEATURES or unable != FEATURES):
        where, worst = max(_about(ahead), key=lambda pair: says_most(pair[1]))
        return _Judged(AnswerWord.NOT_SHOWN, _ahead_headline(worst), where, worst, why)
    if unable:
        about = [pair for pair in measured if pair[1].quantity == unable]
        return _Judged(AnswerWord.NOT_SHOWN, why, *max(about, key=_exposure))
    if open_ := [pair for pair in measured if pair[1].reassures and not pair[1].held]:
        where, worst = max(open_, key=_exposure)
        return _Judged(AnswerWord.NOT_SHOWN, _open_headline(worst), where, worst)
    closest = max(_about(measured), key=_exposure)
    if not sure:
        return _Judged(AnswerWord.NOT_SHOWN, "No working attack here succeeded, but not every attack worked.", *closest)
    if doubts := [why for s in settings if (why := not_all(s, observer))]:
        return _Judged(AnswerWord.NOT_SHOWN, f"{_sentence(doubts[0])}.", *closest)
    if untested := [a for a in answered if a.observer == observer and _open_features(a)]:
        setting = labels.setting(untested[0].setting)
        why = f"Features were not tested with {setting}: {untested[0].reason}."
        return _Judged(AnswerWord.NOT_SHOWN, why, *closest)
    once = "" if any(len(setting.seeds) > 1 for setting in settings) else " in the one training"
    return _Judged(AnswerWord.HELD, f"No attack here succeeded{once}. That is not a guarantee.", *closest)


def _open_features(answer: Answer) -> bool:
    """Whether features could have reached the observer, and no attack told whether any did."""
    untested = answer.applies and answer.quantity == FEATURES and answer.word is AnswerWord.NOT_TESTED
    return untested and not answer.asks_nobody and not any(leak.uninformative for leak in answer.leaks)


def _exposure(pair: tuple[Setting, Leak]) -> tuple[float, float]:
    """Sort key: the leak that says most, and of equal ones the one that is least sure."""
    leak = pair[1]
    return leak.advantage or 0.0, leak.high if leak.high is not None else 1.0


def _about(pairs: Sequence[tuple[Setting, Leak]]) -> list[tuple[Setting, Leak]]:
    """Those on features; where there is none, those on the first other quantity."""
    about = FEATURES if any(leak.quantity == FEATURES for _, leak in pairs) else pairs[0][1].quantity
    return [pair for pair in pairs if pair[1].quantity == about]


def _leak_headline(leak: Leak) -> str:
    if MEAN in leak.grounds or UNIQUE in leak.grounds:
        return f"{_sentence(_gets(leak))}."
    if ONE_CLIENT in leak.grounds:
        return f"At one client the advantage is {decimal(leak.worst_client)}; over all of them it {_gets(leak)}."
    return f"{percent(leak.proven)} of the feature rows are proven to be determined by what it has."


def _gets(leak: Leak) -> str:
    return f"gets {achieved(leak)}" if leak.quantity == FEATURES else outcome_words(leak)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ahead_headline(leak: Leak) -> str:
    few = leak.for_an_interval
    if few is None:
        why = "chance is not ruled out" if leak.estimate.shown else f"{TOO_FEW} to tell that from chance"
    else:
        more = few.more(len(leak.scored))
        would = f"{plural(more, 'more seed')} would do" if more else "further seeds bring no further clients"
        why = f"{TOO_FEW} to tell that from chance ({few.has} clients x seeds, {few.need} needed; {would})"
    return f"{_sentence(outcome_words(leak))}; {why}."


def _open_headline(leak: Leak) -> str:
    if few := shortage_words(leak):
        return f"{_sentence(TOO_FEW)}: no attack here succeeded on {few}."
    reach = f"{leak.attack} may get up to {against(leak.high, NEGLIGIBLE)} of the way from a guess to everything"
    return f"No attack here is ahead of a guess by more than {NEGLIGIBLE:g}, but {reach}."


def _unable(observer: tuple[str, str], settings: Sequence[Setting], labels: Labels) -> tuple[str, str]:
    """Return on which quantity, features first, nothing measured for ``observer`` can show that nothing leaks, and a
    sentence on why; both empty if there is none."""
    found: dict[str, str] = {}
    for setting in settings:
        leaks = [leak for leak in setting.leaks if leak.observer == observer and leak.measured]
        for quantity in dict.fromkeys(leak.quantity for leak in leaks):
            tried = [leak for leak in leaks if leak.quantity == quantity]
            if not any(leak.reassures for leak in tried):
                facts = not_allowed_for(tried)
                why = (
                    f"do not allow for what was done to the messages ({', '.join(facts)})"
                    if facts
                    else below_or_unseen(tried)
                )
                what = "" if quantity == FEATURES else f" on {quantity_name(quantity)}"
                words = f"With {labels.told(setting)} the attacks here{what} {why}. That is no sign of protection."
                found.setdefault(quantity, words)
    first = FEATURES if FEATURES in found else next(iter(found), "")
    return first, found.get(first, "")


def _also(leaks: Sequence[tuple[Setting, Leak]], worst: Leak, labels: Labels) -> str:
    """Return a sentence on everything else that was inferred."""
    others = {leak.quantity for _, leak in leaks if leak.quantity != worst.quantity}
    others_words = []
    for quantity in sorted(others):
        where, most = max(
            (pair for pair in leaks if pair[1].quantity == quantity), key=lambda pair: pair[1].advantage or 0.0
        )
        others_words.append(f"{outcome_words(most)} by {most.attack} ({labels.told(where)})")
    return f"It also {'; '.join(others_words)}. " if others_words else ""


def _why_nothing(every: Sequence[tuple[Setting, Leak]]) -> str:
    """Say why there is no figure: what keeps a defense from serving a protocol only where nothing could be trained."""
    told = [leak for setting, leak in every if applies(setting)] or [leak for _, leak in every]
    reasons = Counter(f.reason for leak in told for f in leak.findings if f.reason and not f.never_run)
    words = [reason for reason, _ in reasons.most_common(3)]
    if blind := sum(leak.uninformative for leak in told):
        words = [f"{plural(blind, 'comparison')} with a guess that scores 0.99 or more", *words[:2]]
    return f"Why: {'; '.join(words)}." if words else ""


def _lowest(best: Sequence[tuple[Setting, Leak]], worst: Leak, labels: Labels, again: Confirmations) -> str:
    def weakness(pair: tuple[Setting, Leak]) -> tuple[float, float]:
        high = pair[1].advantage if pair[1].high is None else pair[1].high
        return high or 0.0, -pair[0].accuracy

    tested = [pair for pair in best if pair[1].reassures and (pair[1].advantage or 0.0) >= 0]
    if not tested:
        return ""
    setting, leak = min(tested, key=weakness)
    if leak is worst:
        return ""
    cost = f" at {setting.spread()} accuracy" if setting.per_seed("accuracy") else ""
    reach = f", interval {decimal(leak.low)} to {decimal(leak.high)}" if leak.high is not None else ""
    tried = [other for other in setting.leaks if other.observer == leak.observer]
    worked = sum(other.measured for other in tried)
    coverage = "" if worked == len(tried) else f"; only {worked} of {plural(len(tried), 'attack')} applied and worked"
    found = f"{labels.told(setting)}: advantage {decimal(leak.advantage)}{reach}{cost}{coverage}"
    return f"{found}; {again.words(setting, leak.observer)}."


def _epsilons_tested(run: Run, settings: Sequence[Setting]) -> list[str]:
    if not (tested := tested_epsilons(run)):
        return []
    against = sum(map(refuted, settings))
    return [
        f"Accounted epsilons were put to the test in {plural(tested, 'cell')}, by canaries: contradicted in "
        f"{plural(against, 'setting')}. Each audit contradicts an honest defense with probability 1e-5 at most."
    ]


def _certainty(settings: Sequence[Setting]) -> list[str]:
    leaks = [leak for s in settings for leak in s.leaks]
    statuses = Counter(finding.status for leak in leaks for finding in leak.findings)
    total = sum(statuses.values())
    not_run = sum(finding.never_run for leak in leaks for finding in leak.findings)
    unrun = f" {not_run} not run yet," if not_run else ""
    seeds = len({seed for s in settings for seed in s.seeds})
    kinds = Counter(leak.interval for leak in leaks if leak.measured)
    lines = [
        f"{statuses[Status.OK]} of {plural(total, 'finding')} measured,{unrun} "
        f"{statuses[Status.FAILED] - not_run} failed, "
        f"{statuses[Status.BROKEN_ATTACK]} from broken attacks, {statuses[Status.NOT_APPLICABLE]} not applicable; "
        f"{plural(seeds, 'seed')}."
    ]
    shown = sum(leak.estimate.shown for leak in leaks if leak.measured)
    if shown:
        lines.append(
            f"{plural(shown, 'interval')} of 95 %, over clients and seeds. \u201cLeaks\u201d is said after a correction"
            " for the number of attacks."
        )
    if kinds["range"]:
        lines.append(f"{plural(kinds['range'], 'interval')}: only the range, {TOO_FEW} (fewer than 5 clients x seeds).")
    if blind := sum(leak.uninformative for leak in leaks):
        lines.append(f"{plural(blind, 'comparison')} uninformative: a guess alone already scores 0.99 or more.")
    if shown:
        lines.append(METHOD)
    if seeds == 1:
        lines.append("One seed: how much accuracy and leakage vary between runs is unknown.")
    return lines
