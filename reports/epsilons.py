"""The three epsilons of a setting - claimed, accounted, empirical - with the word for its guarantee, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.guarantees import MeasuredCurve, Verdict, Word, empty
from fglaudit.reports.alarms import refuted
from fglaudit.reports.answers import applies
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import MISSING, epsilon, few
from fglaudit.reports.summary import Setting
from fglaudit.reports.sweeps import named
from fglaudit.reports.wording.assurance import assurance

NOT_JUDGED = "not judged"
NOT_COVERED = (
    "Not covered unless it says so: labels, edges and degrees, which nodes exist, and which client holds them."
)
_GRAVEST = (Word.REFUTED, Word.CLAIMED, Word.NONE, Word.VERIFIED)
_ORDER = [*(word.value for word in _GRAVEST), NOT_JUDGED]


@dataclass(frozen=True)
class Epsilons:
    """Attributes:
    claimed: by the defense's authors; ``accounted`` by this tool; ``empirical`` is a lower bound from attacks.
    word: verified, claimed, refuted, none, or "not judged"; of several seeds the gravest.
    why: in sentences. ``not_covered``: what the guarantee does not protect, in one.
    mu: of all releases together, where all noise is Gaussian. ``curve``: the measured trade-off curve.
    """

    setting: str
    claimed: float | None
    accounted: float | None
    empirical: float | None
    delta: float | None
    unit: str
    word: str
    why: str
    not_covered: str
    audits: tuple[str, ...] = ()
    mu: float | None = None
    curve: MeasuredCurve | None = None


def epsilon_rows(settings: Sequence[Setting], labels: Labels) -> list[Epsilons]:
    """Return a row per setting for which anything is promised."""
    rows = []
    for setting in settings:
        if not applies(setting):
            continue
        found = tuple(setting.largest(f"epsilon_{kind}") for kind in ("claimed", "accounted", "empirical"))
        judged = _verdict(setting)
        if not any(value is not None for value in found) and (judged is None or judged.word is Word.NONE):
            continue
        claimed, accounted, empirical = found
        word = guarantee_word(setting)
        reason, said = judged.reason if judged else "", assurance(setting)
        why = said if reason in said else f"{reason} {said}".strip()
        audits = judged.audits if judged else ()
        rows.append(
            Epsilons(
                setting=labels.placed(setting),
                claimed=judged.claimed if claimed is None and judged else claimed,
                accounted=judged.epsilon if accounted is None and judged else accounted,
                empirical=empirical,
                delta=setting.largest("delta"),
                unit=setting.text("privacy_unit"),
                word=word,
                why=why,
                not_covered=(judged.not_covered if judged else "") or NOT_COVERED,
                audits=tuple(f"{audit.name}: {audit.outcome.value}. {audit.detail}" for audit in audits),
                mu=judged.mu if judged else None,
                curve=judged.measured if judged else None,
            )
        )
    return rows


def accounted_words(setting: Setting) -> str:
    """Return the accounted epsilon and whether it may be believed, e.g. ``8 (verified)``: a number alone reads as if
    it were."""
    text = epsilon(setting.largest("epsilon_accounted"))
    return text if text == MISSING else f"{text} ({guarantee_word(setting)})"


def epsilon_notes(settings: Sequence[Setting], labels: Labels) -> list[str]:
    """Return a sentence per word, the gravest first, that names the settings with such an epsilon."""
    said: dict[str, list[Setting]] = {}
    for setting in sorted(settings, key=lambda s: _ORDER.index(guarantee_word(s))):
        if applies(setting) and _promises(setting):
            said.setdefault(_believed(setting), []).append(setting)
    return [
        f"epsilon {words}: {few([each.name for each in named(mine, labels.setting)], 6, '; ')}"
        for words, mine in said.items()
    ]


def _believed(setting: Setting) -> str:
    """Return whether an epsilon may be believed, and whether that says anything."""
    word = guarantee_word(setting)
    if word == Word.VERIFIED.value:
        nodes = max((record.nodes for record in setting.records), default=0)
        why = empty(setting.largest("epsilon_accounted") or 0.0, setting.largest("delta") or 0.0, nodes)
        return f"{word}, yet {why}" if why else word
    return "claimed, not verified (the report says why)" if word == Word.CLAIMED.value else word


def _promises(setting: Setting) -> bool:
    return any(setting.largest(f"epsilon_{kind}") is not None for kind in ("accounted", "claimed"))


def guarantee_word(setting: Setting) -> str:
    """Return the word for the guarantee, the gravest of all seeds."""
    if refuted(setting):
        return Word.REFUTED.value
    judged = _verdict(setting)
    if judged is not None:
        return judged.word.value
    words = {finding.guarantee for finding in setting.findings}
    return next((word.value for word in _GRAVEST if word.value in words), NOT_JUDGED)


def _verdict(setting: Setting) -> Verdict | None:
    found = [record.verdict for record in setting.records if record.verdict is not None]
    return min(found, key=lambda verdict: _GRAVEST.index(verdict.word), default=None)
