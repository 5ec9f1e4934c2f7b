"""What a reader must know before any figure: refuted guarantees, broken attacks, failures, fields nobody examined."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from fglaudit import registry
from fglaudit.empirical.fields.states import NOT_SENT, PROTOCOL, sees
from fglaudit.finding import Finding, Status
from fglaudit.guarantees import FieldState, Protection, Word
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import few, listed, plural, seeds_words
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting
from fglaudit.reports.sweeps import named
from fglaudit.reports.wording.assurance import assurance
from fglaudit.reports.wording.observers import observer_label


def alarms(run: Run, settings: Sequence[Setting], labels: Labels) -> list[str]:
    """Return one line per alarm: refuted first, then broken, failed and missing, then unchecked and unexamined."""
    if not run.cells:
        return ["This run has no results at all.", *_lost(run, settings, labels)]
    return [
        *_refuted(settings, labels),
        *_broken(run),
        *_lost(run, settings, labels),
        *_unchecked(settings, labels),
        *_unexamined(settings, labels),
    ]


def refuted(setting: Setting) -> bool:
    """Whether any audit contradicted a guarantee of the setting."""
    return any(record.refuted is not None for record in setting.records)


def _refuted(settings: Sequence[Setting], labels: Labels) -> list[str]:
    lines = []
    for setting in settings:
        if not refuted(setting):
            continue
        said = dict.fromkeys(
            record.verdict.reason
            for record in setting.records
            if record.verdict is not None and record.verdict.word is Word.REFUTED and record.verdict.reason
        )
        why = " ".join(said) or (assurance(setting) if setting.contradicted else "an audit contradicts it.")
        lines.append(f"REFUTED: the guarantee of {labels.placed(setting)}: {why}")
    return lines


def _broken(run: Run) -> list[str]:
    broken = [f.attack for record in run.cells for f in record.findings if f.status is Status.BROKEN_ATTACK]
    if not broken:
        return []
    attacks = list(dict.fromkeys(broken))
    whose = "an attack that failed its self-test" if len(attacks) == 1 else "attacks that failed their self-tests"
    return [
        f"{plural(len(broken), 'finding')} {'comes' if len(broken) == 1 else 'come'} from {whose} ({few(attacks)}): "
        "a low score there is no evidence that nothing leaks."
    ]


def _lost(run: Run, settings: Sequence[Setting], labels: Labels) -> list[str]:
    lines = []
    if run.missing:
        have = "has" if len(run.missing) == 1 else "have"
        named = few(_not_run(settings, labels), sep="; ")
        lines.append(
            f"{plural(len(run.missing), 'planned cell')} of the suite {have} no record{': ' * bool(named)}{named}."
        )
    if run.unreadable:
        first, more = run.unreadable[0], len(run.unreadable) - 1
        others = f" and {plural(more, 'other file')}" if more else ""
        lines.append(
            f"{first.file}{others} cannot be read ({first.reason}); what {'they' if more else 'it'} held is not in this"
            " report."
        )
    told = {*run.missing, *(item.file.removeprefix("cells/").removesuffix(".json") for item in run.unreadable)}
    if failed := _failed(settings, labels, told):
        where = few(dict.fromkeys(name for name, _ in failed), sep="; ")
        why = few(dict.fromkeys(row.reason for _, row in failed), 1, sep="; ").rstrip(".")
        lines.append(
            f"{plural(len(failed), 'finding')} failed ({where}: {why}): nothing is known about the leakage there."
        )
    every = sorted({seed for setting in settings for seed in setting.seeds})
    without: dict[tuple[int, ...], list[str]] = {}
    for setting in settings:
        if absent := tuple(seed for seed in every if seed not in setting.seeds):
            without.setdefault(absent, []).append(labels.told(setting))
    for absent, names in without.items():
        lines.append(f"No result for {seeds_words(absent)}: {few(names, sep='; ')}.")
    return lines


def _failed(settings: Sequence[Setting], labels: Labels, told: set[str]) -> list[tuple[str, Finding]]:
    """Return the rows that failed, each with its setting, but for those of the cells ``told``."""
    return [
        (labels.told(setting), row)
        for setting in settings
        for record in setting.records
        if record.cell not in told
        for row in record.findings
        if row.status is Status.FAILED
    ]


def _not_run(settings: Sequence[Setting], labels: Labels) -> list[str]:
    """Return the settings with cells that were planned and have not run, each once with the seeds of those."""
    found = []
    for setting in settings:
        first_rows = (record.findings[0] for record in setting.records)
        if seeds := sorted(row.seed for row in first_rows if row.never_run):
            found.append(f"{labels.told(setting)}, {seeds_words(seeds)}")
    return found


def _open_fields(setting: Setting) -> list[FieldState]:
    """Return the states of the fields of the setting's messages that nothing examined."""
    return [state for record in setting.records for state in record.fields if state.state is Protection.UNEXAMINED]


def unchecked(setting: Setting) -> str:
    """Return which rule the setting's protocol breaks, or why it could not be checked; empty if neither."""
    return next((state.reason for state in _open_fields(setting) if state.payload == PROTOCOL), "")


def _unchecked(settings: Sequence[Setting], labels: Labels) -> list[str]:
    where: dict[str, list[str]] = {}
    for setting in settings:
        if why := unchecked(setting):
            where.setdefault(why, []).append(labels.told(setting))
    return [
        f"UNCHECKED: {why}. What attacks do not find in its messages says nothing. Settings:"
        f" {few(list(dict.fromkeys(places)), sep='; ')}."
        for why, places in where.items()
    ]


def unexamined(setting: Setting) -> list[str]:
    """Return the fields of the setting's messages that nothing examined, as "Payload.field"."""
    fields = (state for state in _open_fields(setting) if state.payload != PROTOCOL)
    return list(dict.fromkeys(f"{state.payload}.{state.field}" for state in fields))


def unknown_payloads(setting: Setting, observer: str) -> list[str]:
    """Return the payloads that ``observer`` is sent, nothing protects, and no attack here knows."""
    fields = _open_fields(setting)
    seen = (state for state in fields if state.payload not in NOT_SENT and sees(observer, state.observer))
    names = dict.fromkeys(state.payload for state in seen)
    return [name for name in names if name not in _known()] if names else []


def unstated_fields(setting: Setting, observer: str) -> bool:
    """Whether something that is not stated is done to a field that ``observer`` is sent."""
    fields = _open_fields(setting)
    return any(state.unstated and sees(observer, state.observer) for state in fields)


@cache
def _known() -> frozenset[str]:
    kinds = [registry.load("attack", name) for name in registry.names("attack")]
    return frozenset(payload.__name__ for kind in kinds for payload in (*kind.consumes, *kind.also_reads))


def _unexamined(settings: Sequence[Setting], labels: Labels) -> list[str]:
    where: dict[tuple[_Reach, tuple[str, ...]], list[Setting]] = {}
    for setting in settings:
        for reach, names in _by_reach(setting).items():
            where.setdefault((reach, tuple(names)), []).append(setting)
    lines = []
    for (reach, fields), found in where.items():
        told = listed(map(_who, reach.observers))
        bare = sum(setting.undefended for setting in found)
        allows = "" if bare == len(found) else f" that allows for the defense{', if there is one,' * bool(bare)}"
        places = [each.name for each in named(found, labels.told)]
        covers = "it" if len(fields) == 1 else "them"
        if reach.others:  # what another author's attack allows for is its own word; what it shows is shown
            one = len(reach.others) == 1
            reads = f"{few(reach.others)} alone, no part of fglaudit, {'reads' if one else 'read'}"
            known = f"what leaks there, beyond what {'it shows' if one else 'they show'}, is not known"
        else:
            reads, known = f"no working attack here{allows} reads", "what leaks there is not known"
        lines.append(
            f"UNEXAMINED: towards {told} {reads} {few(fields)}, and no guarantee covers {covers}: {known}. Settings:"
            f" {few(list(dict.fromkeys(places)), sep='; ')}."
        )
    return lines


class _Reach(NamedTuple):
    """Whom a field reaches unexamined, and which attacks that are no part of fglaudit read it there."""

    observers: tuple[str, ...]
    others: tuple[str, ...]


def _by_reach(setting: Setting) -> dict[_Reach, list[str]]:
    """Return the fields that nothing examined, by whom they reach unexamined: another observer may have had an attack
    that read them."""
    fields: dict[str, dict[str, dict[str, None]]] = {}
    for state in _open_fields(setting):
        if state.payload == PROTOCOL:
            continue  # no attack could read it: see _unchecked
        readers = fields.setdefault(f"{state.payload}.{state.field}", {}).setdefault(state.observer, {})
        readers |= dict.fromkeys(state.others)
    order = list(dict.fromkeys(leak.observer[0] for leak in setting.leaks))
    found: dict[_Reach, list[str]] = {}
    for name, observers in fields.items():
        towards = sorted(observers, key=lambda each: order.index(each) if each in order else len(order))
        for others in dict.fromkeys(tuple(observers[each]) for each in towards):
            alike = tuple(each for each in towards if tuple(observers[each]) == others)
            found.setdefault(_Reach(alike, others), []).append(name)  # reached in another order they are the same
    return found


def _who(observer: str) -> str:
    """Name an observer, or a side that receives a field, within a sentence."""
    label = observer_label((observer, "")) if observer else "everybody"
    return {"Server": "the server", "Clients": "clients", "Wiretap": "a wiretap"}.get(
        label, label[:1].lower() + label[1:]
    )
