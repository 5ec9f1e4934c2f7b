"""On which metric the advantage of an attack on feature rows is computed."""

from __future__ import annotations

from collections.abc import Set

from fglaudit.facts import ROWS, Absent, Fact, Field, Sealed
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack
from fglaudit.structure import Attention, NoisyRows
from fglaudit.view import PublicFacts

_LEAVE_ROWS_WHOLE = (Absent, Sealed)
"""Facts about messages with which whole rows may still be rebuilt exactly; of rows there are none."""


def primary_metric(attack: Attack, kind: FeatureKind, public: PublicFacts) -> str:
    """Return the metric that the advantage is computed on: the attack's own, with three exceptions.

    Cosine stands for the rate of exact rows where the protocol takes the length of real-valued rows away before what
    the attack reads is computed: whoever has every row up to its factor would have none of them.

    Where rows or messages that the attack reads are altered (noise, the protocol's own too, clipping, rounding,
    features left out, whatever a plugin's own fact says), F1 stands for the rate of exact rows: that falls to nothing
    as soon as one entry of every row is wrong, long before the row is protected. And cosine stands for F1 where
    features are real-valued, since any dense guess finds all non-zero entries of dense rows.
    """
    metric = type(attack).metric
    if metric == "exact_rate" and kind is FeatureKind.REAL and _lengths_lost(attack, public):
        return "cosine"
    read = {payload.__name__ for payload in type(attack).reads()}
    altered = any(_alters(fact, read) for fact in public.facts) or _noisy_by_protocol(public, read)
    if metric == "exact_rate" and altered:
        metric = "f1"
    return "cosine" if metric == "f1" and kind is FeatureKind.REAL else metric


def _lengths_lost(attack: Attack, public: PublicFacts) -> bool:
    """Whether ``attack`` needs nothing but payloads that are made of rows scaled to norm at most 1."""
    stated = public.structure.get(Attention)
    if stated is None or stated.rows != "unit-ball":
        return False
    return bool(type(attack).consumes) and set(type(attack).consumes) <= set(Attention.payloads)


def _noisy_by_protocol(public: PublicFacts, read: Set[str]) -> bool:
    """Whether the protocol itself adds noise to rows that it sends in the payloads ``read``."""
    stated = public.structure.get(NoisyRows)
    return stated is not None and stated.std > 0 and any(payload.__name__ in read for payload in NoisyRows.payloads)


def _alters(fact: Fact, read: Set[str]) -> bool:
    """Whether ``fact`` changes entries of rows, or of the payloads ``read``."""
    if isinstance(fact.target, Field):
        return fact.target.payload in read and not isinstance(fact, _LEAVE_ROWS_WHOLE)
    return fact.target == ROWS
