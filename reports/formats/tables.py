"""``summary.csv``: one row per setting x observer x knowledge x attack, over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fglaudit.execution.folder.csv_files import csv_text
from fglaudit.finding import Status
from fglaudit.reports.choosing.accuracy_gains import chance, gains
from fglaudit.reports.choosing.controls import Bought
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import Leak, mean, sd
from fglaudit.reports.summary import Setting

_NAMES = ("suite", "dataset", "partition", "clients", "protocol", "protocol_args", "server", "defense", "defense_args")
_OBSERVED = ("observer", "observer_knowledge", "attack")
_WITH_SD = ("value", "control")
_MEANS = (
    "exact_rate", "matched_rate", "cosine", "f1", "auc", "relative_error", "tpr_at_fpr_1", "tv_error",
    "control_exact_rate", "control_cosine", "control_f1", "control_auc", "identifiable_rate", "worst_decile",
    "direction_rate", "claimed_rate", "false_claim_rate",
)  # fmt: skip
_LARGEST = ("epsilon_claimed", "epsilon_accounted", "epsilon_empirical", "delta", "releases")
_TEXTS = ("privacy_unit", "mechanism")
_COSTS = ("bytes_up", "bytes_down", "ciphertext_bytes")
_ACCURACIES = ("accuracy_mean", "accuracy_sd", "accuracy_global_mean", "accuracy_global_sd")
_BOUGHT = ("bought", "bought_low", "bought_high", "bought_over")
_SECONDS = ("seconds_train", "seconds_attack")
_STATUSES = {
    Status.OK: "ok",
    Status.NOT_APPLICABLE: "not_applicable",
    Status.FAILED: "failed",
    Status.BROKEN_ATTACK: "broken",
}

Value = str | int | float | None


def summary_csv(settings: Sequence[Setting]) -> str:
    """Return the file's text. Means and standard deviations are over seeds; epsilons are the largest of all seeds.

    ``leak`` says on which grounds the attack is called a leak, ``clusters_needed`` how many clusters it takes at the
    least to show that it is none; ``bought`` the accuracy over the whole test set above that of ``bought_over``, the
    best setting that costs nothing. What did not apply stands last: mostly it is the most."""
    found = gains(settings, Labels.of(settings))
    rows = [_row(shared, leak) for s in settings if (shared := _shared(s, found)) for leak in s.leaks]
    rows.sort(key=lambda row: row["status"] == Status.NOT_APPLICABLE.value)
    return csv_text([_columns(), *(row.values() for row in rows)])


def _columns() -> list[str]:
    return [
        *_NAMES, *_OBSERVED, "status", "reason", "seeds", *_STATUSES.values(),
        *_ACCURACIES,
        "targets", "metric", *(f"{c}_{kind}" for c in _WITH_SD for kind in ("mean", "sd")),
        "advantage", "advantage_low", "advantage_high", "interval", "advantage_worst_seed",
        *_MEANS, *_LARGEST, *_TEXTS, *_COSTS, *_SECONDS, "device", "cells",
        "worst_client", "leak", "clusters", "clusters_needed",
        "chance", *_BOUGHT, "control_class", "dataset_args", "unique_exact",
    ]  # fmt: skip


def _shared(setting: Setting, found: Mapping[str, Bought]) -> dict[str, Value]:
    """Return the columns that all rows of a setting have in common."""
    row: dict[str, Value] = {}
    for column in ("accuracy", "accuracy_global"):
        values = setting.per_seed(column)
        row |= {f"{column}_mean": mean(values), f"{column}_sd": sd(values)}
    row |= {column: setting.largest(column) for column in _LARGEST}
    row |= {column: setting.text(column) for column in (*_TEXTS, "device")}
    gain = found.get(setting.key)
    bought = (None,) * 4 if gain is None else (gain.gain, gain.low, gain.high, gain.control)
    row |= {"chance": chance(setting), **dict(zip(_BOUGHT, bought, strict=True))}
    return row | {column: mean(setting.per_seed(column)) for column in (*_COSTS, "seconds_train")}


def _row(shared: dict[str, Value], leak: Leak) -> dict[str, Value]:
    first = leak.findings[0]
    row: dict[str, Value] = {column: getattr(first, column) for column in (*_NAMES, *_OBSERVED)}
    row |= {"status": leak.status.value, "reason": " | ".join(leak.reasons)}
    row["seeds"] = " ".join(str(finding.seed) for finding in leak.findings)
    row |= {name: leak.count(status) for status, name in _STATUSES.items()}
    row |= {name: shared[name] for name in _ACCURACIES}
    row |= {"targets": sum(finding.targets or 0 for finding in leak.scored) or None, "metric": leak.metric}
    for column in _WITH_SD:
        row |= {f"{column}_mean": leak.mean(column), f"{column}_sd": sd(leak.values(column))}
    row |= {
        "advantage": leak.advantage,
        "advantage_low": leak.low,
        "advantage_high": leak.high,
        "interval": leak.interval,
    }
    row["advantage_worst_seed"] = max(leak.values("advantage"), default=None)
    row |= {column: leak.mean(column) for column in _MEANS}
    row |= {column: shared[column] for column in (*_LARGEST, *_TEXTS, *_COSTS, "seconds_train")}
    row |= {"seconds_attack": leak.mean("seconds_attack"), "device": shared["device"]}
    row["cells"] = " ".join(finding.cell for finding in leak.findings)
    needs = leak.needs
    row |= {"worst_client": leak.worst_client, "leak": ", ".join(leak.grounds)}
    row |= {"clusters": None if needs is None else needs.has}
    row |= {"clusters_needed": None if needs is None else needs.need}
    row |= {column: shared[column] for column in ("chance", *_BOUGHT)}
    row |= {"control_class": leak.mean("control_class"), "dataset_args": first.dataset_args}
    row["unique_exact"] = leak.mean("unique_exact")
    assert list(row) == _columns()
    return row
