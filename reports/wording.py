"""Observers, metrics, defenses and leaks in plain words.

The word "private" appears in one place, :func:`assurance`, and only where an epsilon was accounted.
"""

from __future__ import annotations

import math

from fglaudit import registry
from fglaudit.guarantees import Word, empty
from fglaudit.interfaces import SERVER_TRUSTED
from fglaudit.reports.leaks import NEGLIGIBLE, Leak
from fglaudit.reports.numbers import count, decimal, epsilon, percent, plural
from fglaudit.reports.summary import Setting
from fglaudit.scoring.clusters import TOO_FEW

METRICS = {
    "exact_rate": (
        "share of targets whose feature row is rebuilt exactly and assigned to the right node by the attack itself"
    ),
    "matched_rate": "the same, with rows assigned to nodes by hindsight: an upper figure",
    "f1": "F1 of the non-zero features, averaged over targets",
    "auc": (
        "chance that a true case is ranked above a false one: of rows a non-zero feature above a zero one, of linkage"
        " two messages of one client above two of different ones; 0.5 is a coin flip"
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
    "membership": "membership", "linkage": "linkage", "global-nodes": "global nodes",
    "centroids": "mean rows of clusters", "neighboring-clients": "clients of neighbours",
    "l1-norms": "row sums", "squared-norms": "row norms", "training-membership": "membership in training",
    "layer-inputs": "inputs of first layers", "layer-words": "words that first layers read", "held-rows": "rows held",
    "training-labels": "labels of training nodes", "attributes": "sensitive attributes",
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


def observer_label(observer: tuple[str, str]) -> str:
    """Short name of (parties, knowledge) for columns and legends."""
    parties, knowledge = observer
    who = _parties(parties)
    extra = (
        knowledge.replace("_", " ")
        .replace(";", ", ")
        .replace("no-degrees", "no degrees")
        .replace("auxiliary=", "auxiliary ")
    )
    return f"{who} ({extra})" if extra else who


def _parties(parties: str) -> str:
    names = [p for p in parties.split("+") if p]
    if not names:
        return "No observer"
    clients = [p.removeprefix("client:") for p in names if p.startswith("client:")]
    rest = ["wiretap" if p == "wire" else p for p in names if not p.startswith("client:")]
    words = []
    if clients == ["each"]:
        words.append("one client")
    elif len(clients) == 1:
        words.append(f"client {clients[0]}")
    elif clients:
        named = ["each of the others" if c == "each" else c for c in clients]
        words.append(f"clients {', '.join(named[:-1])} and {named[-1]}")
    text = " + ".join([*rest, *words])
    return text[:1].upper() + text[1:]


def observer_subject(observer: tuple[str, str]) -> str:
    """The observer as the subject of a sentence about what it does."""
    label = observer_label(observer)
    if "+" in observer[0]:
        return f"The coalition of {label[:1].lower()}{label[1:]}"
    first, space, rest = label.partition(" ")
    return {"Server": "The server", "Wiretap": "A wiretap"}.get(first, first) + space + rest


def threat_model(observer: tuple[str, str]) -> str:
    """The threat model in full sentences: who, what is seen, what is known beforehand."""
    parties, knowledge = observer
    names = [p for p in parties.split("+") if p]
    has_server, clients = "server" in names, [p for p in names if p.startswith("client:")]
    if names == ["wire"]:
        sees = "Somebody who reads the network: every message as it is sent, and the data of no party."
    elif "wire" in names:
        who = "One client, every client in turn," if clients == ["client:each"] else _parties("+".join(clients))
        sees = f"{who} and somebody who reads the network: every message as it is sent, read with the clients' keys."
    elif clients and has_server:
        who = "one client, every client in turn," if clients == ["client:each"] else _parties("+".join(clients)).lower()
        sees = f"The server and {who} put together all they receive and send, and what the client side holds itself."
    elif has_server:
        sees = "The server alone: every message that it receives or sends. It owns no data."
    elif clients == ["client:each"]:
        sees = (
            "One client alone: its own rows, edges and labels, and every message that it receives or sends. "
            "Every client is tried in turn and the results are pooled."
        )
    elif len(clients) == 1:
        sees = (
            f"{_parties(parties)} alone: its own rows, edges and labels, and every message that it receives or sends."
        )
    elif clients:
        sees = (
            f"{_parties(parties)} collude: they put together their own data and every message that they receive or"
            " send."
        )
    else:
        sees = "No observer was set up, because the cell ended before."
    return f"{sees} {_known(knowledge, bool(clients))}".strip()


def _known(knowledge: str, owns_data: bool) -> str:
    words = [w for w in knowledge.split(";") if w]
    facts = {
        "topology": "every edge of the graph",
        "initial_weights": "the first model",
        "degrees": "the degree of every node",
    }
    known = [facts[w] for w in words if w in facts]
    known += [
        f"features and labels of {percent(float(w.partition('=')[2]))} of all nodes (not counted as targets)"
        for w in words
        if w.startswith("auxiliary=")
    ]
    known += [
        f"in half of these not the sensitive columns {w.partition('=')[2].replace('+', ', ')}"
        for w in words
        if w.startswith("sensitive=")
    ]
    said = ("auxiliary=", "sensitive=")
    other = [w for w in words if w not in facts and w != "no-degrees" and not w.startswith(said)]
    if owns_data and "degrees" not in words and "topology" not in words:
        if "no-degrees" in words:
            other.append("but not the degrees of its neighbours at other clients")
        else:
            known.append("the degrees of its neighbours at other clients")
    return f"Knows beforehand: {', '.join([*known, *other])}." if known or other else "Knows nothing else beforehand."


def reading(metric: str, value: float | None) -> str:
    """A value of ``metric``: rates in percent, others as decimals."""
    return percent(value) if metric in _SHARES or metric.endswith("_rate") else decimal(value)


def deed(leak: Leak) -> str:
    """What the attack achieved beside what a guess achieves, e.g. ``rebuilds 63 % of ... exactly (a guess: 0 %)``."""
    metric = leak.metric
    value, control = reading(metric, leak.mean("value")), reading(metric, leak.mean("control"))
    inferred = {
        "labels": f"infers {value} of the labels it was not given",
        "label-distributions": f"infers how other clients' labels are distributed with an overlap of {value}",
        "edges": f"tells neighbours from other pairs of nodes with AUC {value}",
        "membership": f"tells which client holds a known node with AUC {value}",
        "linkage": f"recognises a client's messages under changing pseudonyms with AUC {value}",
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
        return f"advantage {decimal(leak.advantage)}, no interval"
    kind = "95 % interval" if leak.estimate.shown else f"{TOO_FEW} for an interval, range"
    return f"advantage {decimal(leak.advantage)}, {kind} {decimal(leak.low)} to {decimal(leak.high)}"


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


def defense_words(name: str) -> str:
    """What a defense does, in a sentence or two."""
    if name in _DEFENSES:
        return _DEFENSES[name]
    if name in registry.names("defense"):
        return registry.summary("defense", name)
    return f"See the defense's own description: fglaudit show {name}."


PUBLIC_SEED = "Public seed: the noise protects nobody who knows it (fglaudit run --secret draws it with a secret key)."


def public_seed(setting: Setting) -> bool:
    """Whether an epsilon was accounted for noise that anybody who knows the suite can draw again."""
    secret = all(record.description.get("secret") is True for record in setting.records)
    return setting.largest("epsilon_accounted") is not None and not secret


def assurance(setting: Setting) -> str:
    """What may be said on the ground of a stated epsilon; empty where none is stated."""
    claimed, accounted = setting.largest("epsilon_claimed"), setting.largest("epsilon_accounted")
    if setting.contradicted:
        return (
            f"The accounted epsilon {epsilon(accounted)} is below what an attack demonstrated: it shows at least "
            f"{epsilon(setting.largest('epsilon_empirical'))}. A bug in the defense or its accounting. No assurance."
        )
    if accounted is None and claimed is None:
        return ""
    judged = [record.verdict for record in setting.records if record.verdict is not None]
    if (against := next((v for v in judged if v.word is Word.REFUTED), None)) is not None:
        return f"Refuted: {against.reason}. No assurance."
    if (unproven := next((v for v in judged if v.word is Word.CLAIMED), None)) is not None:
        return f"Claimed by its author, not verified: {unproven.reason}. No assurance."
    if accounted is None:
        return f"Claims ε = {epsilon(claimed)}, but no epsilon could be accounted for the whole training: no assurance."
    if not math.isfinite(accounted):
        return "The accounted epsilon is infinite: no assurance."
    delta = setting.largest("delta") or 0.0
    facts = (
        f"accounted ε = {epsilon(accounted)}, δ = {delta:g}; unit: {setting.text('privacy_unit') or 'not stated'}; "
        f"mechanism: {setting.text('mechanism') or 'not stated'}."
    )
    reach = "clients are sent" if SERVER_TRUSTED in setting.text("mechanism") else "is sent"
    if why := empty(accounted, delta, max((record.nodes for record in setting.records), default=0)):
        return f"Stated, with {facts} {why[:1].upper()}{why[1:]}: no assurance."
    verified = any(verdict.word is Word.VERIFIED for verdict in judged)
    whom = "To whoever does not know the public seed, all" if public_seed(setting) else "All"
    return (
        f"{'Verified: d' if verified else 'D'}ifferentially private with {facts} {whom} that {reach} may change"
        " anybody's odds about one such record by a factor of at most"
        f" {count(math.ceil(math.exp(accounted)))}{f', except with probability {delta:g}' if delta else ''}."
    )
