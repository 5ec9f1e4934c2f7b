"""What every setting of a run bought over what costs nothing, and what always naming one class would reach.

Controls are found in the run itself: settings of which no message but models depends on a feature. Models have no
epsilon, with or without them; an epsilon of 0 here is about all other messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fglaudit.empirical.fields.states import NOT_SENT
from fglaudit.guarantees import Word
from fglaudit.reports.choosing.controls import Bought, Measured, bought
from fglaudit.reports.choosing.options import LABELS_ALONE, NO_FEATURES, is_option
from fglaudit.reports.epsilons import guarantee_word
from fglaudit.reports.labels import Labels, place
from fglaudit.reports.leaks import mean
from fglaudit.reports.numbers import percent
from fglaudit.reports.summary import Setting

EDGE = "edge"
MODELS = "ModelUpdate"
UNEVEN = 0.8
"""Share of one class among test nodes from which on accuracy says little of the others."""


def chance(setting: Setting) -> float | None:
    """Return the share of the test nodes' most frequent class, over seeds; None where records do not say."""
    found = [record.partition_facts.get("chance") for record in setting.records]
    return mean([float(level) for level in found if isinstance(level, (int, float))])


def accuracy_words(setting: Setting) -> str:
    """Return the accuracy over seeds, with the mean over classes where one class is nearly all that is tested."""
    text, level = setting.spread(), chance(setting)
    each = mean(setting.per_seed("accuracy_balanced"))
    return f"{text} (balanced {percent(each)})" if each is not None and level is not None and level >= UNEVEN else text


def beside(setting: Setting, found: Mapping[str, Bought]) -> str:
    """Return what stands beside an accuracy: what it bought, of :func:`gains`, or that the setting is a control; empty
    where there is none."""
    if costs_nothing(setting):
        alone = setting.first.protocol in LABELS_ALONE
        return f"control: sends {'training labels, no feature' if alone else 'no feature but in models'}"
    gain = found.get(setting.key)
    return "" if gain is None else f"bought {gain.words}"


def spent(setting: Setting) -> float:
    """Return the epsilon that ``setting`` spends on a node's features: 0 where no message but models depends on any,
    infinite where nothing is accounted, or for something else than features."""
    if costs_nothing(setting):
        return 0.0
    accounted = setting.largest("epsilon_accounted")
    counts = accounted is not None and guarantee_word(setting) != Word.REFUTED and EDGE not in _unit(setting)
    return accounted if counts and accounted is not None else math.inf


def costs_nothing(setting: Setting) -> bool:
    """Whether no message but models depends on a feature: public codes, labels, models alone, or nothing at all."""
    if not is_option(setting) or not setting.undefended:
        return False
    if not setting.largest("bytes_up") and not setting.largest("bytes_down"):
        return bool(setting.per_seed("bytes_up"))
    sent = {state.payload for record in setting.records for state in record.fields} - {*NOT_SENT}
    if setting.first.protocol in LABELS_ALONE:
        return bool(sent)
    return MODELS in sent and (sent == {MODELS} or setting.first.protocol in NO_FEATURES)


def gains(settings: Sequence[Setting], labels: Labels) -> dict[str, Bought]:
    """Return what each setting bought, by :func:`fglaudit.reports.summary.setting_key`: controls and settings beside
    which there is none are left out.

    Beside an epsilon of edges no control stands that gives edges away, and beside an epsilon of labels none that sends
    labels at a larger one.
    """
    options = [s for s in settings if is_option(s) and s.per_seed("accuracy_global")]
    found = {}
    for setting in options:
        if costs_nothing(setting):
            continue
        others = [
            _measured(other, labels, control=True)
            for other in options
            if place(other) == place(setting)
            and costs_nothing(other)
            and not (EDGE in _unit(setting) and other.first.protocol in NO_FEATURES)
            and not (other.first.protocol in LABELS_ALONE and _of_labels(other) > _of_labels(setting))
        ]
        gain = bought(_measured(setting, labels, control=False), others)
        if gain is not None:
            found[setting.key] = gain
    return found


def _of_labels(setting: Setting) -> float:
    """Return the epsilon at which labels are sent; infinite where the protocol promises none."""
    described = setting.records[0].description.get("protocol")
    stated = described.get("label_epsilon") if isinstance(described, dict) else None
    return float(stated) if isinstance(stated, int | float) and stated > 0 else math.inf


def _unit(setting: Setting) -> str:
    return setting.text("privacy_unit")


def _measured(setting: Setting, labels: Labels, *, control: bool) -> Measured:
    by_seed = {record.seed: record for record in setting.records}
    reached = {seed: record.findings[0].accuracy_global for seed, record in by_seed.items()}
    return Measured(
        labels.protocol(setting) if control else labels.setting(setting),
        {seed: accuracy for seed, accuracy in reached.items() if accuracy is not None},
        spent(setting),
        control,
        {seed: record.history["right"] for seed, record in by_seed.items() if "right" in record.history},
    )
