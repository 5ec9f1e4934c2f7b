"""The adversary's side of the table: who observes, with what side knowledge, and the view an attack gets.

An attack's only input is a :class:`View`. Nothing in it refers to the truth: messages are read back from wire bytes,
and own data, auxiliary rows and public facts are copies of what the observer legitimately has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.facts import Fact, Unstated
from fglaudit.graph import ClientGraph, FeatureKind, first_of_each
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.shapes import Degrees, EdgeIndex
from fglaudit.structure import Structure

P = TypeVar("P", bound=Payload)


def party_name(party: int) -> str:
    """``server`` or ``client:3``."""
    return "server" if party == SERVER else f"client:{party}"


@dataclass(frozen=True)
class Observer:
    """A threat model: a set of parties that pool what they see (or the wire), plus stated side knowledge.

    Attributes:
        parties: party numbers; empty for the wire alone.
        wire: sees every message as sent. Alone it owns nothing; with clients beside it, it also reads what their keys
            open.
        topology: knows every edge of the graph.
        degrees: True: knows the degree of every node; False: not even those of its own cross-client neighbours; None:
            what the parties have anyway (clients know the degrees of their neighbours).
        initial_weights: knows the first model.
        auxiliary: fraction of all nodes whose features and labels it knows beforehand.
        sensitive: columns of the features that it lacks in every second auxiliary row, ascending; see
            :class:`PartialRows`.
    """

    parties: tuple[int, ...] = ()
    wire: bool = False
    topology: bool = False
    degrees: bool | None = None
    initial_weights: bool = False
    auxiliary: float = 0.0
    sensitive: tuple[int, ...] = ()

    @property
    def clients(self) -> tuple[int, ...]:
        """The observing clients, without the server."""
        return tuple(p for p in self.parties if p != SERVER)

    @property
    def name(self) -> str:
        return "+".join([*["wire"] * self.wire, *(party_name(p) for p in self.parties)])

    @property
    def knowledge(self) -> str:
        """Side knowledge in a few words, as ``findings.csv`` prints it."""
        words = [name for name in ("topology", "initial_weights") if getattr(self, name)]
        if self.degrees is not None:
            words.append("degrees" if self.degrees else "no-degrees")
        if self.auxiliary:
            words.append(f"auxiliary={self.auxiliary:g}")
        if self.sensitive:
            words.append(f"sensitive={'+'.join(map(str, self.sensitive))}")
        return ";".join(words)


@dataclass(frozen=True)
class PublicFacts:
    """What everybody knows: architecture, hyperparameters, the defense with its fields, the schema of the data.

    Attributes:
        layout: shape of each weight, in the order in which ``ModelUpdate.vector`` concatenates them.
        sealed: names of the payloads that clients send sealed, and of those that the server makes of them.
        structure: what the protocol states of its payloads and its training; attacks read this, and no hyperparameter.
        facts: what the defense does to rows, edges, gradients and payload fields, in the order in which it applies.
        fit: trains the same protocol on a graph of the attacker's own, for attacks that need shadow models; not stored.
        rehearse: its messages on such a graph, for self-tests; see ``fglaudit.wire.rehearsal``; not stored.
        hooks: the hooks of :class:`fglaudit.interfaces.DefenseSession` by which the defense acts.
        release: what the defense makes of rows and messages of the attacker's own: :class:`Released`; not stored.

    ``fit`` and ``rehearse`` train undefended, or with ``defended=True`` under a *fresh* bind of the public defense, as
    ``release`` always does: its code and constants are public, the secrets that it draws in a run are drawn afresh
    from the attacker's generator. The session of the attacked run, which holds keys, is out of reach.
    """

    protocol: str
    hyperparameters: Mapping[str, Any]
    defense: str
    defense_parameters: Mapping[str, Any]
    features: FeatureKind
    num_nodes: int
    num_features: int
    num_classes: int
    num_clients: int
    layout: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sealed: tuple[str, ...] = ()
    structure: Structure = field(default_factory=Structure)
    facts: tuple[Fact, ...] = ()
    fit: Callable[..., Any] | None = None
    rehearse: Callable[..., tuple[Messages, Structure]] | None = None
    hooks: tuple[str, ...] = ()
    release: Callable[..., Released] | None = None


@dataclass(frozen=True)
class Released:
    """What a fresh bind of the public defense makes of rows and messages of the attacker's own.

    Attributes:
        rows: by client the feature rows [n_k, F] that it would start from.
        batches: the messages as they would leave their senders, in the order given.
        unstated: what changed and no stated fact explains.
    """

    rows: tuple[Tensor, ...]
    batches: tuple[MessageBatch, ...]
    unstated: tuple[Unstated, ...]


@dataclass(frozen=True)
class Auxiliary:
    """Rows the observer knows beforehand: global ids [A], features [A, F], labels [A]. Never among the targets."""

    nodes: Tensor
    x: Tensor
    y: Tensor

    @staticmethod
    def empty(num_features: int) -> Auxiliary:
        none = torch.empty(0, dtype=torch.long)
        return Auxiliary(none, torch.empty(0, num_features), none)


@dataclass(frozen=True)
class PartialRows:
    """Rows the observer knows but for their sensitive columns: what attribute inference is asked about.

    Attributes:
        nodes: global ids [P], none of them among the auxiliary ones.
        x: features [P, F], 0 in the sensitive columns.
        y: labels [P].
        columns: the sensitive columns [c], ascending.
    """

    nodes: Tensor
    x: Tensor
    y: Tensor
    columns: Tensor

    @staticmethod
    def apart(known: Auxiliary, sensitive: tuple[int, ...]) -> tuple[Auxiliary, PartialRows | None]:
        """Return every other row of ``known`` whole, and the rest without the columns ``sensitive``; all of them whole
        where none is sensitive.

        Raises:
            FglauditError: a column does not exist.
        """
        if not sensitive:
            return known, None
        features = known.x.shape[-1]
        if odd := [c for c in sensitive if not 0 <= c < features]:
            raise FglauditError(
                f"sensitive names columns of the features, 0 to {features - 1}; got {odd[0]}; name one of these"
            )
        hidden = torch.arange(len(known.nodes)) % 2 == 1
        columns, x = torch.tensor(sensitive), known.x[hidden].clone()
        x[..., columns] = 0
        whole = Auxiliary(known.nodes[~hidden], known.x[~hidden], known.y[~hidden])
        return whole, PartialRows(known.nodes[hidden], x, known.y[hidden], columns)


@dataclass(frozen=True)
class KnownLabels:
    """Labels that the protocol itself gives to the observer: global ids [L], labels [L]."""

    nodes: Tensor
    y: Tensor

    @staticmethod
    def none() -> KnownLabels:
        empty = torch.empty(0, dtype=torch.long)
        return KnownLabels(empty, empty)


@runtime_checkable
class Messages(Protocol):
    """Recorded messages of an observer, read lazily, a batch at a time."""

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload in the order sent, only the messages the observer saw."""
        ...


@dataclass(frozen=True)
class NotedMessages:
    """Messages that note which fields are read: (name of the payload, field) in ``log``; ``view`` is the one whose
    messages they are."""

    messages: Messages
    log: set[tuple[str, str]]
    view: View

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        for batch in self.messages.of(payload):
            yield dataclasses.replace(batch, payload=batch.payload.noted(self.log))


@dataclass(frozen=True)
class View:
    """Everything an observer has, and all an attack gets.

    Attributes:
        own: what the observing clients hold. ``remote_degrees`` is None where the observer does not know degrees.
        topology: all edges [2, E] if the observer knows them.
        degrees: degrees of all nodes [N] if the observer knows them.
        labels: labels that the protocol itself hands to the observer.
        partial: rows it knows but for sensitive columns; None where the observer names none.
        own_inputs: the rows that the observing clients' messages were computed from, where a defense states that it
            changes them; as ``own``, and empty where they are ``own``'s.
    """

    observer: Observer
    messages: Messages
    own: tuple[ClientGraph, ...]
    auxiliary: Auxiliary
    public: PublicFacts
    topology: EdgeIndex | None = None
    degrees: Degrees | None = None
    labels: KnownLabels = field(default_factory=KnownLabels.none)
    own_inputs: tuple[Tensor, ...] = ()
    partial: PartialRows | None = None

    def sent(self, kind: type[P]) -> Iterator[tuple[MessageBatch, P]]:
        """Yield the batches whose payload is of ``kind`` in the order sent, and this payload of each."""
        for batch in self.messages.of(kind):
            assert isinstance(batch.payload, kind)
            yield batch, batch.payload

    def noted(self, log: set[tuple[str, str]]) -> View:
        """Return the same view, which adds every (payload, field) that is read of its messages to ``log``."""
        return dataclasses.replace(self, messages=NotedMessages(self.messages, log, self))

    def origin(self) -> View:
        """Return the view that this one was noted from (:meth:`noted`); itself where it differs in anything else."""
        if not isinstance(self.messages, NotedMessages):
            return self
        whole = self.messages.view
        parts = (field.name for field in dataclasses.fields(self) if field.name != "messages")
        return whole if all(getattr(self, name) is getattr(whole, name) for name in parts) else self

    def known_rows(self) -> Auxiliary:
        """Own and auxiliary rows together, without repeats: the basis of any prior.

        Of a node with several samples the mean row is returned, with its first label.
        """
        nodes = torch.cat([*(c.nodes for c in self.own), self.auxiliary.nodes])
        parts = [
            *((c.x, c.y) for c in self.own),
            *([(self.auxiliary.x, self.auxiliary.y)] if len(self.auxiliary.nodes) else []),
        ]
        if not parts:
            return self.auxiliary
        x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
        unique, _, first = first_of_each(nodes)
        x, y = x[first], y[first]
        return Auxiliary(unique, x.mean(1) if x.dim() == 3 else x, y[:, 0] if y.dim() == 2 else y)
