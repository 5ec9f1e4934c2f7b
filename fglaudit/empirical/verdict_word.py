"""The word that follows from audits: verified, claimed, refuted or none (rule 12)."""

from __future__ import annotations

from collections.abc import Sequence

from fglaudit.empirical.audits.counts import LARGER
from fglaudit.empirical.audits.trade_off import ENOUGH
from fglaudit.guarantees import Audit, AuditName, Outcome, Verdict, Word, exceeded
from fglaudit.interfaces import Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation

_OF_SEALS = (
    AuditName.SEALED,
    AuditName.FRESH_CIPHERTEXTS,
    AuditName.BESIDE_CIPHERTEXTS,
    AuditName.KEY_MATERIAL,
    AuditName.MASKS,
    AuditName.COALITIONS,
)
_SPEAK_AGAINST_ALONE = (
    AuditName.RELEASES,  # nothing can be counted where nothing was accounted, and then nothing is verified
    AuditName.TRADE_OFF,  # it must have power besides, see below
    AuditName.DISTINGUISHER,
    AuditName.PLANTED_ROWS,
    AuditName.WHOLE_TRAINING,
)
"""Audits that may refute, and that verify nothing: where they could not be run, a guarantee may be verified all the
same. Of any other one that is there, a new one too, it may not."""
_NEEDED = frozenset(AuditName).difference(_SPEAK_AGAINST_ALONE)
_NEEDED_SEALED = frozenset((AuditName.FACTS, *_OF_SEALS))
"""The same where no epsilon is promised."""
_WORST_FIRST = (Outcome.REFUTED, Outcome.UNTESTED, Outcome.PASSED)


def verdict_of(
    promise: Guarantee,
    accounted: Accounted | str,
    audits: Sequence[Audit],
    *,
    shortened: str = "",
    left: Sequence[str] = (),
    sealed: Sequence[str] = (),
) -> Verdict:
    """Return the verdict that follows from ``audits``.

    Args:
        shortened: why the audits could not refute anything, where they were cut short; else empty.
        left: what moves with a record and is not covered by the promise.
        sealed: payloads that travel sealed.
    """
    audits = merged(audits)
    word, reason = _word(promise, accounted, audits, shortened)
    own = accounted.epsilon if isinstance(accounted, Accounted) else None
    claimed = _claimed(promise, own)
    if word is Word.VERIFIED and own is not None and claimed is not None and claimed * LARGER < own:
        reason = f"{reason}; not verified: epsilon {claimed:.4g}, its author's number, which is too small for all of it"
    return Verdict(
        word=word,
        reason=reason,
        epsilon=own,
        claimed=claimed,
        delta=promise.delta,
        unit=promise.unit,
        adjacency=promise.adjacency,
        covers=tuple(part.payload for part in accounted.mechanisms)
        if isinstance(accounted, Accounted)
        else tuple(sealed),
        not_covered=_not_covered(promise, left),
        audits=tuple(audits),
        mu=accounted.mu if isinstance(accounted, Accounted) else None,
        relation="" if promise.relation is None else promise.relation.value,
    )


def _word(promise: Guarantee, accounted: Accounted | str, audits: Sequence[Audit], shortened: str) -> tuple[Word, str]:
    against = next((audit for audit in audits if audit.outcome is Outcome.REFUTED), None)
    if against is not None:
        return Word.REFUTED, against.detail
    curve = next((audit for audit in audits if audit.name is AuditName.TRADE_OFF), None)
    measured = None if curve is None or curve.measured is None else curve.measured.epsilon
    if isinstance(accounted, Accounted) and (why := exceeded(measured, accounted.epsilon)):
        return Word.REFUTED, why  # a bound of its own, on other thresholds than the test of the curve
    needed = _NEEDED_SEALED if promise.seals_alone else _NEEDED
    open_ = next((a for a in audits if a.outcome is Outcome.UNTESTED and a.name in needed), None)
    if open_ is not None:
        return Word.CLAIMED, open_.detail
    if promise.seals_alone:
        return _word_of_seals(audits, shortened)
    if isinstance(accounted, str):
        return Word.CLAIMED, f"no epsilon could be accounted: {accounted}"
    if shortened:
        return Word.CLAIMED, shortened
    if curve is None or curve.outcome is not Outcome.PASSED:
        return Word.CLAIMED, "the trade-off curve was not tested" + (f": {curve.detail}" if curve else "")
    if curve.power is None or curve.power < ENOUGH:
        power = "unknown" if curve.power is None else f"{curve.power:.2f}"
        return Word.CLAIMED, f"noise too small by 1.5 would have been seen with probability {power} alone"
    return Word.VERIFIED, (
        f"epsilon {accounted.epsilon:.4g} accounted by this tool from facts and releases counted, and"
        f" {sum(a.outcome is Outcome.PASSED for a in audits)} audits saw no break; noise too small by 1.5 would have"
        f" been seen with probability {curve.power:.2f}"
    )


def _word_of_seals(audits: Sequence[Audit], shortened: str) -> tuple[Word, str]:
    """Return the word where all that is promised is that the server cannot read what travels sealed."""
    if shortened:
        return Word.CLAIMED, shortened
    passed = {audit.name: audit for audit in audits if audit.outcome is Outcome.PASSED}
    if AuditName.SEALED not in passed:
        return Word.CLAIMED, "what travels sealed was not tested"
    tried = ", ".join(name for name in _OF_SEALS if name in passed)
    return Word.VERIFIED, f"{passed[AuditName.SEALED].detail}; audits that saw no break: {tried}"


def merged(audits: Sequence[Audit]) -> tuple[Audit, ...]:
    """Return the audits with one of each name: of several looks at one thing the worst outcome counts.

    Its p-value is the smallest, times the number of looks that have one; details are those of the looks with that
    outcome.
    """
    by_name: dict[AuditName, list[Audit]] = {}
    for audit in audits:
        by_name.setdefault(audit.name, []).append(audit)
    return tuple(_one_of(looks) for looks in by_name.values())


def _one_of(looks: Sequence[Audit]) -> Audit:
    if len(looks) == 1:
        return looks[0]
    outcome = next(o for o in _WORST_FIRST if any(look.outcome is o for look in looks))
    p_values = [look.p_value for look in looks if look.p_value is not None]
    powers = [look.power for look in looks if look.power is not None]
    largest = [look.largest_epsilon for look in looks if look.largest_epsilon is not None]
    return Audit(
        looks[0].name,
        outcome,
        "; ".join(dict.fromkeys(look.detail for look in looks if look.outcome is outcome)),
        min(1.0, len(p_values) * min(p_values)) if p_values else None,
        min(powers, default=None),
        min(largest, default=None),
        next((look.measured for look in looks if look.measured is not None), None),
    )


def _claimed(promise: Guarantee, own: float | None) -> float | None:
    """Return the author's epsilon; of two the larger where this tool has none of its own."""
    stated = [e for e in (promise.epsilon_claimed, promise.epsilon_accounted) if e is not None]
    if not stated:
        return None
    return max(stated) if own is None else stated[0]


def _not_covered(promise: Guarantee, left: Sequence[str]) -> str:
    """Return what the guarantee is not about, in a sentence."""
    private_edges = promise.relation is Relation.ADD_OR_REMOVE
    public = ["edges", "whose records there are"] if promise.labels else ["labels", "edges", "whose records there are"]
    parts = [] if private_edges or promise.seals_alone else public
    parts += ["whoever holds a key", "what totals that are opened tell"] if promise.seals_alone else []
    parts += dict.fromkeys(left)
    parts += ["the server, which is trusted"] if promise.server_trusted else []
    parts += [f"more than {promise.coalition} clients together"] if promise.coalition is not None else []
    return "Not covered: " + ", ".join(parts) if parts else ""
