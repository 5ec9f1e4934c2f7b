"""What parties hold beside messages, and what observers may be granted: enough to make any view without the data set.

Saved as ``side.json`` and ``side.safetensors``; of the latter a view reads its own clients' rows and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.facts.stored import from_json as facts_from_json
from fglaudit.facts.stored import to_json as facts_to_json
from fglaudit.files.own import digest, make_folder, read_own, read_stamped, stamped, write_atomic
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph, first_of_each
from fglaudit.payloads import SERVER
from fglaudit.rng import derive
from fglaudit.structure import Structure
from fglaudit.view import Auxiliary, KnownLabels, Observer, PartialRows, PublicFacts, View
from fglaudit.wire.transcript import Transcript

T = TypeVar("T")
_CLIENT_TENSORS = tuple(f.name for f in dataclasses.fields(ClientGraph) if f.name != "client")
_EDGES = "edges"
_TENSORS, _INDEX = "side.safetensors", "side.json"


@dataclass(frozen=True)
class SideKnowledge:
    """What every party holds, and what observers are granted if they are said to know it.

    Attributes:
        own: what each client holds, of the clients that were asked for.
        inputs: feature rows [n_k, F] by client, see :attr:`fglaudit.wire.channel.RecordingChannel.inputs`.
        labels: labels that the protocol itself gives to a party.
        edges: all edges [2, E].
        num_nodes: N.
        auxiliary: rows known beforehand, by the fraction of all nodes.
    """

    own: Mapping[int, ClientGraph]
    inputs: Mapping[int, Tensor]
    labels: Mapping[int, KnownLabels]
    edges: Tensor
    num_nodes: int
    auxiliary: Mapping[float, Auxiliary]

    @staticmethod
    def of(
        graph: FederatedGraph,
        clients: Iterable[int],
        fractions: Iterable[float],
        labelled: Mapping[int, Tensor],
        inputs: Mapping[int, Tensor],
        seed: int,
    ) -> SideKnowledge:
        """Return what ``clients`` hold of ``graph``.

        Args:
            fractions: of auxiliary rows that observers may have.
            labelled: node ids [L] by party, see ``fglaudit.interfaces.FederatedProtocol.labelled``.
            inputs: as the attribute.
            seed: draws the auxiliary rows.
        """
        clients = sorted(set(clients))
        return SideKnowledge(
            own={k: _copied(graph.client(k)) for k in clients},
            inputs={k: inputs[k].clone() for k in clients if k in inputs},
            labels={party: KnownLabels(nodes.clone(), graph.y[nodes]) for party, nodes in labelled.items()},
            edges=graph.edge_index.clone(),
            num_nodes=graph.num_nodes,
            auxiliary={fraction: draw_auxiliary(graph, fraction, seed) for fraction in sorted({0.0, *fractions})},
        )

    def view(self, observer: Observer, transcript: Transcript, public: PublicFacts) -> View:
        """Return what ``observer`` has after the run recorded in ``transcript``.

        Raises:
            FglauditError: if the observer knows what was not kept: another client's rows, another share of auxiliary
                rows.
        """
        if missing := [k for k in observer.clients if k not in self.own]:
            raise FglauditError(
                f"a recording with record: needed keeps what its suite's observers hold; client:{missing[0]} is not"
                " among them; record with record: all"
            )
        if observer.auxiliary not in self.auxiliary:
            drawn = ", ".join(f"{fraction:g}" for fraction in self.auxiliary)
            raise FglauditError(
                f"auxiliary rows are drawn when a run is recorded; this one has shares {drawn}, not"
                f" {observer.auxiliary:g}; use one of them, or add an observer with it to the suite"
            )
        own = tuple(self.own[k] for k in observer.clients)
        if observer.degrees is False:
            own = tuple(dataclasses.replace(client, remote_degrees=None) for client in own)
        degrees = torch.bincount(self.edges[0], minlength=self.num_nodes) if observer.degrees else None
        known, partial = PartialRows.apart(self.auxiliary[observer.auxiliary], observer.sensitive)
        return View(
            observer=observer,
            messages=transcript.seen_by(observer),
            own=tuple(_copied(client) for client in own),
            auxiliary=Auxiliary(known.nodes.clone(), known.x.clone(), known.y.clone()),
            public=public,
            topology=self.edges.clone() if observer.topology else None,
            degrees=degrees,
            labels=self._labels(observer),
            own_inputs=tuple(self.inputs[k].clone() for k in observer.clients if k in self.inputs),
            partial=partial,
        )

    def _labels(self, observer: Observer) -> KnownLabels:
        held = [self.labels[party] for party in observer.parties if party in self.labels]
        if not held:
            return KnownLabels.none()
        nodes, y = torch.cat([part.nodes for part in held]), torch.cat([part.y for part in held])
        if len(held) == 1:
            return KnownLabels(nodes.clone(), y.clone())
        unique, _, first = first_of_each(nodes)
        return KnownLabels(unique, y[first])

    def save(self, folder: Path) -> None:
        """Write into ``folder``."""
        make_folder(folder, 0o700)
        tensors: dict[str, Tensor] = {_EDGES: self.edges}
        for k, client in self.own.items():
            held = {name: getattr(client, name) for name in _CLIENT_TENSORS}
            tensors |= {f"own.{k}.{name}": value for name, value in held.items() if value is not None}
        tensors |= {f"inputs.{k}": x for k, x in self.inputs.items()}
        for party, labels in self.labels.items():
            tensors |= {f"labels.{party}.nodes": labels.nodes, f"labels.{party}.y": labels.y}
        fractions = list(self.auxiliary)
        for index, fraction in enumerate(fractions):
            rows = self.auxiliary[fraction]
            tensors |= {f"auxiliary.{index}.{name}": getattr(rows, name) for name in ("nodes", "x", "y")}
        stored = save({name: value.contiguous().clone() for name, value in tensors.items()})
        write_atomic(folder / _TENSORS, stored, mode=0o600)
        index_file = {
            "digest of tensors": digest(stored, _TENSORS),
            "num_nodes": self.num_nodes,
            "clients": list(self.own),
            "inputs": list(self.inputs),
            "labels": list(self.labels),
            "auxiliary": fractions,
        }
        write_atomic(folder / _INDEX, stamped(index_file, _INDEX), mode=0o600)

    @staticmethod
    def load(folder: Path) -> SideKnowledge:
        """Open what :meth:`save` wrote; a client's rows are read when a view asks for them.

        Raises:
            FglauditError: if a file is missing or damaged.
        """
        try:
            index = read_stamped(folder / _INDEX, _INDEX, "record the run again")
            path = folder / _TENSORS
            if digest(read_own(path, _TENSORS, "record the run again"), _TENSORS) != index["digest of tensors"]:
                raise ValueError(f"{_TENSORS} is damaged: its digest is that of another content")
            with safe_open(path, "pt") as file:
                edges = file.get_tensor(_EDGES)
                labels = {
                    party: KnownLabels(file.get_tensor(f"labels.{party}.nodes"), file.get_tensor(f"labels.{party}.y"))
                    for party in index["labels"]
                }
                auxiliary = {
                    float(fraction): Auxiliary(*(file.get_tensor(f"auxiliary.{i}.{n}") for n in ("nodes", "x", "y")))
                    for i, fraction in enumerate(index["auxiliary"])
                }
            return SideKnowledge(
                own=_Saved(path, tuple(index["clients"]), _saved_client),
                inputs=_Saved(path, tuple(index["inputs"]), _saved_input),
                labels=labels,
                edges=edges,
                num_nodes=int(index["num_nodes"]),
                auxiliary=auxiliary,
            )
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise FglauditError(
                f"a recording needs {_INDEX} and {_TENSORS}, whole; {folder} has them not"
                f" ({type(error).__name__}: {error}); record the run again"
            ) from error


@dataclass(frozen=True)
class _Saved(Mapping[int, T]):
    """By client, what ``read`` finds in the file: read when it is asked for."""

    path: Path
    clients: tuple[int, ...]
    read: Callable[[Path, int], T]

    def __getitem__(self, client: int) -> T:
        if client not in self.clients:
            raise KeyError(client)
        return self.read(self.path, client)

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)


def _saved_client(path: Path, client: int) -> ClientGraph:
    with safe_open(path, "pt") as file:
        keys = {name: f"own.{client}.{name}" for name in _CLIENT_TENSORS}
        there = set(file.keys())
        held = {name: file.get_tensor(key) if key in there else None for name, key in keys.items()}
    return ClientGraph(client=client, **held)  # type: ignore[arg-type]


def _saved_input(path: Path, client: int) -> Tensor:
    with safe_open(path, "pt") as file:
        rows: Tensor = file.get_tensor(f"inputs.{client}")
        return rows


def _copied(client: ClientGraph) -> ClientGraph:
    """Return ``client`` in memory of its own: a write through a view must not reach anybody else's."""
    held = {name: getattr(client, name) for name in _CLIENT_TENSORS}
    return ClientGraph(client.client, **{k: None if v is None else v.clone() for k, v in held.items()})  # type: ignore[arg-type]


def draw_auxiliary(graph: FederatedGraph, fraction: float, seed: int) -> Auxiliary:
    """Draw the rows an observer knows beforehand: the same for all observers with this fraction in a cell (rule 3)."""
    if fraction == 0:
        return Auxiliary.empty(graph.num_features)
    order = torch.randperm(graph.num_nodes, generator=derive(seed, "auxiliary"))
    nodes = order[: round(fraction * graph.num_nodes)].sort().values
    return Auxiliary(nodes, graph.x[nodes].clone(), graph.y[nodes].clone())


def labelled_parties(protocol: Any, graph: FederatedGraph) -> dict[int, Tensor]:
    """Return, by party, ids of the nodes whose labels ``protocol`` gives to it; parties that get none are left out."""
    given = {p: protocol.labelled(graph, Observer(parties=(p,))) for p in (SERVER, *range(graph.num_clients))}
    return {party: nodes for party, nodes in given.items() if len(nodes)}


def public_to_json(public: PublicFacts) -> dict[str, Any]:
    """Return ``public`` as plain JSON; ``fit``, ``rehearse`` and ``release`` are left out, they come from the
    registry."""
    apart = ("fit", "rehearse", "release")
    stored = {f.name: getattr(public, f.name) for f in dataclasses.fields(PublicFacts) if f.name not in apart}
    stored["facts"] = facts_to_json(public.facts)
    stored["structure"] = public.structure.to_json()
    plain: dict[str, Any] = json.loads(json.dumps(stored, default=str))
    return plain


def public_from_json(stored: Mapping[str, Any]) -> PublicFacts:
    """Read back :func:`public_to_json`."""
    return PublicFacts(
        **{
            **stored,
            "features": FeatureKind(stored["features"]),
            "layout": {name: tuple(shape) for name, shape in stored["layout"].items()},
            "sealed": tuple(stored.get("sealed", ())),
            "hooks": tuple(stored.get("hooks", ())),
            "facts": facts_from_json(stored["facts"]),
            "structure": Structure.from_json(stored["structure"]),
        }
    )
