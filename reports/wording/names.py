"""Metrics, quantities and defenses in plain words."""

from __future__ import annotations

from fglaudit import registry
from fglaudit.reports.numbers import decimal, percent

METRICS = {
    "exact_rate": (
        "share of targets whose feature row is rebuilt exactly and assigned to the right node by the attack itself"
    ),
    "matched_rate": "the same, with rows assigned to nodes by hindsight: an upper figure",
    "f1": "F1 of the non-zero features, averaged over targets",
    "auc": (
        "chance that a true case is ranked above a false one: of rows a non-zero feature above a zero one, of linkage"
        " two messages of one client above two of different ones, of client similarity two clients with alike labels"
        " above two others; 0.5 is a coin flip"
    ),
    "cosine": "mean cosine between rebuilt and true feature rows",
    "relative_error": "L2 error of the rebuilt row relative to the true row; lower is a stronger attack",
    "tpr_at_fpr_1": "share of members found when 1 % of the non-members are called members too",
    "tpr_at_fpr_1_low": "lower end of its 95 % interval",
    "tpr_at_fpr_1_high": "upper end of its 95 % interval",
    "tpr_at_fpr_01": "the same at 0.1 %, where there are at least 1000 non-members",
    "tv_error": "total variation distance between the inferred and the true distribution; lower is a stronger attack",
    "identifiable_rate": (
        "share of targets whose row is proven to be determined by linear and integer algebra alone: "
        "a floor of the leakage, never a ceiling"
    ),
    "worst_decile": "mean F1 of the tenth of the targets that are rebuilt best: the people who are exposed most",
    "worst_client": "the largest advantage at any one client: a mean may hide it",
    "label_accuracy": "share of nodes whose label is inferred rightly",
    "overlap": "overlap of the inferred with the true distribution of labels: one minus their total variation distance",
    "direction_rate": (
        "share of targets whose row is found up to a factor (cosine above 0.9999), whoever it was assigned to"
    ),
    "ratio": "ratio of the smaller to the larger of an inferred and the true number, averaged over targets",
    "control_class": "the attack's metric of a guess that is told the class that each node predicts, without noise",
    "claimed_rate": "rows that the attack asserts to be somebody's, per target",
    "false_claim_rate": "share of the asserted rows that are nobody's",
}
QUANTITY_NAMES = {
    "features": "feature rows", "labels": "labels", "label-distributions": "label distributions", "edges": "edges",
    "node-owner": "clients of nodes", "linkage": "linkage, if senders were hidden",
    "client-similarity": "clients with alike labels",
    "global-nodes": "global nodes", "centroids": "mean rows of clusters",
    "neighboring-clients": "clients of neighbours", "l1-norms": "row sums", "squared-norms": "row norms",
    "training-membership": "membership in training",
    "layer-inputs": "inputs of first layers", "layer-words": "words that first layers read",
    "held-rows": "rows of unnamed nodes", "training-labels": "labels of training nodes",
    "attributes": "sensitive attributes",
}  # fmt: skip
METRIC_NAMES = {
    "exact_rate": "exact rows", "matched_rate": "matched rows", "f1": "F1", "auc": "AUC", "cosine": "cosine",
    "relative_error": "relative error", "tpr_at_fpr_1": "TPR at 1 % FPR", "tv_error": "TV distance",
    "identifiable_rate": "proven", "worst_decile": "best-rebuilt tenth", "worst_client": "worst client",
    "targets": "targets", "tpr_at_fpr_01": "TPR at 0.1 % FPR",
    "tpr_at_fpr_1_low": "TPR at 1 % FPR, low", "tpr_at_fpr_1_high": "TPR at 1 % FPR, high",
    "control_exact_rate": "guess: exact rows", "label_accuracy": "labels right", "overlap": "overlap",
    "direction_rate": "directions", "claimed_rate": "claimed", "false_claim_rate": "false claims",
    "control_f1": "guess: F1", "control_auc": "guess: AUC", "control_cosine": "guess: cosine",
    "control_class": "told the class", "ratio": "ratio",
}  # fmt: skip
_SHARES = {
    "exact_rate",
    "matched_rate",
    "tpr_at_fpr_1",
    "tpr_at_fpr_1_low",
    "tpr_at_fpr_1_high",
    "tpr_at_fpr_01",
    "label_accuracy",
}

_DEFENSES = {
    "none": "Nothing is changed: every message leaves as the protocol computes it.",
    "drop-singletons": (
        "A node's only neighbour at another client is dropped before training, since a sum over one row is that "
        "row. Sums over two and more rows still leave."
    ),
    "gaussian": (
        "Feature rows are clipped and Gaussian noise is added to the messages named; the noise is calibrated to the "
        "joint sensitivity of all of them."
    ),
}


def quantity_name(quantity: str) -> str:
    return QUANTITY_NAMES.get(quantity, quantity)


def metric_name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric)


def reading(metric: str, value: float | None) -> str:
    """A value of ``metric``: rates in percent, others as decimals."""
    return percent(value) if metric in _SHARES or metric.endswith("_rate") else decimal(value)


def defense_words(name: str) -> str:
    """What a defense does, in a sentence or two."""
    if name in _DEFENSES:
        return _DEFENSES[name]
    if name in registry.names("defense"):
        return registry.summary("defense", name)
    return f"See the defense's own description: fglaudit show {name}."
