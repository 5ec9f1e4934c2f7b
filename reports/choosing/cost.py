"""What stopping the attacks costs: accuracy with and without, per protocol, and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from fglaudit.reports.answers import AnswerWord, answers, applies
from fglaudit.reports.choosing.accuracy_gains import chance, costs_nothing, gains
from fglaudit.reports.choosing.choice import Confirmations
from fglaudit.reports.choosing.options import is_option
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.leaks import FEATURES
from fglaudit.reports.numbers import few, percent, signed
from fglaudit.reports.summary import Setting
from fglaudit.reports.sweeps import named
from fglaudit.reports.wording.observers import observer_label

MOST = 6


def feature_words(setting: Setting) -> set[AnswerWord]:
    """Return what is said of features to any observer of ``setting``."""
    return {answer.word for answer in answers([setting]) if answer.quantity == FEATURES}


def cost_lines(settings: Sequence[Setting], labels: Labels, again: Confirmations) -> list[str]:
    """Return sentences per data set and partition, each with the accuracies of the settings it names."""
    lines = []
    places = list(dict.fromkeys(place(s) for s in settings))
    for where in places:
        here = [s for s in settings if place(s) == where and applies(s) and s.per_seed("accuracy")]
        prefix = f"On {where}: " if len(places) > 1 else ""
        if not here:
            lines.append(f"On {where}: no training finished.")
            continue
        said = _at(here, labels, again)
        lines += [f"{prefix}{text[:1].lower()}{text[1:]}" for text in said] if prefix else said
    return lines


def _at(here: Sequence[Setting], labels: Labels, again: Confirmations) -> list[str]:
    options = [s for s in here if is_option(s)]
    by_protocol: dict[str, list[Setting]] = {}
    for setting in options:
        by_protocol.setdefault(labels.protocol(setting), []).append(setting)
    lines = [line for protocol, mine in by_protocol.items() for line in _stopping(protocol, mine, labels, again)]
    if len(lines) > MOST:
        lines = [*lines[:MOST], f"{len(lines) - MOST} more protocols: see the table."]
    if not lines and options:
        best, worst = max(options, key=attrgetter("accuracy")), min(options, key=attrgetter("accuracy"))
        down = f", down to {worst.spread()} ({labels.setting(worst)})" if worst is not best else ""
        lines = [_nothing_to_stop(options), f"Accuracy: {best.spread()} ({labels.setting(best)}){down}."]
    if bounds := [s for s in here if not is_option(s)]:
        top = max(bounds, key=attrgetter("accuracy"))
        lines.append(
            f"With all data in one place, an upper bound, not an option: {labels.protocol(top)} has {top.spread()}."
        )
    return [*lines, *_beside(options, labels)]


def _nothing_to_stop(options: Sequence[Setting]) -> str:
    """Say why no price of stopping an attack on features can be named."""
    if any(setting.undefended for setting in options):
        return "Without a defense no attack here is shown to read feature rows: stopping that has no price to name."
    return "Every setting here has a defense: what one costs is not known (add none to the suite's defenses)."


def _stopping(protocol: str, mine: Sequence[Setting], labels: Labels, again: Confirmations) -> list[str]:
    """Say which of a protocol's settings ``mine`` stops the attacks on features, and what that costs; nothing where
    they get nothing without a defense."""
    bare = next((s for s in mine if s.undefended), None)
    if bare is None or AnswerWord.LEAKS not in feature_words(bare):
        return []
    without = f"{protocol}: accuracy {bare.spread()} without a defense"
    others = [s for s in mine if not s.undefended]
    held = [s for s in mine if feature_words(s) == {AnswerWord.HELD}]
    if held:
        best = max(held, key=attrgetter("accuracy"))
        lost = 100 * (bare.accuracy - best.accuracy)
        said = (
            f"{without}; {best.spread()} with {labels.defense(best)}, where no attack on features succeeded"
            f" ({_change(lost)}; {again.words(best)})."
        )
    elif not others:
        return [f"{without}; no defense of it has a result here."]
    else:
        tried = few([f"{each.name} at {each.accuracy()}" for each in named(others, labels.defense)], 4)
        said = f"{without}; none of its defenses here is shown to stop all attacks on features ({tried})."
    part = _in_part(bare, mine, held, labels)
    return [said, f"{protocol}, in part: {part}."] if part else [said]


def _in_part(bare: Setting, mine: Sequence[Setting], held: Sequence[Setting], labels: Labels) -> str:
    """Say which observers, of those that read features in ``bare``, a setting stops that does not stop all of them."""
    reads = {a.observer for a in answers([bare]) if a.quantity == FEATURES and a.word is AnswerWord.LEAKS}
    stopped: dict[str, tuple[str, ...]] = {}
    for setting in (s for s in mine if s is not bare and s not in held):
        about = [a for a in answers([setting]) if a.quantity == FEATURES and a.observer in reads]
        blind = [a for a in about if a.word is AnswerWord.NOT_TESTED and any(leak.sealed for leak in a.leaks)]
        stopped[setting.key] = tuple(
            f"{observer_label(a.observer)}: {'ciphertexts only' if a in blind else a.word.value}"
            for a in about
            if a in blind or a.word is AnswerWord.HELD
        )
    some = [s for s in mine if stopped.get(s.key)]
    said = [
        f"{each.name} at {each.accuracy()} ({', '.join(stopped[each.settings[0].key])})"
        for each in named(some, labels.defense, lambda s: stopped[s.key])
    ]
    return few(said, MOST, "; ")


def _beside(options: Sequence[Setting], labels: Labels) -> list[str]:
    """Say what costs nothing, chance included, and which settings bought anything above it."""
    level = next((share for s in options if (share := chance(s)) is not None), None)
    free = sorted(filter(costs_nothing, options), key=attrgetter("accuracy"), reverse=True)
    costless = [f"{labels.protocol(s)} {s.spread()}" for s in free]
    costless += [] if level is None else [f"always naming the largest class {percent(level)}"]
    lines = [f"Accuracy without sending a feature but in models: {few(costless, MOST)}."] if costless else []
    found = gains(options, labels)
    told = [s for s in options if s.key in found]
    more = [f"{labels.setting(s)} {found[s.key].words}" for s in told if found[s.key].anything]
    nothing = named([s for s in told if not found[s.key].anything], labels.setting)
    less = [f"{each.name} ({_gained([found[s.key].gain for s in each.settings])})" for each in nothing]
    if told:
        points = few(more, MOST, "; ") if more else "none by any setting"
        lines.append(f"Points bought above the best of these: {points}.")
    return [*lines, *([f"Bought nothing (points above the best of these): {few(less, MOST, '; ')}."] if less else [])]


def _gained(gains: Sequence[float]) -> str:
    low, high = signed(100 * min(gains)), signed(100 * max(gains))
    return low if low == high else f"{low} to {high}"


def _change(lost: float) -> str:
    return f"{abs(lost):.1f} points {'gained' if lost < 0 else 'lost'}"
