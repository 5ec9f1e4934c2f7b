"""``findings.json``: answers, guarantees and measured rows, for programs; docs/findings.schema.json describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from fglaudit import __version__
from fglaudit.finding import COLUMNS, Finding, Status
from fglaudit.reports.achieved import in_words
from fglaudit.reports.alarms import alarms
from fglaudit.reports.answers import Answer, answers
from fglaudit.reports.epsilons import NOT_JUDGED, epsilon_rows, guarantee_word
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import mean, sd
from fglaudit.reports.records import Run
from fglaudit.reports.summary import Setting

FORMAT = 1
"""Grows with any change that a program which reads the file could trip over."""
_SETTING = ("dataset", "partition", "clients", "protocol", "protocol_args", "server", "defense", "defense_args")


def findings_json(run: Run, settings: Sequence[Setting], labels: Labels) -> str:
    """Return the file's text. What has no value is left out; what is not finite is "inf" or "-inf"."""
    number = {id(setting): place for place, setting in enumerate(settings)}
    rows = [row for record in run.cells for row in record.findings if row.status is not Status.NOT_APPLICABLE]
    document = {
        "format": FORMAT,
        "fglaudit": __version__,
        "suite": run.name,
        "alarms": alarms(run, settings, labels),
        "settings": [_setting(setting, place, labels) for place, setting in enumerate(settings)],
        "answers": [_answer(answer, number[id(answer.setting)]) for answer in answers(settings)],
        "findings": [_row(row) for row in rows],
    }
    # A line per entry: readable, comparable by line, and not much larger than without.
    parts = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(_text(entry) for entry in value) + "\n]")
        else:
            parts.append(f"{json.dumps(name)}: {_text(value)}")
    return "{" + ",\n".join(parts) + "}\n"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _setting(setting: Setting, place: int, labels: Labels) -> dict[str, Any]:
    accuracies = setting.per_seed("accuracy")
    entry: dict[str, Any] = {"setting": place, "name": labels.setting(setting)}
    entry |= {column: getattr(setting.first, column) for column in _SETTING}
    entry |= {"seeds": list(setting.seeds), "accuracy_mean": mean(accuracies), "accuracy_sd": sd(accuracies)}
    for row in epsilon_rows([setting], labels):
        entry |= {f"epsilon_{kind}": getattr(row, kind) for kind in ("claimed", "accounted", "empirical")}
        entry |= {"delta": row.delta, "privacy_unit": row.unit, "why": row.why, "not_covered": row.not_covered}
    word = guarantee_word(setting)
    return _set({**entry, "guarantee": None if word == NOT_JUDGED else word})


def _answer(answer: Answer, place: int) -> dict[str, Any]:
    leak = answer.leak
    entry: dict[str, Any] = {
        "setting": place,
        "observer": answer.observer[0],
        "observer_knowledge": answer.observer[1],
        "quantity": answer.quantity,
        "word": answer.word.value,
        "reason": answer.reason,
        "applies": answer.applies,
    }
    if leak is not None:
        entry |= {"attack": leak.attack, "metric": leak.metric, "text": in_words(answer), "interval": leak.interval}
        entry |= {"advantage": leak.advantage, "advantage_low": leak.low, "advantage_high": leak.high}
        entry |= {name: leak.mean(name) for name in ("value", "control", "exact_rate", "control_exact_rate")}
    return _set(entry)


def _row(row: Finding) -> dict[str, Any]:
    return _set({column: getattr(row, column) for column in COLUMNS})


def _set(entry: dict[str, Any]) -> dict[str, Any]:
    """Leave out what has no value."""
    return {name: _finite(value) for name, value in entry.items() if value not in (None, "") and value == value}


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and math.isinf(value) else value
