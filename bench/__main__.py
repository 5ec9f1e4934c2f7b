"""``python -m bench [NAME ...]``: run long measurements, or list them; stopped ones go on where they were."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from bench import defense_matrix, epsilon_estimators
from bench.accuracy import frontier, gap, lpgnn, report_designs, training_settings
from bench.cost import costs, devices, estimates, large_training
from bench.cost import sums as scale
from bench.encryption import fedgcn as encryption
from bench.encryption import protocols as encryption_protocols
from bench.encryption import threshold as threshold_encryption
from bench.fedgat import attacks as fedgat_attacks
from bench.fedgat import defenses as fedgat_defenses
from bench.fedgat import memory as fedgat_memory
from bench.fedgat import theory as fedgat_theory
from bench.fedgt import attacks as fedgt_attacks
from bench.fedgt import choices as fedgt_choices
from bench.gfl_appnp import attacks as gfl_appnp_attacks
from bench.intervals import coverage as intervals
from bench.listing import listing
from bench.membership import graphs as membership_graphs
from bench.membership import links
from bench.membership import nodes as membership
from bench.obfuscation import cost as obfuscation_cost
from bench.obfuscation import measure as obfuscations
from bench.redteam import measure as redteam
from bench.redteam import power
from bench.updates import inversion as update_inversion
from bench.updates import optimisation as update_optimisation
from bench.updates import properties as update_properties
from bench.what_leaks import measure as what_leaks
from bench.what_stops_it import measure as what_stops_it

MEASUREMENTS: dict[str, tuple[ModuleType, Callable[[Namespace], None]]] = {
    "fedgat-attacks": (fedgat_attacks, lambda o: fedgat_attacks.run(o.results, o.root)),
    "fedgat-memory": (fedgat_memory, lambda o: fedgat_memory.run(o.results, o.root)),
    "fedgat-defenses": (fedgat_defenses, lambda o: fedgat_defenses.run(o.results, o.root)),
    "theory": (fedgat_theory, lambda o: fedgat_theory.run(o.results, o.root)),
    "fedgt-choices": (fedgt_choices, lambda o: fedgt_choices.run(o.results, o.root)),
    "fedgt-attacks": (fedgt_attacks, lambda o: fedgt_attacks.run(o.results, o.root, o.seeds or 3)),
    "gfl-appnp-attacks": (gfl_appnp_attacks, lambda o: gfl_appnp_attacks.run(o.results)),
    "defense-matrix": (defense_matrix, lambda o: defense_matrix.run(o.results)),
    "what-leaks": (what_leaks, lambda o: what_leaks.run(o.results)),
    "what-stops-it": (what_stops_it, lambda o: what_stops_it.run(o.results)),
    "encryption": (encryption, lambda o: encryption.run(o.results, o.root, o.seeds or 3)),
    "encryption-protocols": (encryption_protocols, lambda o: encryption_protocols.run(o.results)),
    "frontier": (
        frontier,
        lambda o: frontier.run(o.results, o.root, o.seeds or 5, tuple(o.frontier_datasets), tuple(o.settings)),
    ),
    "report-designs": (report_designs, lambda o: report_designs.run(o.results, o.root, o.seeds or 3)),
    "gap": (gap, lambda o: gap.run(o.results, o.root, o.seeds or 5, tuple(o.gap_datasets))),
    "epsilon-estimators": (epsilon_estimators, lambda o: epsilon_estimators.run()),
    "intervals": (intervals, lambda o: intervals.run(o.results)),
    "obfuscations": (obfuscations, lambda o: obfuscations.run(o.only, o.seeds or 10)),
    "obfuscation-cost": (obfuscation_cost, lambda o: obfuscation_cost.run(o.results)),
    "lpgnn": (lpgnn, lambda o: lpgnn.run(o.results, o.root, o.seeds or 3)),
    "threshold-encryption": (threshold_encryption, lambda o: threshold_encryption.run(o.root)),
    "links": (links, lambda o: links.run(o.results, o.root)),
    "membership": (membership, lambda o: membership.run(o.results, o.root)),
    "membership-graphs": (membership_graphs, lambda o: membership_graphs.run(o.results, o.root)),
    "audit-power": (power, lambda o: power.run(o.results, o.seeds or 10)),
    "redteam": (redteam, lambda o: redteam.run(o.results, o.seeds or 10, o.only)),
    "costs": (costs, lambda o: costs.run(o.results)),
    "training-settings": (training_settings, lambda o: training_settings.run(o.results, o.root, o.seeds or 3)),
    "estimates": (estimates, lambda o: estimates.run(o.results, calibrate=False)),
    "devices": (devices, lambda o: devices.run(o.results)),
    "update-inversion": (update_inversion, lambda o: update_inversion.run(o.results, o.root, o.seeds or 3)),
    "update-optimisation": (update_optimisation, lambda o: update_optimisation.run(o.results, o.root)),
    "update-properties": (update_properties, lambda o: update_properties.run(o.results, o.root, o.seeds or 3)),
    "scale": (scale, lambda o: scale.run(o.results, o.nodes, o.edges or 60_000_000, 100, o.clients)),
    "large-training": (
        large_training,
        lambda o: large_training.run(
            o.results,
            large_training.Size(o.nodes, o.edges or 61_900_000, o.clients, rounds=o.rounds),
            o.hops,
            torch.device(o.device),
        ),
    ),
}


def main() -> None:
    """Parse the command line and run."""
    known = ", ".join(MEASUREMENTS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {known} (default: list them)")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="folder of the CSV files")
    parser.add_argument("--root", help="folder of the raw data sets (default: $FGLAUDIT_DATA or ../shared/data)")
    parser.add_argument("--threads", type=int, help="threads per operation (default: torch's)")
    parser.add_argument("--seeds", type=int, help="how many (default: 3, 5 or 10, as the measurement needs)")
    parser.add_argument(
        "--only", help="part of the name of a case of redteam (built-in: honest ones); a part of obfuscations"
    )
    parser.add_argument("--nodes", type=int, default=2_400_000, help="of the drawn graph of scale and large-training")
    parser.add_argument("--edges", type=int, help="undirected edges: scale 60 million, large-training 61.9 million")
    parser.add_argument("--hops", type=int, choices=(0, 1, 2), default=2, help="most hops of large-training")
    parser.add_argument("--rounds", type=int, default=10, help="of large-training")
    parser.add_argument("--device", default="cpu", help="of large-training, e.g. cuda")
    parser.add_argument("--clients", type=int, default=10, help="clients of that graph")
    parser.add_argument(
        "--frontier-datasets", nargs="+", choices=frontier.DATASETS, default=frontier.DATASETS, help="of frontier"
    )
    parser.add_argument(
        "--settings", nargs="*", choices=[one.name for one in frontier.SETTINGS], default=(), help="of frontier"
    )
    parser.add_argument("--gap-datasets", nargs="+", choices=gap.DATASETS, default=gap.DATASETS, help="of gap")
    options = parser.parse_args()
    if not options.names:
        print(listing({name: Path(str(module.__file__)) for name, (module, _) in MEASUREMENTS.items()}))
        return
    unknown = sorted(set(options.names) - {*MEASUREMENTS, "all"})
    if unknown:
        parser.error(f"unknown measurement {unknown[0]!r} (known: {known})")
    if options.threads:
        torch.set_num_threads(options.threads)
    for name, (_, measure) in MEASUREMENTS.items():
        if name in options.names or "all" in options.names:
            measure(options)


if __name__ == "__main__":
    main()
