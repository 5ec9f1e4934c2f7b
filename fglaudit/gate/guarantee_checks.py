"""Does every guarantee of a run say what a policy asks: its word, epsilon, unit and delta, and towards whom it holds?

An epsilon alone says nothing: (0.1, 0.9) is met by a mechanism that publishes every record with probability 0.9, and a
guarantee against clients alone says nothing of what a trusted server reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fglaudit.gate.askable import observer_names
from fglaudit.gate.check import Check
from fglaudit.gate.naming import name_one
from fglaudit.gate.policy import MOST_DELTA, Epsilon
from fglaudit.gate.relations import ANY, Worth, worth
from fglaudit.guarantees import Verdict, Word
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import against
from fglaudit.reports.summary import Setting


def guarantee_checks(
    trained: Sequence[Setting], want: Epsilon, observers: Collection[str], labels: Labels
) -> Iterable[Check]:
    """Yield the checks of ``want`` on the ``trained`` settings: epsilon, delta, and whom the guarantee covers.

    Args:
        observers: that the policy names elsewhere; it must hold against them unless ``want.against`` names others, and
            against all of the run where nobody is named.
    """
    yield _epsilon(trained, want, labels)
    yield _delta(trained, want, labels)
    yield _covered(trained, tuple(want.against or observers), labels)


def _epsilon(trained: Sequence[Setting], want: Epsilon, labels: Labels) -> Check:
    asked = want.asked_relation
    of = "" if asked == ANY else f" {asked} (epsilon.relation)"
    wanted = f"{want.guarantee}, at most {want.max:g} per {want.unit}{of}"
    largest, where, note = 0.0, "", ""
    for setting in trained:
        for record in setting.records:
            found = _stated(record.verdict, want)
            if found.trouble:
                return Check("epsilon", wanted, f"{found.trouble} ({name_one(setting, labels)})", False)
            if found.epsilon >= largest:
                largest, where, note = found.epsilon, name_one(setting, labels), found.note
    if not trained:
        return Check("epsilon", wanted, "nothing was trained", False)
    said = f"{against(largest, want.max, '.4g')} ({where}){f': {note}' if note else ''}"
    return Check("epsilon", wanted, said, largest <= want.max)


def _delta(trained: Sequence[Setting], want: Epsilon, labels: Labels) -> Check:
    """Epsilon may be exceeded with probability delta: at one over the number of records and more, a mechanism that
    publishes one record at random would do."""
    if want.delta is None:
        wanted = f"at most {MOST_DELTA:g}, and below one over the number of nodes (epsilon.delta)"
    else:
        wanted = f"at most {want.delta:g}"
    largest, where = 0.0, ""
    for setting in trained:
        for record in setting.records:
            if record.verdict is None or record.verdict.delta is None:
                return Check("delta", wanted, f"a guarantee that names none ({name_one(setting, labels)})", False)
            found = _stated(record.verdict, want)
            delta = record.verdict.delta if found.trouble else found.delta
            nodes = record.nodes
            if want.delta is None and delta * nodes >= 1:
                return Check("delta", wanted, f"{delta:g} with {nodes} nodes ({name_one(setting, labels)})", False)
            if delta >= largest:
                largest, where = delta, name_one(setting, labels)
    if not trained:
        return Check("delta", wanted, "nothing was trained", False)
    most = MOST_DELTA if want.delta is None else want.delta
    return Check("delta", wanted, f"{against(largest, most, '.6g')} ({where})", largest <= most)


def _covered(trained: Sequence[Setting], named: Sequence[str], labels: Labels) -> Check:
    """Every row says what is promised to its observer: none where the guarantee is not about what it sees."""
    wanted = f"the guarantee is about what {', '.join(named) or 'every observer of the run'} sees (epsilon.against)"
    for setting in trained:
        for record in setting.records:
            seen: set[str] = set()
            for row in record.findings:
                names = observer_names((row.observer, row.observer_knowledge))
                if named and not set(named) & set(names):
                    continue
                seen.update(names)
                if row.guarantee in ("", Word.NONE):
                    limits = record.verdict.not_covered if record.verdict is not None else ""
                    why = f"nothing is promised to {names[-1]}{f'. {limits}' if limits else ''}"
                    return Check("covered", wanted, f"{why} ({name_one(setting, labels)})", False)
            if lost := [name for name in named if name not in seen]:
                return Check("covered", wanted, f"no row of {', '.join(lost)} ({name_one(setting, labels)})", False)
    return Check("covered", wanted, "all of them" if trained else "nothing was trained", bool(trained))


def _stated(verdict: Verdict | None, want: Epsilon) -> Worth:
    """Return the epsilon and the delta that count, or why none does."""
    if verdict is None:
        return Worth(trouble="no guarantee was judged")
    enough = {Word.VERIFIED} | ({Word.CLAIMED} if want.guarantee == "claimed" else set())
    if verdict.word not in enough:
        return Worth(trouble=f"the guarantee is {verdict.word}{f': {verdict.reason}' if verdict.reason else ''}")
    values = [v for v in (verdict.epsilon, verdict.claimed) if v is not None]
    value = verdict.epsilon if verdict.word is Word.VERIFIED else max(values, default=None)
    if value is None:
        return Worth(trouble=f"a {verdict.word} guarantee without an epsilon")
    if verdict.unit != want.unit:
        return Worth(trouble=f"the guarantee is per {verdict.unit or 'unit that it does not name'}")
    mu = verdict.mu if value == verdict.epsilon else None
    return worth(value, verdict.delta or 0.0, mu, verdict.relation, want.asked_relation)
