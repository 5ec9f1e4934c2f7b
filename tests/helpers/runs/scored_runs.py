"""What the scorer knows of a recorded run, and what it makes of an attack: questions, findings, self-tests."""

from __future__ import annotations

from itertools import islice

from fglaudit.attacking import run_attacks
from fglaudit.finding import Finding, Status
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.quantities import Attempt, InferredQuantity, ObserverTruth, quantity
from fglaudit.quantities.rows.game import Game
from fglaudit.rng import derive
from fglaudit.scoring import Output, score
from fglaudit.scoring.selftest import NoiseRuns, on_noise, planted_flaw
from fglaudit.testing import CPU, Run
from fglaudit.view import Observer, View

BLANK = Finding("s", "c", "d", "p", 3, "fedgcn", "", "honest", "none", "", 0, "server", "", "a", Status.OK)


def truth_about(run: Run, observer: Observer) -> ObserverTruth:
    """Return what ``observer`` is asked about."""
    (truth,) = run.truth.about([observer], False)
    return truth


def game_of(run: Run, observer: Observer) -> Game:
    """Return the question about feature rows."""
    return Game.of(truth_about(run, observer))


def inferred(name: str) -> InferredQuantity:
    """Return a quantity that attacks return an ``Inference`` of."""
    kind = quantity(name)
    assert isinstance(kind, InferredQuantity)
    return kind


def finding_of(run: Run, attack: Attack, observer: ObserverSpec) -> Finding:
    """Attack ``run`` as a suite does, and score it."""
    (measured,) = score(run_attacks(run.recording, [observer], [attack]), run.truth)
    return measured.finding


def self_test(attack: Attack, view: View, game: Game, control: Reconstruction) -> str | None:
    """Return what is wrong with ``attack`` on a planted leak and on a single draw of noise, or None."""
    rng = derive(0, "self-test")
    first_draw = islice(NoiseRuns(attack, view, rng, CPU), 1)
    output = Output(BLANK, attack, False, (view,), on_noise=first_draw)
    return planted_flaw(attack, view, rng, CPU) or on_noise(output, Attempt(view, game, None, control)).flaw
