"""``python -m bench obfuscations``: planted obfuscations against learned inversion.

Prints what the attack rebuilds of FedGCN's sums through every obfuscation of ``obfuscated.py`` (its map public),
what it rebuilds of every payload through invertible maps (of ``payloads.py``), how that grows with the
rows that the observer knows where the map is a secret of the run, and how often honest messages, which carry nothing,
are accused. ``--only PART`` measures one of these: sums, payloads, rows, honest; ``--only honest/NAME`` one kind of
honest messages.
"""

from __future__ import annotations

import time

from bench.obfuscation.obfuscated import HONEST, RULES, Obfuscated
from bench.obfuscation.payloads import CASES, MAPS, hidden, strength, without
from fglaudit.attacking import run_attacks
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Defense
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import Kept, record_training
from fglaudit.registry import build
from fglaudit.scoring.score import score
from fglaudit.testing import example_graph

SHARES = (0.1, 0.2, 0.3, 0.5, 0.7)
PAYLOAD_SHARES = (0.1, 0.3, 0.6)
SECRETS = ("permutation", "signed-order", "affine", "rotation")
SECRET_MAPS = ("rotation", "permutation", "signs")
SEEDS = 10
ENCRYPTION = ("homomorphic-encryption",)
NOTHING_SENT = "nothing-sent"
"""A defense on messages about features, and a protocol that sends none."""
_SHARE = 0.3
_FLOOR = 0.02


def measured(
    graph: FederatedGraph, defense: Defense, attack: Attack, share: float, seed: int = 0, hops: int = 1
) -> Finding:
    """Return the finding of one attack by the server that knows the graph and a share of the rows."""
    recording, truth = record_training(
        graph, FedGCN(hops=hops, rounds=1), defense, seed=seed, keep=Kept(fractions={share})
    )
    observer = ObserverSpec(("server",), topology=True, auxiliary=share)
    return score(run_attacks(recording, [observer], [attack]), truth)[0].finding


def run(only: str | None = None, seeds: int = SEEDS) -> None:
    """Measure and print the tables, or the one called ``only``."""
    chosen, _, kind = (only or "").partition("/")
    for name, part in PARTS.items():
        if chosen in ("", name):
            part(seeds, kind)


def _sums(_: int, __: str) -> None:
    learned, plain = build("attack", "learned-inversion", {}), build("attack", "row-space", {})
    small = example_graph()
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


def _payloads(_: int, __: str) -> None:
    for secret, kinds in ((False, MAPS), (True, SECRET_MAPS)):
        print(f"\n| payload{', secret map' if secret else ''} | without | " + " | ".join(kinds) + " |")
        print("|---" * (len(kinds) + 2) + "|")
        for name in CASES:
            scores = [f"{strength(without(name)):.3f}"]
            scores += [f"{strength(hidden(name, kind, secret=secret)):.3f}" for kind in kinds]
            print(f"| {name} | " + " | ".join(scores) + " |", flush=True)


def _rows(_: int, __: str) -> None:
    learned, large = build("attack", "learned-inversion", {}), example_graph(nodes=150)
    print("\n| secret of the run | " + " | ".join(f"{share:g}" for share in SHARES) + " |")
    print("|---" * (len(SHARES) + 1) + "|")
    for kind in SECRETS:
        row = [measured(large, Obfuscated(kind, secret=True), learned, share).cosine or 0.0 for share in SHARES]
        print(f"| {kind} | " + " | ".join(f"{cosine:.3f}" for cosine in row) + " |", flush=True)
    print("\n| payload | secret of the run | without | " + " | ".join(f"{share:g}" for share in PAYLOAD_SHARES) + " |")
    print("|---" * (len(PAYLOAD_SHARES) + 3) + "|")
    for name in CASES:
        for kind in SECRET_MAPS:
            scores = [strength(hidden(name, kind, secret=True, share=share)) for share in PAYLOAD_SHARES]
            plain = strength(without(name))
            print(
                f"| {name} | {kind} | {plain:.3f} | " + " | ".join(f"{score:.3f}" for score in scores) + " |",
                flush=True,
            )


def _honest(seeds: int, only: str) -> None:
    learned, small = build("attack", "learned-inversion", {}), example_graph()
    print("\n| honest | accused | of seeds |\n|---|---|---|")
    defenses: dict[str, Defense] = {kind: Obfuscated(kind) for kind in HONEST}
    defenses |= {name: build("defense", name, {}) for name in ENCRYPTION}
    defenses[NOTHING_SENT] = Obfuscated()
    for kind, defense in defenses.items():
        if only not in ("", kind):
            continue
        hops = 0 if kind == NOTHING_SENT else 1
        rows = [measured(small, defense, learned, _SHARE, seed, hops) for seed in range(seeds)]
        accused = sum((found.advantage_low or 0.0) > _FLOOR for found in rows)
        print(f"| {kind} | {accused} | {len(rows)} |", flush=True)


PARTS = {"sums": _sums, "payloads": _payloads, "rows": _rows, "honest": _honest}
