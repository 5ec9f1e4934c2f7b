"""Is what a policy asks something that a run of this suite can show? If not, the policy is wrong, not the run."""

from __future__ import annotations

from fglaudit.errors import FglauditError, unknown
from fglaudit.execution.exit_code import ExitCode
from fglaudit.execution.folder.stored_run import Manifest
from fglaudit.finding import UNDEFENDED
from fglaudit.gate.check import Check
from fglaudit.gate.naming import name_all
from fglaudit.gate.policy import Epsilon, Policy
from fglaudit.gate.upper_ends import nothing_leaves
from fglaudit.reports.answers import Answer, AnswerWord
from fglaudit.reports.labels import Labels
from fglaudit.reports.records import Run
from fglaudit.scoring.clusters import MIN_CLUSTERS


def observer_names(observer: tuple[str, str]) -> tuple[str, ...]:
    """Return how a policy may name an observer: by its parties, which means every knowledge of it, or with its
    knowledge in brackets, e.g. ``client:each (no-degrees)``."""
    parties, knowledge = observer
    return (parties, f"{parties} ({knowledge})") if knowledge else (parties,)


def check_askable(policy: Policy, run: Run, manifest: Manifest, answers: list[Answer]) -> list[Check]:
    """Raise :class:`FglauditError` for the first thing that no run of this suite can show.

    Where something that is asked leaks too, return it as a check that is broken instead: the exit code is the same,
    and an error alone would say nothing of the leak.
    """
    broken: list[Check] = []
    planned = {(observer, knowledge) for cell in manifest.plan for observer, knowledge, _ in cell.rows}
    known = [name for observer in sorted(planned) for name in observer_names(observer)]
    leaking = any(_asked(policy, answer) and answer.word is AnswerWord.LEAKS for answer in answers)
    for name in (*policy.observers, *(policy.epsilon.against if policy.epsilon else ())):
        if name not in known:
            key = "observers" if name in policy.observers else "epsilon.against"
            raise FglauditError(f"{key}: {unknown('observer of this run', name, known)}")
    for name, quantities in policy.observers.items():
        here = [answer for answer in answers if name in observer_names(answer.observer)]
        tried = {answer.quantity for answer in here}
        for quantity in quantities:
            if quantity not in tried:
                raise FglauditError(
                    f"observers.{name}: {unknown('quantity that an attack of this suite infers', quantity, tried)}"
                )
        if idle := [a for a in here if a.quantity in quantities and _nobody_to_ask(a)]:
            asked = f"observers.{name}.{idle[0].quantity}"
            got = (
                f"{len(idle)} in which no node's row can be asked of this observer"
                f" ({name_all([a.setting for a in idle], Labels.of([a.setting for a in answers]))}), so that no attack"
                " can show anything; ask about something else (layer-words: what uploads say of rows), or take them"
                " out of the suite"
            )
            if not leaking:
                raise FglauditError(f"{asked}: a policy is about every setting of the run; got {got}")
            broken.append(Check(asked, "what can be asked in every setting of the run", got, False, ExitCode.INPUT))
        if most := _too_few(here):
            raise FglauditError(
                f"observers.{name}: an upper end needs at least {MIN_CLUSTERS} clients x seeds; no setting of this"
                f" suite has more than {most}; give it more clients or seeds"
            )
    if policy.epsilon is not None:
        _check_guarantee_askable(policy.epsilon, run, manifest)
    return broken


def _check_guarantee_askable(asked: Epsilon, run: Run, manifest: Manifest) -> None:
    if all(cell.columns["defense"] == UNDEFENDED for cell in manifest.plan):
        raise FglauditError("epsilon: a guarantee needs a defense; no cell of this suite has one; drop epsilon")
    units = {row.privacy_unit for cell in run.cells for row in cell.findings if row.privacy_unit}
    if units and asked.unit not in units:
        raise FglauditError(f"epsilon.unit: {unknown('unit of a guarantee of this run', asked.unit, sorted(units))}")


def _asked(policy: Policy, answer: Answer) -> bool:
    names = observer_names(answer.observer)
    return any(name in names and answer.quantity in wanted for name, wanted in policy.observers.items())


def _nobody_to_ask(answer: Answer) -> bool:
    """Whether there is nobody of whom the observer could be asked, though data leave: no other seed changes that."""
    return answer.asks_nobody and not nothing_leaves(answer.setting)


def _too_few(answers: list[Answer]) -> int:
    """Return the most clients x seeds of any setting where that is too few for any interval; else 0."""
    most = max((answer.setting.first.clients * len(answer.setting.seeds) for answer in answers), default=0)
    return most if 0 < most < MIN_CLUSTERS else 0
