"""What to do next: what would settle what this run leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fglaudit.finding import OTHERS, Status
from fglaudit.guarantees import Word
from fglaudit.reports.alarms import unexamined
from fglaudit.reports.answers import Answer, AnswerWord, answers, applies, not_allowed_for
from fglaudit.reports.epsilons import guarantee_word
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES
from fglaudit.reports.numbers import few, listed, plural
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting
from fglaudit.reports.sweeps import named
from fglaudit.reports.wording.assurance import public_seed
from fglaudit.reports.wording.names import quantity_name
from fglaudit.reports.wording.observers import observer_subject


def next_steps(run: Run, settings: Sequence[Setting], labels: Labels) -> list[str]:
    """Return sentences, the most urgent first."""
    found = [answer for answer in answers(settings) if answer.applies]
    leaking = [a for a in found if a.word is AnswerWord.LEAKS and a.quantity == FEATURES]
    defended = any(not a.setting.undefended and a.leak is not None for a in found)
    steps = [
        *_refuted(settings, labels),
        *_leaking(leaking, labels),
        *(_again(run) or _unmeasured(found)),
        *_seeds(found, settings),
        *_other_attacks(found),
        *_unexamined(settings),
        *_claimed(settings, labels),
        *_secret(settings),
        *(_defenses(found, defended) if leaking else []),
    ]
    return steps or ["Repeat on fresh seeds and on your own graph before you rely on it."]


def _refuted(settings: Sequence[Setting], labels: Labels) -> list[str]:
    which = _with_word(settings, labels, Word.REFUTED)
    return [f"Do not deploy {which}: the guarantee is refuted; see the three epsilons."] if which else []


def _leaking(leaking: Sequence[Answer], labels: Labels) -> list[str]:
    if not leaking:
        return []
    settings = list({answer.setting.key: answer.setting for answer in leaking}.values())
    which = dict.fromkeys(each.name for each in named(settings, labels.setting))
    subjects = dict.fromkeys(observer_subject(answer.observer) for answer in leaking)
    who = listed(f"{subject[:1].lower()}{subject[1:]}" for subject in subjects)
    return [
        f"Do not deploy {few(which, 3, '; ')} where feature rows must stay with their owners: they leak to {who};"
        " the others are not thereby safe."
    ]


def _unmeasured(found: Sequence[Answer]) -> list[str]:
    if not found or any(answer.leak is not None for answer in found):
        return []
    return [
        "Attack with what reads the messages that are sent: nothing was measured here (fglaudit show PROTOCOL names"
        " them, coverage.csv says why each attack did not apply)."
    ]


def _again(run: Run) -> list[str]:
    failed = any(f.status is Status.FAILED and not f.never_run for record in run.cells for f in record.findings)
    if not (run.missing or run.unreadable or failed):
        return []
    again = "Mend what made cells fail, then run the same command again" if failed else "Run the same command again"
    return [f"{again}: it computes the cells that are missing or failed."]


def _seeds(found: Sequence[Answer], settings: Sequence[Setting]) -> list[str]:
    missing = [more for more in map(_more_seeds, found) if more]
    if not missing:
        return []
    seeds = _with_more({seed for setting in settings for seed in setting.seeds}, max(missing))
    first = f" {plural(min(missing), 'seed')} may settle some of it." if min(missing) < max(missing) else ""
    return [
        f"Add {plural(max(missing), 'seed')}, the same command with --seeds {seeds}: where the answer is \u201cnot"
        f" shown: too few parties\u201d, that is how many more it takes; what was computed stays.{first}"
    ]


def _other_attacks(found: Sequence[Answer]) -> list[str]:
    """Return what else to attack with where no attack that was tried can show that nothing leaks."""
    open_ = [a for a in found if a.word is AnswerWord.NOT_SHOWN and not any(leak.reassures for leak in a.leaks)]
    unable = [leak for answer in open_ for leak in answer.leaks if leak.measured]
    steps = []
    if facts := not_allowed_for(unable):
        about = [leak.quantity for leak in unable if not_allowed_for([leak])]
        names = few(dict.fromkeys(quantity_name(quantity) for quantity in about))
        steps.append(
            f"Attack with something that allows for what was done to messages ({few(facts)}): the attacks here on"
            f" {names} do not (fglaudit list attacks)."
        )
    if any(OTHERS in leak.unadapted for leak in unable):
        steps.append(
            "Attack with those of fglaudit too (attacks: all): one of another author may show a leak, never its"
            " absence."
        )
    return steps


def _unexamined(settings: Sequence[Setting]) -> list[str]:
    named = dict.fromkeys(field for setting in settings for field in unexamined(setting))
    if not named:
        return []
    return [f"Attack {few(named)} (fglaudit list attacks, fglaudit new attack): what leaks there is not known."]


def _claimed(settings: Sequence[Setting], labels: Labels) -> list[str]:
    which = _with_word([setting for setting in settings if applies(setting)], labels, Word.CLAIMED)
    return [f"Do not rely on the epsilon of {which}: it is claimed, not verified."] if which else []


def _secret(settings: Sequence[Setting]) -> list[str]:
    if not any(map(public_seed, settings)):
        return []
    return ["Draw the noise with a secret key (fglaudit run --secret) before its epsilon is relied on."]


def _defenses(found: Sequence[Answer], defended: bool) -> list[str]:
    """Return whether to try other defenses where feature rows leak."""
    if not defended:
        return ["Try defenses (fglaudit list defenses): none has a result here."]
    if any(answer.word is AnswerWord.HELD for answer in found if answer.quantity == FEATURES):
        return []
    return ["Try other defenses (fglaudit list defenses): none here is shown to protect feature rows."]


def _with_word(settings: Sequence[Setting], labels: Labels, word: Word) -> str:
    """Return the settings whose guarantee has ``word``, the first few by name; empty where there are none."""
    found = named([s for s in settings if guarantee_word(s) == word], labels.told)
    return few(dict.fromkeys(each.name for each in found), 3, "; ")


def _with_more(seeds: Iterable[int], more: int) -> str:
    """Return ``seeds`` and ``more`` that follow on the largest, as ``--seeds`` takes them."""
    every = sorted(seeds)
    every += range(every[-1] + 1, every[-1] + 1 + more)
    known = set(every)
    starts = [seed for seed in every if seed - 1 not in known]
    ends = [seed for seed in every if seed + 1 not in known]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _more_seeds(answer: Answer) -> int:
    """Return how many more seeds it takes for an interval where an attack is ahead of a guess, else to show that
    nothing leaks; 0 where seeds are not what is missing."""
    leak = answer.leak
    if answer.word is not AnswerWord.NOT_SHOWN or leak is None:
        return 0
    needs = (leak.for_an_interval if leak.ahead else None) or leak.needs
    return 0 if needs is None or not needs.too_few else needs.more(len(leak.scored))
