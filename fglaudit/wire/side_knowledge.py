"""What an observer knows beside the messages, saved next to a transcript so that attacks run without the data set.

``views.json`` lists the observers with their public facts; ``view-000.safetensors`` ... hold own data, auxiliary rows,
topology and degrees. The truth is not among them: it lies in ``game.safetensors``, for the scorer alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fglaudit import facts as typed
from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph
from fglaudit.rng import derive
from fglaudit.view import Auxiliary, KnownLabels, Noise, Observer, PublicFacts, View
from fglaudit.wire.transcript import Transcript

_CLIENT_TENSORS = tuple(f.name for f in dataclasses.fields(ClientGraph) if f.name != "client")


def make_view(
    observer: Observer,
    graph: FederatedGraph,
    transcript: Transcript,
    public: PublicFacts,
    auxiliary: Auxiliary,
    labelled: Tensor | None = None,
    inputs: Mapping[int, Tensor] | None = None,
) -> View:
    """Return what ``observer`` has after the run recorded in ``transcript``. Every tensor is a copy.

    Args:
        labelled: node ids [L], see ``fglaudit.interfaces.FederatedProtocol.labelled``.
        inputs: feature rows [n_k, F] by client, see :attr:`fglaudit.wire.channel.RecordingChannel.inputs`.
    """
    given = torch.empty(0, dtype=torch.long) if labelled is None else labelled
    own = []
    for k in observer.clients:
        client = graph.client(k)
        if observer.degrees is False:
            client = dataclasses.replace(client, remote_degrees=None)
        own.append(client)
    return View(
        observer=observer,
        messages=transcript.seen_by(observer),
        own=tuple(own),
        auxiliary=auxiliary,
        public=public,
        topology=graph.edge_index.clone() if observer.topology else None,
        degrees=graph.degrees() if observer.degrees else None,
        labels=KnownLabels(given, graph.y[given]),
        own_inputs=tuple(inputs[k].clone() for k in observer.clients if inputs),
    )


def draw_auxiliary(graph: FederatedGraph, fraction: float, seed: int) -> Auxiliary:
    """Draw the rows an observer knows beforehand: the same for all observers with this fraction in a cell (rule 3)."""
    if fraction == 0:
        return Auxiliary.empty(graph.num_features)
    order = torch.randperm(graph.num_nodes, generator=derive(seed, "auxiliary"))
    nodes = order[: round(fraction * graph.num_nodes)].sort().values
    return Auxiliary(nodes, graph.x[nodes].clone(), graph.y[nodes].clone())


def save_views(views: Sequence[View], folder: Path) -> None:
    """Write the side knowledge of ``views`` beside their transcript."""
    described = []
    for index, view in enumerate(views):
        tensors: dict[str, Tensor] = {"auxiliary.nodes": view.auxiliary.nodes}
        tensors |= {"auxiliary.x": view.auxiliary.x, "auxiliary.y": view.auxiliary.y}
        tensors |= {"labels.nodes": view.labels.nodes, "labels.y": view.labels.y}
        for client in view.own:
            held = {name: getattr(client, name) for name in _CLIENT_TENSORS}
            tensors |= {f"own.{client.client}.{name}": value for name, value in held.items() if value is not None}
        tensors |= {f"inputs.{client.client}": x for client, x in zip(view.own, view.own_inputs, strict=False)}
        tensors |= {name: value for name in ("topology", "degrees") if (value := getattr(view, name)) is not None}
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / f"view-{index:03d}.safetensors")
        public = {f.name: getattr(view.public, f.name) for f in dataclasses.fields(PublicFacts) if f.name != "fit"}
        public["noise"] = {name: dataclasses.asdict(noise) for name, noise in view.public.noise.items()}
        public["facts"] = typed.to_json(view.public.facts)
        described.append({"observer": dataclasses.asdict(view.observer), "public": public})
    (folder / "views.json").write_text(json.dumps(described, indent=1, default=str))


def _noise(stored: dict[str, Any]) -> Noise:
    return Noise(**{**stored, "fields": tuple(stored.get("fields", ()))})


def load_views(folder: Path) -> list[View]:
    """Open every saved view of the transcript in ``folder``, without the data set.

    Raises:
        FglauditError: if the folder holds no transcript or no views.
    """
    transcript = Transcript.load(folder)
    path = folder / "views.json"
    if not path.is_file():
        raise FglauditError(
            f"a saved view needs views.json beside transcript.json; {path} is missing; record the run again"
        )
    views = []
    for index, entry in enumerate(json.loads(path.read_text())):
        observer = Observer(**{**entry["observer"], "parties": tuple(entry["observer"]["parties"])})
        public = entry["public"]
        facts = PublicFacts(
            **{
                **public,
                "features": FeatureKind(public["features"]),
                "layout": {name: tuple(shape) for name, shape in public["layout"].items()},
                "sealed": tuple(public.get("sealed", ())),
                "noise": {name: _noise(noise) for name, noise in public["noise"].items()},
                "facts": typed.from_json(public.get("facts", ())),
            }
        )
        tensors = load_file(folder / f"view-{index:03d}.safetensors")
        own = tuple(
            ClientGraph(client=k, **{name: tensors.get(f"own.{k}.{name}") for name in _CLIENT_TENSORS})  # type: ignore[arg-type]
            for k in observer.clients
        )
        auxiliary = Auxiliary(*(tensors[f"auxiliary.{name}"] for name in ("nodes", "x", "y")))
        seen = transcript.seen_by(observer)
        labels = KnownLabels(tensors["labels.nodes"], tensors["labels.y"])
        topology, degrees = tensors.get("topology"), tensors.get("degrees")
        inputs = tuple(tensors[f"inputs.{k}"] for k in observer.clients if f"inputs.{k}" in tensors)
        views.append(View(observer, seen, own, auxiliary, facts, topology, degrees, labels, inputs))
    return views
