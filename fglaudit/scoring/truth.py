"""The truth of one training run, for the scorer alone; attacks are neither given it nor told where it lies.

Saved as ``truth.safetensors`` (features, labels, edges, who holds what, facts of the run) and ``truth.json`` in a
folder of its own, beside no recording.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.facts import Unstated, target_from_json, target_to_json
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.quantities import Truth
from fglaudit.view import Observer
from fglaudit.wire.side_knowledge import draw_auxiliary

_PER_CLIENT = ("clients", "train", "val", "test")


@dataclass(frozen=True)
class GroundTruth:
    """What is true about one training run.

    Attributes:
        graph: data and partition.
        trained: what came of training; its ``truth`` answers some questions.
        seed: of the cell; auxiliary rows are drawn by it.
        unstated: what the defense did and did not state, as far as the channel saw it.
    """

    graph: FederatedGraph
    protocol: FederatedProtocol
    trained: Trained
    seed: int
    unstated: tuple[Unstated, ...] = ()

    def about(self, observers: Sequence[Observer], pooled: bool) -> tuple[Truth, ...]:
        """Return what each of ``observers`` (the members of one, all with the same side knowledge) is asked about."""
        auxiliary = draw_auxiliary(self.graph, observers[0].auxiliary, self.seed)
        return tuple(Truth(self.graph, self.protocol, o, auxiliary, self.trained.truth, pooled) for o in observers)

    def save(self, folder: Path) -> None:
        """Write into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        graph = self.graph
        tensors = {"x": graph.x, "y": graph.y, "edge_index": graph.edge_index}
        for name in _PER_CLIENT:
            tensors |= {name: torch.cat(getattr(graph, name))}
        tensors["sizes"] = torch.tensor([len(ids) for ids in graph.clients])
        tensors |= {"accuracy": self.trained.accuracy, "accuracy_global": self.trained.accuracy_global}
        tensors |= {f"truth.{name}": value for name, value in self.trained.truth.items()}
        tensors |= {f"weights.{name}": value for name, value in self.trained.weights.items()}
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "truth.safetensors")
        described = {"name": graph.name, "classes": graph.num_classes, "kind": graph.features.value}
        described |= {"seed": self.seed, "layout": self.trained.layout, "round": self.trained.round}
        described["unstated"] = [{"target": target_to_json(u.target), "why": u.why} for u in self.unstated]
        (folder / "truth.json").write_text(json.dumps(described, indent=1))

    @staticmethod
    def load(folder: Path, protocol: FederatedProtocol) -> GroundTruth:
        """Read back :meth:`save`.

        Raises:
            FglauditError: if a file is missing or damaged.
        """
        try:
            tensors = load_file(folder / "truth.safetensors")
            described: dict[str, Any] = json.loads((folder / "truth.json").read_text("utf-8"))
            sizes = tensors["sizes"].tolist()
            parts = {name: tuple(torch.split(tensors[name], sizes)) for name in _PER_CLIENT}
            graph = FederatedGraph(
                x=tensors["x"],
                y=tensors["y"],
                edge_index=tensors["edge_index"],
                name=described["name"],
                num_classes=int(described["classes"]),
                features=FeatureKind(described["kind"]),
                **parts,
            )
            trained = Trained(
                accuracy=tensors["accuracy"],
                accuracy_global=tensors["accuracy_global"],
                weights=_under("weights.", tensors),
                layout={name: tuple(shape) for name, shape in described["layout"].items()},
                round=int(described["round"]),
                truth=_under("truth.", tensors),
            )
            unstated = tuple(Unstated(target_from_json(u["target"]), u["why"]) for u in described["unstated"])
            return GroundTruth(graph, protocol, trained, int(described["seed"]), unstated)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise FglauditError(
                f"a truth folder holds truth.safetensors and truth.json, whole; {folder} does not"
                f" ({type(error).__name__}: {error}); run the suite again with record: all"
            ) from error


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
