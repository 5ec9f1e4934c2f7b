"""``python -m bench audit-power``: how often noise too small by 1.5 is seen by the audit of the trade-off curve.

Latents of nFedGNN, clipped and with noise for a stated epsilon of 2, over 1, 5, 20 and 100 rounds. Every row is the
whole audit with all its canaries, at 1e-5 with the correction for them: of the honest defense and of the broken one.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from bench.redteam.cases import users
from bench.redteam.noise_faults import TooSmall
from bench.redteam.planted import Planted
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.empirical.audits.trade_off import trade_off_audit
from fglaudit.empirical.replays.staging import staged
from fglaudit.guarantees import Outcome
from fglaudit.interfaces import Defense
from fglaudit.privacy.accounted import Accounted, Noised
from fglaudit.privacy.accounting import Relation, compose, epsilon_of, event_of
from fglaudit.privacy.mechanism import Distribution
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.reproduce.measurements import Table

ROUNDS = (1, 5, 20, 100)
KEY = ("distribution", "rounds", "noise", "seed")
VALUES = ("refuted", "p_value", "power", "epsilon", "detail", "seconds")


def run(results: Path, seeds: int) -> None:
    """Measure what is missing in ``results/audit_power.csv``, then print how often each was refuted."""
    table = Table(results / "audit_power.csv", KEY, VALUES)
    for seed in range(seeds):
        for distribution in ("gaussian", "laplace"):
            for rounds in ROUNDS:
                for noise in ("as stated", "too small"):
                    key = {"distribution": distribution, "rounds": rounds, "noise": noise, "seed": seed}
                    if not table.has(key):
                        table.add({**key, **_measured(distribution, rounds, noise, seed)})
    for distribution in ("gaussian", "laplace"):
        for rounds in ROUNDS:
            rows = [r for r in table.rows() if r["distribution"] == distribution and r["rounds"] == str(rounds)]
            small = [r["refuted"] == "True" for r in rows if r["noise"] == "too small"]
            right = [r["refuted"] == "True" for r in rows if r["noise"] == "as stated"]
            print(
                f"{distribution}, {rounds} rounds: too small refuted {sum(small)} of {len(small)}, as stated"
                f" {sum(right)} of {len(right)}, power stated {min(r['power'] for r in rows)}",
                flush=True,
            )


def _measured(distribution: Distribution, rounds: int, noise: str, seed: int) -> dict[str, object]:
    protocol, graph = NFedGNN(hidden=8, rounds=rounds), users()
    honest = ClippedNoise(mechanism=distribution, epsilon=2.0)
    defense: Defense = honest if noise == "as stated" else Planted(honest, TooSmall)
    context = protocol.context(graph)
    (release,) = context.releases
    mechanism = honest.bind(context).noised[release.payload][1]  # type: ignore[attr-defined]
    event = compose(event_of(distribution, mechanism.multiplier), release.times)
    mechanisms = (Noised("Latents", False, distribution, mechanism.scale, mechanism.sensitivity, release.times),)
    epsilon = epsilon_of(event, 1e-5, Relation.REPLACE)
    accounted = Accounted(epsilon, 1e-5, "node", Relation.REPLACE, event, mechanisms)
    start = time.process_time()
    played = staged(protocol, graph, defense, accounted, seed=seed, device=torch.device("cpu"))
    audit = trade_off_audit(played, accounted, seed=seed)
    return {
        "refuted": audit.outcome is Outcome.REFUTED,
        "p_value": f"{audit.p_value:.3g}",
        "power": f"{audit.power:.3f}",
        "epsilon": f"{epsilon:.3f}",
        "detail": audit.detail[:160],
        "seconds": f"{time.process_time() - start:.1f}",
    }
