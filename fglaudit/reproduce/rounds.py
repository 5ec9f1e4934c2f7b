"""Rows of one round of a training, of which the papers' curves are made.

A setting that ends in ``round=50`` asks for what there was after 50 rounds, one that ends in ``update=500`` for the
round in which every client had made 500 local steps. Rows that follow one another share one training
(:func:`fglaudit.reproduce.trainings.trained`).
"""

from __future__ import annotations

from dataclasses import replace

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Trained
from fglaudit.reproduce.published import Published

ROUND, UPDATE = "round", "update"
SERIES = {"training-loss": "training_loss", "validation-loss": "validation_loss"}
"""By metric of a row the name in ``Trained.series``."""


def numbers(setting: str) -> dict[str, float | int]:
    """Return the numbers that ``setting`` names after its first part, in its order, e.g. ``iid, degree=8``."""
    pairs = [part.split("=") for part in setting.split(", ")[1:]]
    return {name: float(value) if "." in value else int(value) for name, value in pairs}


def at_round(outcome: Trained, setting: str, local_steps: int = 1) -> Trained:
    """Return ``outcome`` with the round that ``setting`` asks for as the one that counts; as it is if it asks for none.

    Args:
        local_steps: of one round.

    Raises:
        FglauditError: the training has no such round.
    """
    asked, rounds = numbers(setting), len(outcome.accuracy)
    if ROUND not in asked and UPDATE not in asked:
        return outcome
    wanted = asked[ROUND] if ROUND in asked else asked[UPDATE] / local_steps
    if wanted != int(wanted) or not 1 <= wanted <= rounds:
        raise FglauditError(
            f"a row of a curve asks for a round from 1 to {rounds}; got {setting!r}, with {local_steps} local steps a"
            f" round; use round={rounds} or update={rounds * local_steps} at most"
        )
    return replace(outcome, round=int(wanted) - 1)


def value(row: Published, outcome: Trained, *, whole: bool) -> float:
    """Return the figure of ``row`` in the round that counts: a loss, or the accuracy in percent.

    Args:
        whole: over the whole test set, not the mean over clients.

    Raises:
        FglauditError: the protocol keeps no such loss.
    """
    if row.metric not in SERIES:
        return 100 * (outcome.whole_test_set if whole else outcome.client_mean)
    name = SERIES[row.metric]
    if name not in outcome.series:
        raise FglauditError(
            f"a row of losses needs a protocol that keeps {name} in Trained.series, and data to compute it on;"
            f" {row.method} on {row.dataset} has none; ask for its accuracy"
        )
    return float(outcome.series[name][outcome.round].item())
