"""What to do next: what would settle what this run leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fglaudit.finding import OTHERS, Status
from fglaudit.guarantees import Word as Guarantee
from fglaudit.reports.alarms import few, unexamined
from fglaudit.reports.answers import Answer, Word, answers, applies, not_allowed_for
from fglaudit.reports.epsilons import guarantee_word
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES
from fglaudit.reports.numbers import plural
from fglaudit.reports.records import NOT_RUN, Run
from fglaudit.reports.summary import Setting
from fglaudit.reports.wording import observer_subject, public_seed


def next_steps(run: Run, settings: Sequence[Setting], labels: Labels) -> list[str]:
    """Return sentences, the most urgent first."""
    steps = []
    refuted = [labels.setting(s) for s in settings if guarantee_word(s) == Guarantee.REFUTED]
    if refuted:
        steps.append(
            f"Do not deploy {few(dict.fromkeys(refuted), 3, '; ')}: the guarantee is refuted; see the three epsilons."
        )
    found = [answer for answer in answers(settings) if answer.applies]
    leaking = [a for a in found if a.word is Word.LEAKS and a.quantity == FEATURES]
    if leaking:
        which = dict.fromkeys(labels.setting(answer.setting) for answer in leaking)
        subjects = dict.fromkeys(observer_subject(answer.observer) for answer in leaking)
        who = few((f"{subject[:1].lower()}{subject[1:]}" for subject in subjects), sep=" and ")
        steps.append(
            f"Do not deploy {few(which, 3, '; ')} where feature rows must stay with their owners: they leak to {who};"
            " the others are not thereby safe."
        )
    failed = any(f.status is Status.FAILED and f.reason != NOT_RUN for record in run.cells for f in record.findings)
    if run.missing or run.unreadable or failed:
        again = "Mend what made cells fail, then run the same command again" if failed else "Run the same command again"
        steps.append(f"{again}: it computes the cells that are missing or failed.")
    missing = [more for more in map(_more_seeds, found) if more]
    if missing:
        seeds = _with_more({seed for setting in settings for seed in setting.seeds}, max(missing))
        first = f" {plural(min(missing), 'seed')} may settle some of it." if min(missing) < max(missing) else ""
        steps.append(
            f"Add {plural(max(missing), 'seed')}, the same command with --seeds {seeds}: where the answer is \u201cnot"
            f" shown: too few parties\u201d, that is how many more it takes; what was computed stays.{first}"
        )
    unable = [
        leak
        for a in found
        if a.word is Word.NOT_SHOWN and not any(leak.reassures for leak in a.leaks)
        for leak in a.leaks
    ]
    facts = not_allowed_for(unable)
    if facts:
        steps.append(
            f"Attack with something that allows for what was done to messages ({few(facts)}): the attacks here do not"
            " (fglaudit list attacks)."
        )
    if any(OTHERS in leak.unadapted for leak in unable):
        steps.append(
            "Attack with those of fglaudit too (attacks: all): one of another author may show a leak, never its"
            " absence."
        )
    named = dict.fromkeys(field for setting in settings for field in unexamined(setting))
    if named:
        steps.append(
            f"Attack {few(named)} (fglaudit list attacks, fglaudit new attack): what leaks there is not known."
        )
    claimed = [labels.setting(s) for s in settings if applies(s) and guarantee_word(s) == Guarantee.CLAIMED]
    if claimed:
        steps.append(
            f"Do not rely on the epsilon of {few(dict.fromkeys(claimed), 3, '; ')}: it is claimed, not verified."
        )
    if any(map(public_seed, settings)):
        steps.append("Draw the noise with a secret key (fglaudit run --secret) before its epsilon is relied on.")
    defended = any(a.setting.first.defense != "none" and a.leak is not None for a in found)
    if leaking and defended and not any(a.word is Word.HELD for a in found if a.quantity == FEATURES):
        steps.append("Try other defenses (fglaudit list defenses): none here is shown to protect feature rows.")
    elif leaking and not defended:
        steps.append("Try defenses (fglaudit list defenses): none has a result here.")
    return steps or ["Repeat on fresh seeds and on your own graph before you rely on it."]


def _with_more(seeds: Iterable[int], more: int) -> str:
    """Return ``seeds`` and ``more`` that follow on the largest, as ``--seeds`` takes them."""
    listed = sorted(seeds)
    listed += range(listed[-1] + 1, listed[-1] + 1 + more)
    known = set(listed)
    starts = [seed for seed in listed if seed - 1 not in known]
    ends = [seed for seed in listed if seed + 1 not in known]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _more_seeds(answer: Answer) -> int:
    """Return how many more seeds it takes for an interval where an attack is ahead of a guess, else to show that
    nothing leaks; 0 where seeds are not what is missing."""
    leak = answer.leak
    if answer.word is not Word.NOT_SHOWN or leak is None:
        return 0
    needs = (leak.for_an_interval if leak.ahead else None) or leak.needs
    return 0 if needs is None or not needs.too_few else needs.more(len(leak.scored))
