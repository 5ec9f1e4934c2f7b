"""What one attack got, and how sure that is, in plain words."""

from __future__ import annotations

from fglaudit.reports.leaks import NEGLIGIBLE, Leak
from fglaudit.reports.numbers import count, decimal, plural
from fglaudit.reports.wording.names import metric_name, reading
from fglaudit.scoring.clusters import TOO_FEW


def outcome_words(leak: Leak) -> str:
    """What the attack achieved beside what a guess achieves, e.g. ``rebuilds 63 % of ... exactly (a guess: 0 %)``."""
    metric = leak.metric
    value, control = reading(metric, leak.mean("value")), reading(metric, leak.mean("control"))
    inferred = {
        "labels": f"infers {value} of the labels it was not given",
        "label-distributions": f"infers how other clients' labels are distributed with an overlap of {value}",
        "edges": f"tells neighbours from other pairs of nodes with AUC {value}",
        "node-owner": f"tells which client holds a known node with AUC {value}",
        "linkage": f"would recognise a client's messages if senders were hidden, with AUC {value}",
        "client-similarity": f"tells which clients have alike labels with AUC {value}",
        "global-nodes": f"takes the noise off the clients' global nodes up to a cosine of {value}",
        "centroids": f"rebuilds the mean rows of the clients' clusters with a cosine of {value}",
        "neighboring-clients": f"tells which clients hold a neighbour of a node with AUC {value}",
        "attributes": f"tells high from low entries of sensitive columns with AUC {value}",
        "training-membership": f"tells training nodes from others with AUC {value}",
        "l1-norms": _norms("sums", metric, value),
        "training-labels": f"infers how labels of training nodes are distributed with an overlap of {value}",
        "layer-inputs": _unplaced("the rows that clients' first layers read", metric, value),
        "layer-words": _unplaced("the words of the rows that clients' first layers read", metric, value),
        "held-rows": _unplaced("the feature rows that other clients hold", metric, value),
        "squared-norms": _norms("norms", metric, value),
    }
    if leak.quantity in inferred:
        return f"{inferred[leak.quantity]} (a guess: {control})"
    rows = _rows_at_stake(leak.observer[0])
    verbs = {
        "exact_rate": f"rebuilds {value} of {rows} exactly",
        "matched_rate": f"rebuilds {value} of {rows} exactly, if rows are assigned to nodes by hindsight",
        "f1": f"recovers the non-zero features of {rows} with F1 {value}",
        "auc": f"tells non-zero features of {rows} from zeros with AUC {value}",
        "cosine": f"rebuilds {rows} with a mean cosine of {value}",
        "direction_rate": f"finds {value} of {rows} up to a factor",
        "tpr_at_fpr_1": f"finds {value} of the members at 1 % false alarms",
    }
    class_alone = leak.mean("control_class")
    told = (
        ""
        if class_alone is None
        else f"; one that is told the class each node predicts: {reading(metric, class_alone)}"
    )
    return f"{verbs.get(metric, f'reaches {metric} {value}')} (a guess: {control}{told})"


def _norms(which: str, metric: str, value: str) -> str:
    if metric == "ratio":
        return (
            f"estimates the {which} of feature rows, with a mean ratio of {value} of the smaller to the larger number"
        )
    return f"reads off the {which} of {value} of the feature rows"


def _unplaced(rows: str, metric: str, value: str) -> str:
    if metric == "cosine":
        return f"rebuilds {rows} with a mean cosine of {value}"
    return f"rebuilds {value} of {rows}, up to a factor"


def _rows_at_stake(parties: str) -> str:
    if "client:" not in parties:
        return "the clients\N{RIGHT SINGLE QUOTATION MARK} feature rows"
    return "the feature rows of other clients that reach it in messages"


def interval_words(leak: Leak) -> str:
    """Advantage with its interval, and what kind of interval it is."""
    if leak.low is None or leak.high is None:
        return f"{_advantage(leak)}, no interval"
    kind = "95 % interval" if leak.estimate.shown else f"{TOO_FEW} for an interval, range"
    return f"{_advantage(leak)}, {kind} {decimal(leak.low)} to {decimal(leak.high)}"


def _advantage(leak: Leak) -> str:
    """The advantage and the metric that it is one in: figures of others stand beside it."""
    return f"advantage in {metric_name(leak.metric)} {decimal(leak.advantage)}"


def parties_words(leak: Leak) -> str:
    """How many clusters a leak rests on, and how many it takes at the least for an upper end that is negligible."""
    needs = leak.needs
    if needs is None:
        return ""
    has = f"{plural(needs.has, 'cluster')} (clients x seeds)"
    if (leak.advantage or 0.0) > NEGLIGIBLE:  # nothing will show that nothing leaks
        return has
    return f"{has}; to show that nothing leaks it takes {count(needs.need)} at least"


def shortage_words(leak: Leak) -> str:
    """What would bring the upper end of a leak without a hit down to what counts as nothing."""
    needs = leak.needs
    if needs is None or not needs.too_few:
        return ""
    has = f"{plural(needs.has, 'cluster')}, and an upper end of {NEGLIGIBLE:g} takes {count(needs.need)} at least"
    if needs.seeds is None:
        return f"{has}; further seeds bring no further clients"
    return f"{has}; {plural(needs.seeds, 'seed')} would do"
