"""The quantities that attacks infer, as policies and ``findings.csv`` name them, with the plain words of reports."""

from __future__ import annotations

from fglaudit import registry
from fglaudit.catalog.text import plain
from fglaudit.plugins.class_source import ClassSource, class_source
from fglaudit.quantities import QUANTITIES
from fglaudit.reports.attack_quantity import attack_quantity
from fglaudit.reports.wording.names import METRIC_NAMES, quantity_name

_ELSEWHERE = "See the module docstring"


def entries() -> dict[str, str]:
    """Return a line for every quantity: its plain words, and what is asked."""
    return {key: f'"{quantity_name(key)}" in reports. {_what(_source(key))}.' for key in QUANTITIES}


def explain(key: str) -> str:
    """Return what ``fglaudit show`` prints of the quantity ``key``."""
    source = _source(key)
    metric = source.constant("metric")
    docs = [doc for doc in (source.doc, source.module_doc) if not doc.startswith(_ELSEWHERE)]
    attacks = [name for name in registry.names("attack") if attack_quantity(name) == key]
    return "\n".join(
        [
            f'quantity {key}: "{quantity_name(key)}" in reports; a policy and the column quantity write {key}',
            "",
            *(line for doc in docs for line in (plain(doc), "")),
            f"metric: {metric} ({METRIC_NAMES.get(metric, metric)}), unless an attack names its own",
            f"inferred by: {', '.join(attacks) or 'no attack here'}",
        ]
    )


def _source(key: str) -> ClassSource:
    module, _, cls = QUANTITIES[key].partition(":")
    return class_source(module, cls)


def _what(source: ClassSource) -> str:
    """Return what is asked: what stands before the colon in the docstring, or all of its first sentence."""
    by_module = source.doc.startswith(_ELSEWHERE)
    first = plain(source.module_doc if by_module else source.doc).split("\n\n")[0].replace("\n", " ")
    return first.partition(": ")[0] if by_module else first.rstrip(".")
