"""``python -m bench.fedgt.partition_scatter TABLE ROW``: how far a figure scatters by partition and by training.

The code that FedGT's tables were made with draws partition and split once and trains on them with several seeds
(``data/generators`` of ``zaixizhang/FedGT`` and ``JinheonBaek/FED-PUB``); ``fglaudit reproduce`` draws both anew for
every seed. Here one row is trained on several partitions, with several training seeds on each. Accuracies in percent.
"""

from __future__ import annotations

import argparse
import statistics

from fglaudit.reproduce.measuring import rows_of
from fglaudit.reproduce.papers import fedgt
from fglaudit.reproduce.trainings import trained


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt.partition_scatter", description=__doc__)
    parser.add_argument("table", choices=("fedgt-table1", "fedgt-table2", "fedgt-table4", "fedgt-table11"))
    parser.add_argument("row", help="label of the row")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--trainings", type=int, default=3, help="on each partition")
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    labels = {row.label: row for row in rows_of(options.table)}
    if options.row not in labels:
        parser.error(
            f"{options.table} has no row {options.row!r}; fglaudit reproduce {options.table} --status lists them"
        )
    if options.partitions < 2 or options.trainings < 2:
        parser.error(f"deviations need two of each; got {options.partitions} and {options.trainings}")
    training = fedgt.training(labels[options.row], options.root)
    means, within = [], []
    for seed in fedgt.SEEDS[: options.partitions]:
        runs = (trained(training, again, partition=seed)[0] for again in range(options.trainings))
        found = [100 * outcome.client_mean for outcome in runs]
        means.append(statistics.fmean(found))
        within.append(statistics.variance(found))
        print(f"partition {seed}: {', '.join(f'{value:.1f}' for value in found)}", flush=True)
    print(
        f"{options.row}: standard deviation {statistics.fmean(within) ** 0.5:.1f} on one partition,"
        f" {statistics.stdev(means):.1f} between means of partitions, {min(means):.1f} to {max(means):.1f}"
    )


if __name__ == "__main__":
    main()
