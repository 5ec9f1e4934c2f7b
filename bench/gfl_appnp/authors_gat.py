"""``python -m bench.gfl_appnp.authors_gat FILE``: GAT on GFL-APPNP's subCora from its authors' own first weights.

Their code (``cora_exp.ipynb`` of ``MingxuanZhangPurdue/GFL-APPNP`` at f40ffa7, January 2022) seeds torch with 0 before
every draw, so that one first model serves all 20. ``FILE`` is ``experiments copy/cora/result/GAT/test_accs.npy`` at
commit 0e8b938, the test accuracies of those draws; it is not part of this package. torch-geometric's network is trained
from the weights that its release 1.7 drew after that seed. (The row ``GAT, as published code, subcora`` of ``fglaudit
reproduce gfl-appnp-table2`` is the same from other first weights in every draw.)

Printed are, draw by draw, the test accuracy in percent after the step with the lowest validation loss, and the stored
one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from bench.gfl_appnp.authors import chosen_accuracy
from fglaudit.datasets import DatasetSpec

HEADS, HIDDEN, RATE, STEPS = 8, 8, 0.01, 4000


class GAT(nn.Module):
    """Two layers without biases: 8 heads of 8 units side by side, then one head of as many units as classes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GATConv(features, HIDDEN, HEADS, bias=False)
        self.second = GATConv(HEADS * HIDDEN, classes, 1, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        outputs: Tensor = self.second(nn.functional.elu(self.first(x, edges)), edges)
        return outputs


def first_model(features: int, classes: int, seed: int) -> GAT:
    """Return the network with the weights that torch-geometric 1.7 draws after ``torch.manual_seed(seed)``.

    Release 1.7 made every layer of ``torch.nn.Linear``, which draws weights of its own, and then drew Glorot's twice
    over: its maps of sources and of targets are one. Later releases draw less often, and so end elsewhere.
    """
    model = GAT(features, classes)
    torch.manual_seed(seed)
    for layer in (model.first, model.second):
        weight: Tensor = layer.lin.weight
        nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        for values in (weight, weight, layer.att_src, layer.att_dst):
            bound = (6 / (values.shape[-2] + values.shape[-1])) ** 0.5
            nn.init.uniform_(values, -bound, bound)
    return model


def accuracy(draw: int, root: str | None = None, steps: int = STEPS) -> float:
    """Return the test accuracy in percent on one of the authors' subgraphs."""
    graph = DatasetSpec("subcora-published", draw=draw, root=root).load()
    assert graph.train is not None and graph.val is not None and graph.test is not None
    masks = {"train": graph.train, "valid": graph.val, "test": graph.test}
    model = first_model(graph.num_features, graph.num_classes, seed=0)
    return chosen_accuracy(model, graph.x, graph.y, graph.edge_index, masks, RATE, steps)


def main() -> None:
    """Train on every draw and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.gfl_appnp.authors_gat", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    if not options.file.is_file():
        parser.error(f"no file {options.file}; give cora/result/GAT/test_accs.npy of a clone at 0e8b938")
    stored, ours = 100 * np.load(options.file)[: options.draws], []
    torch.set_num_threads(1)
    for draw, theirs in enumerate(stored):
        ours.append(accuracy(draw, options.root))
        print(f"draw {draw}: {ours[-1]:.1f}, stored {theirs:.1f}", flush=True)
    apart = np.abs(np.array(ours) - stored).mean()
    print(f"mean {np.mean(ours):.2f}, stored {np.mean(stored):.2f}, apart by {apart:.2f} on average")


if __name__ == "__main__":
    main()
