"""A federated training method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Context, Examples, Release, Uploads
from fglaudit.files.field_types import CheckedFields
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces.channel import Channel
from fglaudit.interfaces.defense import DefenseSession
from fglaudit.interfaces.outcomes import Trained
from fglaudit.payloads import Payload
from fglaudit.structure import Models, Structure
from fglaudit.view import Observer


class FederatedProtocol(CheckedFields, ABC):
    """A federated training method. Subclasses are frozen dataclasses; their fields are the hyperparameters."""

    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()
    emits: ClassVar[tuple[type[Payload], ...]]
    server_holds_edges: ClassVar[bool] = False
    """Whether the server, as published, computes on every edge of the graph."""

    on_datasets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By data set, fields that have another default there; see :mod:`fglaudit.suite.dataset_defaults`."""

    rounds: int
    """A field of most protocols."""

    @property
    def num_rounds(self) -> int:
        """Federated rounds (or epochs) of one training. Default: the field ``rounds``."""
        return self.rounds

    def check(self, graph: FederatedGraph) -> None:
        """Raise :class:`fglaudit.errors.FglauditError` if ``graph`` does not fit the protocol."""
        return

    def check_messages(self, graph: FederatedGraph, kept: Callable[[type[Payload]], bool]) -> None:
        """Raise :class:`fglaudit.errors.FglauditError` if messages that are ``kept``, by type, would be too large.
        Asked before anything is computed: it counts nodes and degrees, no more."""
        return

    def large_messages(self, graph: FederatedGraph) -> str:
        """Return that a training sends very many bytes before its first round, and how to send fewer; "", the default:
        it does not. Asked before anything is trained, whoever keeps the messages: it counts, no more."""
        return ""

    @abstractmethod
    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        """Train from scratch; everything that crosses between parties goes through ``channel``."""

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """Return the payloads through which features leave a client; a defense calibrates on them."""
        return ()

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Whether edges between clients, as :meth:`Channel.prepare` leaves them, enter anything that is sent or trained
        on; defenses that drop such edges refuse otherwise, since they would change nothing. Default: no."""
        return False

    def features_used(self, graph: FederatedGraph) -> bool:
        """Whether feature rows enter anything that is sent or trained on; defenses that change rows refuse otherwise.
        Default: they do."""
        return True

    def examples(self, graph: FederatedGraph) -> Examples | str:
        """Return how local training is a sum of losses per node, or why it is not. What it names must be trained
        through :meth:`Channel.local_update`."""
        return f"{self.name} does not train by gradients of losses that belong to single nodes"

    def stated(self, graph: FederatedGraph) -> Structure:
        """Return ``structure``, with what ``uploads`` says of the mean of models: all that attacks may know."""
        uploads = self.uploads(graph)
        if not isinstance(uploads, Uploads):
            return self.structure(graph).replace(Models, averaged=0, by_training_nodes=False, mean_rounds=0)
        first = 0 if uploads.mean else uploads.mean_rounds
        whole = (uploads.mean or first > 0) and uploads.by_training_nodes and uploads.senders == uploads.among
        return self.structure(graph).replace(
            Models, averaged=uploads.averaged, by_training_nodes=whole and not uploads.averaged, mean_rounds=first
        )

    def uploads(self, graph: FederatedGraph) -> Uploads | str:
        """Return how clients' models get to the server, or why they do not."""
        return f"no client of {self.name} sends a model"

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """Return the payloads with which the server does no more than linear algebra; a defense can hide those from
        it."""
        return {}

    def readers(self) -> Mapping[type[Payload], str]:
        """Return why somebody must read the other payloads that clients send: what is done with them beyond linear
        algebra."""
        return {}

    def sealed(self, graph: FederatedGraph, session: DefenseSession) -> tuple[str, ...]:
        """Return names of the payloads that ``session`` hides: those that clients send sealed, and what the server
        makes of them."""
        made = {aggregate.returned for sent, aggregate in self.aggregates(graph).items() if session.seals(sent)}
        return tuple(payload.__name__ for payload in type(self).emits if session.seals(payload) or payload in made)

    def context(self, graph: FederatedGraph) -> Context:
        """Return the facts that a defense is bound to."""
        holders = int(torch.bincount(torch.cat(graph.clients)).max().item())
        return Context(
            protocol=type(self).name,
            rounds=self.num_rounds,
            num_clients=graph.num_clients,
            num_features=graph.num_features,
            releases=self.releases(graph),
            aggregates=self.aggregates(graph),
            readers=self.readers(),
            sends=bool(type(self).emits),
            holders=holders,
            rows_per_node=holders * (graph.x.shape[1] if graph.x.dim() == 3 else 1),
            examples=self.examples(graph),
            uploads=self.uploads(graph),
            num_classes=graph.num_classes,
            cross_edges=self.cross_edges(graph),
            features_used=self.features_used(graph),
        )

    def structure(self, graph: FederatedGraph) -> Structure:
        """Return what attacks may know of this protocol's payloads and training, see :mod:`fglaudit.structure`; they
        read nothing else of it. Default: nothing; attacks that need a statement are then not applicable."""
        return Structure()

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose features reach ``observer`` by messages about features: its targets. All of
        them, since of others nothing is said, and no others, which thin out what it gets. Default: all nodes that the
        observing clients do not own; none for a protocol that sends nothing at all."""
        if not type(self).emits:
            return torch.empty(0, dtype=torch.long)
        mine = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for k in observer.clients:
            mine[graph.clients[k]] = True
        return (~mine).nonzero().squeeze(1)

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """Return the rows that the first layer of each client's model reads in training, and so every update of it is
        made of: clients [M], ascending, and rows [M, F]. ``clients`` have the edges that a defense left; rows and
        messages are as they are without one. Asked by the scorer. None, the default: the protocol does not say."""
        return None

    def labelled(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose labels the protocol itself gives to ``observer`` (a server that computes the
        loss holds the training labels). They stand in ``View.labels`` and are no targets of label inference. Default:
        none."""
        return torch.empty(0, dtype=torch.long)
