"""``python -m bench.fedgt.rounds METHOD DATASET``: the accuracy after every round, beside FedGT's Tables 1 and 2.

A printed figure may be that of a model that still learns. One method is trained on the six settings of one data set;
printed is its accuracy after some of the rounds, and the number of rounds after which the six figures are closest.
That number is chosen on the printed figures: it describes them, and is no setting that anybody stated. Accuracies in
percent, mean over clients and seeds, in that very round: no validation accuracy chooses it.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from fglaudit.reproduce.measuring import table_rows
from fglaudit.reproduce.papers import fedgt, fedgt_methods
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import trained


def accuracies(row: Published, seeds: int, root: str | None) -> Tensor:
    """Return the mean accuracy over clients and ``seeds`` seeds after every round [rounds]."""
    training = fedgt.training(row, root)
    curves = [trained(training, seed)[0].accuracy.nanmean(1) for seed in fedgt.SEEDS[:seeds]]
    return 100 * torch.stack(curves).mean(0)


def closest(curves: Tensor, printed: Tensor) -> int:
    """Return after how many rounds [1, rounds] the rows ``curves`` [settings, rounds] are closest to ``printed``
    [settings], by the mean absolute difference."""
    return int((curves - printed.unsqueeze(1)).abs().mean(0).argmin()) + 1


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt.rounds", description=__doc__)
    parser.add_argument("method", help="as the tables name it, such as GraphGPS")
    parser.add_argument("dataset", choices=tuple(fedgt_methods.SETTINGS))
    parser.add_argument("--seeds", type=int, default=1, help="per setting")
    parser.add_argument("--every", type=int, default=10, help="rounds between two printed figures")
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    tables = (*table_rows("fedgt-table1"), *table_rows("fedgt-table2"))
    rows = [row for row in tables if (row.method, row.dataset) == (options.method, options.dataset)]
    printed = [(row, row.mean) for row in rows if row.mean is not None]
    if not printed:
        parser.error(f"no such method: {options.method!r}; known: {', '.join(sorted({row.method for row in tables}))}")
    curves = []
    for row, figure in printed:
        curves.append(accuracies(row, options.seeds, options.root))
        shown = "  ".join(
            f"{at + 1}: {curves[-1][at]:.1f}" for at in range(options.every - 1, len(curves[-1]), options.every)
        )
        print(f"{row.setting}, {row.clients} clients, printed {figure:.1f}; after {shown}", flush=True)
    found = torch.stack(curves)
    rounds = closest(found, torch.tensor([figure for _, figure in printed], dtype=found.dtype))
    for (row, figure), curve in zip(printed, found, strict=True):
        print(
            f"{row.setting}, {row.clients} clients: {curve[rounds - 1]:.1f} after {rounds} rounds, printed {figure:.1f}"
        )


if __name__ == "__main__":
    main()
