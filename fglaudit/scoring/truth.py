"""The truth of one training run, for the scorer alone; attacks are neither given it nor told where it lies.

Saved as ``truth.safetensors`` (features, labels, edges, who holds what, facts of the run) and ``truth.json`` in a
folder of its own, beside no recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.facts import Unstated
from fglaudit.facts.stored import target_from_json, target_to_json
from fglaudit.files.own import DamagedError, digest, make_folder, read_own, read_stamped, stamped, write_atomic
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.quantities import ObserverTruth
from fglaudit.view import Observer, PartialRows
from fglaudit.wire.side_knowledge import draw_auxiliary

_TENSORS, _INDEX = "truth.safetensors", "truth.json"
_AGAIN = "run the suite again with record: all"
_PER_CLIENT = ("clients", "train", "val", "test")


@dataclass(frozen=True)
class GroundTruth:
    """What is true about one training run.

    Attributes:
        graph: data and partition.
        trained: what came of training; its ``truth`` answers some questions.
        seed: of the cell; auxiliary rows are drawn by it.
        unstated: what the defense did and did not state, as far as the channel saw it.
        edges: that the defense left of a client's, by client, where it changed any; global ids [2, E].
        shared: what was made of the run for one observer and serves the others, by name; a changed copy begins anew.
    """

    graph: FederatedGraph
    protocol: FederatedProtocol
    trained: Trained
    seed: int
    unstated: tuple[Unstated, ...] = ()
    edges: Mapping[int, Tensor] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def about(self, observers: Sequence[Observer], pooled: bool) -> tuple[ObserverTruth, ...]:
        """Return what each of ``observers`` (the members of one, all with the same side knowledge) is asked about."""
        drawn = draw_auxiliary(self.graph, observers[0].auxiliary, self.seed)
        auxiliary, partial = PartialRows.apart(drawn, observers[0].sensitive)
        run = (self.trained.truth, pooled, self.edges, partial, self.shared)
        return tuple(ObserverTruth(self.graph, self.protocol, o, auxiliary, *run) for o in observers)

    def save(self, folder: Path) -> None:
        """Write into ``folder``."""
        make_folder(folder.parent, 0o700)
        make_folder(folder, 0o700)
        graph = self.graph
        tensors = {"x": graph.x, "y": graph.y, "edge_index": graph.edge_index}
        for name in _PER_CLIENT:
            tensors |= {name: torch.cat(getattr(graph, name))}
        tensors["sizes"] = torch.tensor([len(ids) for ids in graph.clients])
        tensors |= {"accuracy": self.trained.accuracy, "accuracy_global": self.trained.accuracy_global}
        tensors |= {f"truth.{name}": value for name, value in self.trained.truth.items()}
        tensors |= {f"weights.{name}": value for name, value in self.trained.weights.items()}
        tensors |= {f"edges.{client}": edges for client, edges in self.edges.items()}
        stored = save({k: v.contiguous().clone() for k, v in tensors.items()})
        write_atomic(folder / _TENSORS, stored, mode=0o600)
        described = {"name": graph.name, "classes": graph.num_classes, "kind": graph.features.value}
        described |= {"seed": self.seed, "layout": self.trained.layout, "round": self.trained.round}
        described["unstated"] = [{"target": target_to_json(u.target), "why": u.why} for u in self.unstated]
        described["digest of tensors"] = digest(stored, _TENSORS)
        write_atomic(folder / _INDEX, stamped(described, _INDEX), mode=0o600)

    @staticmethod
    def check_files(folder: Path) -> None:
        """Raise :class:`FglauditError` unless the files of a saved truth are as they were written."""
        _stored(folder)

    @staticmethod
    def load(folder: Path, protocol: FederatedProtocol) -> GroundTruth:
        """Read back :meth:`save`.

        Raises:
            FglauditError: if a file is missing or damaged.
        """
        try:
            described, stored = _stored(folder)
            tensors = load(stored)
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
            edges = {int(client): kept for client, kept in _under("edges.", tensors).items()}
            return GroundTruth(graph, protocol, trained, int(described["seed"]), unstated, edges)
        except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, FglauditError) as error:
            raise FglauditError(
                f"a truth folder holds truth.safetensors and truth.json, whole; {folder} does not"
                f" ({type(error).__name__}: {error}); run the suite again with record: all"
            ) from error


def _stored(folder: Path) -> tuple[dict[str, Any], bytes]:
    described = read_stamped(folder / _INDEX, _INDEX, _AGAIN)
    stored = read_own(folder / _TENSORS, _TENSORS, _AGAIN)
    if digest(stored, _TENSORS) != described.get("digest of tensors"):
        raise DamagedError(f"{_TENSORS} must be whole; that in {folder} is damaged; {_AGAIN}")
    return described, stored


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
