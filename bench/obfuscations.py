"""``python -m bench obfuscations``: planted obfuscations against learned inversion, on FedGCN's sums at the server.

Prints what the attack rebuilds through every obfuscation of ``bench/obfuscated.py`` (its map public), how that grows
with the rows that the observer knows where the map is a secret of the run, and how often honest messages, which carry
nothing, are accused.
"""

from __future__ import annotations

import time

from bench.obfuscated import HONEST, RULES, Obfuscated
from fglaudit.attacking import run_attacks
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Defense
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.registry import build
from fglaudit.scoring.score import score
from fglaudit.testing import example_graph

SHARES = (0.1, 0.2, 0.3, 0.5, 0.7)
SECRETS = ("signed-order", "affine", "rotation")
SEEDS = 10
_SHARE = 0.3
_FLOOR = 0.02


def measured(graph: FederatedGraph, defense: Defense, attack: Attack, share: float, seed: int = 0) -> Finding:
    """Return the finding of one attack by the server that knows the graph and a share of the rows."""
    recording, truth = record_training(graph, FedGCN(hops=1, rounds=1), defense, seed=seed, fractions={share})
    observer = ObserverSpec(("server",), topology=True, auxiliary=share)
    return score(run_attacks(recording, [observer], [attack]), truth)[0].finding


def run() -> None:
    """Measure and print three tables."""
    learned, plain = build("attack", "learned-inversion", {}), build("attack", "row-space", {})
    small, large = example_graph(), example_graph(nodes=150)
    without = measured(small, NoDefense(), plain, _SHARE)
    print(f"without a defense, row-space: exact {without.exact_rate:.3f}, cosine {without.cosine:.3f}\n")
    print("| obfuscation | exact | cosine | control | could be held | CPU s |\n|---|---|---|---|---|---|")
    for kind in RULES:
        start = time.process_time()
        found = measured(small, Obfuscated(kind), learned, _SHARE)
        seconds = time.process_time() - start
        held = "yes" if found.can_reassure else "no"
        print(
            f"| {kind} | {found.exact_rate or 0:.3f} | {found.cosine or 0:.3f} | {found.control_cosine or 0:.3f} |"
            f" {held} | {seconds:.1f} |",
            flush=True,
        )
    print("\n| secret of the run | " + " | ".join(f"{share:g}" for share in SHARES) + " |")
    print("|---" * (len(SHARES) + 1) + "|")
    for kind in SECRETS:
        row = [measured(large, Obfuscated(kind, secret=True), learned, share).cosine or 0.0 for share in SHARES]
        print(f"| {kind} | " + " | ".join(f"{cosine:.3f}" for cosine in row) + " |", flush=True)
    print("\n| honest | accused | of seeds |\n|---|---|---|")
    for kind in HONEST:
        rows = [measured(small, Obfuscated(kind), learned, _SHARE, seed) for seed in range(SEEDS)]
        accused = sum((found.advantage_low or 0.0) > _FLOOR for found in rows)
        print(f"| {kind} | {accused} | {len(rows)} |", flush=True)
