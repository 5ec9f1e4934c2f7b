"""What a stated epsilon is worth in words. "Private" is said here alone, and only where an epsilon was accounted."""

from __future__ import annotations

import math

from fglaudit.guarantees import Word, empty
from fglaudit.interfaces import SERVER_TRUSTED
from fglaudit.reports.numbers import count, epsilon
from fglaudit.reports.summary import Setting

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
