"""Releases counted on the wire beside those stated, and the epsilon accounted beside the author's."""

from __future__ import annotations

from fglaudit.context import Context
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import ModelUpdate
from fglaudit.privacy.accounted import Accounted, Noised
from fglaudit.privacy.counted import Counted

LARGER = 1 + 1e-3
"""An epsilon that is larger by more than that contradicts the one stated."""


def releases_audit(context: Context, promise: Guarantee, accounted: Accounted | str, counted: Counted) -> Audit:
    """Return whether more was released than the protocol and the guarantee state; fewer are a note."""
    name = AuditName.RELEASES
    if not isinstance(accounted, Accounted):
        return Audit(name, Outcome.UNTESTED, "no mechanism was accounted whose releases could be counted")
    words = []
    for part in accounted.mechanisms:
        seen, stated = _seen(context, part, counted), _stated(context, part)
        if promise.releases is not None and promise.releases < seen:
            stated = min(stated, promise.releases)
        words.append(f"{part.payload}: {seen} of {stated} stated")
        if seen > stated:
            return Audit(name, Outcome.REFUTED, f"{part.payload} was released {seen} times, and {stated} are stated")
    return Audit(name, Outcome.PASSED, "releases counted: " + ", ".join(words))


def epsilon_audits(promise: Guarantee, accounted: Accounted | str) -> tuple[Audit, ...]:
    """Return whether the author's epsilon is smaller than what facts and releases give; nothing where one is missing.

    A smaller one contradicts an exact epsilon. Where this tool has an upper bound, a better accountant may be right."""
    author = promise.epsilon_claimed if promise.epsilon_accounted is None else promise.epsilon_accounted
    if not isinstance(accounted, Accounted) or author is None:
        return ()
    words = f"its author states epsilon {author:.4g}; facts and releases counted give {accounted.epsilon:.4g}"
    if accounted.epsilon <= author * LARGER:
        return (Audit(AuditName.EPSILON, Outcome.PASSED, words),)
    if accounted.exact:
        return (Audit(AuditName.EPSILON, Outcome.REFUTED, words),)
    return (
        Audit(
            AuditName.EPSILON, Outcome.UNTESTED, f"{words}, which is an upper bound: a better accountant may have less"
        ),
    )


def _seen(context: Context, part: Noised, counted: Counted) -> int:
    if part.payload == "rows":
        return context.rows_per_node * max(counted.prepared, default=0)
    if part.payload == "gradients":
        losses = () if isinstance(context.examples, str) else context.examples.losses
        return counted.passes(losses) or 0
    sent = counted.of(part.payload, by_server=part.by_server)
    if part.payload == ModelUpdate.__name__ and part.by_server:
        return sent.messages - (1 if sent.first_round == 0 and sent.messages else 0)
    release = next((r for r in context.releases if r.payload.__name__ == part.payload), None)
    return sent.repeats if release is not None and not release.one_message else sent.messages


def _stated(context: Context, part: Noised) -> int:
    if part.payload == "rows":
        return context.rows_per_node
    if part.payload == "gradients":
        return 0 if isinstance(context.examples, str) else context.examples.passes
    release = next((r for r in context.releases if r.payload.__name__ == part.payload), None)
    return context.rounds if release is None else release.times
