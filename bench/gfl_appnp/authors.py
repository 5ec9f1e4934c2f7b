"""``python -m bench.gfl_appnp.authors FOLDER``: two rows of GFL-APPNP's csbm-dnc on its authors' own draws.

``FOLDER`` is ``experiments copy/DNC/0.78phi`` of ``MingxuanZhangPurdue/GFL-APPNP`` at commit 0e8b938, which is not part
of this package: its 20 draws, split, and the test accuracy of every draw.

* ``--method GraphSAGE``: torch-geometric's network, torch seeded with 0 before every draw, as there (f40ffa7);
  ``--seeds draw`` begins every draw with weights of its own.
* ``--method V2``: this package's protocol, first weights of its own; ``--whole`` does not cut the propagation off.

Printed are, draw by draw, the test accuracy in percent after the step with the lowest validation loss, and the stored
one.
"""

from __future__ import annotations

import argparse
import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn import SAGEConv

from fglaudit.datasets import CsbmTask, DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.reproduce.papers import gfl_appnp
from fglaudit.reproduce.published import BY_THEIR_CODE, Published
from fglaudit.reproduce.trainings import trained_on
from fglaudit.rng import derive

HIDDEN, RATE, STEPS = 64, 0.02, 5000


class _Draw:
    """Stands for the authors' class of drawn graphs: features, labels, adjacency."""

    A: Any
    Xs: Any
    ys: Any


class _Reader(pickle.Unpickler):
    """Reads arrays and nothing that runs code."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "cSBM":
            return _Draw
        if module.startswith("numpy") and name in {"_reconstruct", "ndarray", "dtype", "scalar"}:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return super().find_class(module, name)
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return lambda stored: torch.load(io.BytesIO(stored), weights_only=True)
        if (module, name) in {("collections", "OrderedDict"), ("_codecs", "encode")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a draw holds arrays; this one asks for {module}.{name}")


class GraphSAGE(nn.Module):
    """Two layers without biases."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(features, HIDDEN, bias=False), SAGEConv(HIDDEN, classes, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(x, edges).relu(), edges)
        return outputs


def accuracy(x: Tensor, y: Tensor, edges: Tensor, ids: dict[str, Tensor], seed: int, steps: int = STEPS) -> float:
    """Return GraphSAGE's test accuracy in percent, from first weights of ``seed``."""
    torch.manual_seed(seed)
    return chosen_accuracy(GraphSAGE(x.shape[1], int(y.max().item()) + 1), x, y, edges, ids, RATE, steps)


def chosen_accuracy(
    model: nn.Module, x: Tensor, y: Tensor, edges: Tensor, ids: dict[str, Tensor], rate: float, steps: int
) -> float:
    """Train by SGD on all training nodes at once; return the test accuracy in percent after the step with the lowest
    validation loss. ``ids``: nodes or masks called train, valid and test."""
    optimizer, best, found = torch.optim.SGD(model.parameters(), lr=rate), float("inf"), 0.0
    outputs = model(x, edges)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(outputs[ids["train"]], y[ids["train"]]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        outputs = model(x, edges)
        loss = float(cross_entropy(outputs[ids["valid"]], y[ids["valid"]]).item())
        if loss < best:
            right = outputs[ids["test"]].argmax(1) == y[ids["test"]]
            best, found = loss, 100 * float(right.float().mean().item())
    return found


def accuracy_of_v2(x: Tensor, y: Tensor, edges: Tensor, draw: int, *, whole: bool) -> float:
    """Return V2's test accuracy in percent on the authors' graph and split with these features."""
    dataset = DatasetSpec("csbm-dnc", draw=draw, task=CsbmTask(published=True))
    graph = PartitionSpec("per-node").apply(dataset.load(), dataset, derive(draw, "partition"))
    assert torch.equal(graph.y, y) and torch.equal(_pairs(graph.edge_index), _pairs(edges))
    method = gfl_appnp.V2 + BY_THEIR_CODE
    row = Published("gfl-appnp-table2", "csbm-dnc", "", "200", method, "accuracy", "percent", None, None)
    protocol = gfl_appnp.protocol(row)
    assert isinstance(protocol, GFLAPPNP) and protocol.truncated
    protocol = replace(protocol, truncated=not whole)
    return 100 * trained_on(replace(graph, x=x), protocol, NoDefense(), draw)[0].whole_test_set


def main() -> None:
    """Train on every draw and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.gfl_appnp.authors", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", choices=("GraphSAGE", "V2"), default="GraphSAGE")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seeds", choices=("zero", "draw"), default="zero")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    sage = options.method == "GraphSAGE"
    if sage and options.whole:
        parser.error("--whole belongs to --method V2; drop it")
    if not sage and options.seeds != "zero":
        parser.error("--seeds belongs to --method GraphSAGE; drop it")
    if not (options.folder / "data/train_ids.npy").is_file():
        parser.error(f"no data/train_ids.npy in {options.folder}; give the folder 0.78phi of a clone at 0e8b938")
    torch.set_num_threads(1)
    ids = {name: torch.from_numpy(np.load(options.folder / f"data/{name}_ids.npy")).long() for name in _PARTS}
    stored = _stored(options.folder / "result", options.draws, sage=sage)
    ours = []
    for draw in range(options.draws):
        with (options.folder / f"data/csbm_{draw}.pickle").open("rb") as file:
            graph = _Reader(file).load()
        x, y = (torch.as_tensor(np.stack([np.asarray(part) for part in parts])) for parts in (graph.Xs, graph.ys))
        x, y = x.float().squeeze(1), y.long().squeeze(1)
        edges = torch.as_tensor(np.asarray(graph.A)).nonzero().T.contiguous()
        if sage:
            ours.append(accuracy(x, y, edges, ids, seed=0 if options.seeds == "zero" else 1000 + draw))
        else:
            ours.append(accuracy_of_v2(x, y, edges, draw, whole=options.whole))
        print(f"draw {draw}: {ours[-1]:.1f}, stored {stored[draw]:.1f}", flush=True)
    print(f"mean {np.mean(ours):.2f}, stored {np.mean(stored):.2f}")


def _stored(results: Path, draws: int, *, sage: bool) -> list[float]:
    """Return the authors' test accuracies in percent, draw by draw."""
    if sage:
        return [100 * float(share) for share in np.load(results / "Baseline/test_accs_SAGE.npy")[:draws]]
    folder = results / "GFLAPPNP/no_grad/I10"
    return [100 * torch.load(folder / f"model_{draw}", weights_only=True)["test_acc"] for draw in range(draws)]


def _pairs(edges: Tensor) -> Tensor:
    """Return edges [2, E] sorted."""
    return edges[:, (edges[0] * (edges.max() + 1) + edges[1]).argsort()]


_PARTS = ("train", "valid", "test")


if __name__ == "__main__":
    main()
