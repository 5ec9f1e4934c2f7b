"""Does anything get from one party to another that was not sent to it? A protocol is given the whole graph, and all
messages, and may read more of them than a party has.

One client's rows, or its labels, or those of all clients but one, are other ones, and everybody receives what was
received before: then nobody else may send anything else, nor end with another model or accuracy. The same is asked of
labels of test nodes, which nobody trains on; and of what one party receives: of others' mail nobody may make anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit import registry
from fglaudit.conformance.comparing import same_weights
from fglaudit.conformance.outcomes import Difference, changed_elsewhere
from fglaudit.conformance.runs import Run, record
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.view import Observer

_RELATIVE, _ABSOLUTE = 1e-5, 1e-6
"""By how much numbers may differ that are computed beside others: sums over all clients at once round otherwise."""

_LITTLE = 1e-3
"""How far rows go towards other ones in a small change."""

_SHRUNK = 0.5
"""By which share the last column shrinks where zeros stay zeros, the first by nothing."""


@dataclass(frozen=True)
class _World:
    """Another graph.

    Where clients share one generator, what they draw depends on how many numbers others draw: on large changes, say, or
    on how many entries are zero. So something must move in variants too that move no such draws.

    Attributes:
        what: differs, in words.
        graph: in which it does.
        clients: whose data that are; none: everybody's.
        known: whether the server may hold them.
        little: a graph that differs little; None: not asked.
        as_many: graphs with as many zeros in every row, in one of which something must move; none: not asked.
    """

    what: str
    graph: FederatedGraph
    clients: tuple[int, ...]
    known: bool = False
    little: FederatedGraph | None = None
    as_many: tuple[FederatedGraph, ...] = ()


def carried_past(protocol: FederatedProtocol, graph: FederatedGraph, run: Run, first: KeptMessages) -> str:
    """Return in words what a party makes of others' data that no message brought it; empty if nothing was seen.

    Args:
        run: a training of ``protocol`` on ``graph`` without a defense.
        first: its messages.
    """
    for sender, receiver in first.pairs():
        other = KeptMessages(first, (sender, receiver))
        try:
            record(protocol, graph, NoDefense(), tamper=other.force)
        except FglauditError:  # it refuses messages that differ by receiver
            continue
        if (third := other.strange((sender, receiver))) is not None:
            return (
                f"what {named(sender)} sends to {named(receiver)} changes {third[0]} that {named(third[1])} sends,"
                " who never received it"
            )
    return told_without_message(protocol, graph, run, first)


def told_without_message(
    protocol: FederatedProtocol, graph: FederatedGraph, run: Run, first: KeptMessages, seed: int = 0
) -> str:
    """Return in words what others make of a client's data although everybody receives what was received before; empty
    if nothing was seen. Takes five trainings where all is well.

    Args:
        run: a training of ``protocol`` on ``graph`` by ``seed`` without a defense.
        first: its messages.
    """
    if not type(protocol).emits:
        return "" if registry.shipped("protocol", protocol) else _pooled(protocol, graph, run, seed)
    for world in _worlds(protocol, graph):
        found = _change(protocol, world.graph, world, first, run, seed)
        if found is None:
            continue
        less = None if found.of_accuracies else world.little
        if less is not None and not _change(protocol, less, world, first, run, seed):
            continue
        if not world.as_many or any(_change(protocol, one, world, first, run, seed) for one in world.as_many):
            return f"{world.what} change {found.words}"
    return ""


def _pooled(protocol: FederatedProtocol, graph: FederatedGraph, run: Run, seed: int) -> str:
    """Return what a client's data, or test labels, change elsewhere although nothing is sent; empty if nothing. Reports
    say of such a protocol that no data leave their owners; training on all in one place is what ``gcn`` is for."""
    for world in _worlds(protocol, graph):
        trained = record(protocol, world.graph, NoDefense(), seed=seed).trained
        if not world.clients:
            if not same_weights(trained, run.trained):
                return f"{world.what} change the weights that training ends with"
        elif what := changed_elsewhere(run.trained, trained, graph, world.clients):
            return f"{world.what} change {what.words}, and no message is sent at all"
    return ""


def _change(
    protocol: FederatedProtocol, graph: FederatedGraph, world: _World, first: KeptMessages, run: Run, seed: int
) -> Difference | None:
    """Return what is another one in ``graph``, one of ``world``; None if nothing is."""
    other = KeptMessages(first)
    trained = record(protocol, graph, NoDefense(), tamper=other.force, seed=seed).trained
    may = (*world.clients, SERVER) if world.known else world.clients
    if (sender := other.strange(may)) is not None:
        return Difference(f"{sender[0]} that {named(sender[1])} sends, though it received the same messages")
    own = world.clients and not world.known
    if own and (what := changed_elsewhere(run.trained, trained, graph, world.clients)):
        return replace(what, words=f"{what.words}, though everybody received the same messages")
    if not world.clients and not same_weights(trained, run.trained):
        return Difference("the weights that training ends with")
    if not world.clients and trained.round != run.trained.round:
        return Difference("which round's accuracy counts")
    return None


def named(party: int) -> str:
    return "the server" if party == SERVER else f"client {party}"


def _worlds(protocol: FederatedProtocol, graph: FederatedGraph) -> Iterator[_World]:
    """Yield graphs in which a client's own data, those of all others, or all test labels, are other ones; of nodes that
    no other client holds. Largest values stay: they may count as public."""
    client, own, _ = changed_rows(graph)
    yield _rows(f"rows of client {client}", graph, own, (client,))
    rest = torch.ones(graph.num_nodes, dtype=torch.bool)
    rest[graph.clients[client]] = False
    if bool(rest.any()):
        others = tuple(k for k in range(graph.num_clients) if k != client)
        yield _rows(f"rows of all clients but {client}", graph, rest.nonzero().squeeze(1), others)
    y = graph.y.clone()
    y[own] = _others(y[own], graph.num_classes)
    known = bool(torch.isin(own, protocol.labelled(graph, Observer((SERVER,), topology=True))).any())
    yield _World(f"labels of client {client}", replace(graph, y=y), (client,), known=known)
    tested = _tested(graph)
    y = graph.y.clone()
    y[tested] = _others(y[tested], graph.num_classes)
    yield _World("labels of test nodes", replace(graph, y=y), ())


def _rows(what: str, graph: FederatedGraph, nodes: Tensor, clients: tuple[int, ...]) -> _World:
    """Return the world in which the rows of ``nodes`` [n], those of ``clients``, are other ones."""

    def with_rows(rows: Tensor) -> FederatedGraph:
        x = graph.x.to(rows.dtype, copy=True)
        x[nodes] = rows
        return replace(graph, x=x)

    own = graph.x[nodes]
    other = other_rows(own)
    shrunk = own * (1 - _SHRUNK * torch.linspace(0, 1, own.shape[-1]))
    little = with_rows(own + _LITTLE * (other - own))
    return _World(what, with_rows(other), clients, little=little, as_many=(with_rows(shrunk), with_rows(own.flip(-1))))


def changed_rows(graph: FederatedGraph) -> tuple[int, Tensor, Tensor]:
    """Return the largest client, its nodes [n] that nobody else holds, and features [N, ..., F] in which theirs are
    others."""
    holders = torch.bincount(torch.cat(graph.clients), minlength=graph.num_nodes)
    client = max(range(graph.num_clients), key=lambda k: len(graph.clients[k]))
    own = graph.clients[client]
    own = own[holders[own] == 1]
    x = graph.x.clone()
    x[own] = other_rows(x[own])
    return client, own, x


def other_rows(rows: Tensor) -> Tensor:
    """Return the rows [n, ..., F] in other places and their entries too, half of them lost: means are other ones."""
    if not len(rows):
        return rows
    kept = rows.flip(0, -1)
    kept[::2] = kept[int(kept.flatten(1).abs().amax(1).argmax())].clone()
    return kept


def _others(labels: Tensor, classes: int) -> Tensor:
    return torch.where(labels >= 0, (labels + 1) % max(1, classes), labels)


def _tested(graph: FederatedGraph) -> Tensor:
    """Return a mask, of the shape of the labels, of what is tested and neither trained nor validated on."""
    test = torch.zeros(graph.y.shape, dtype=torch.bool)
    used = torch.zeros_like(test)
    for nodes, train, val, held in zip(graph.clients, graph.train, graph.val, graph.test, strict=True):
        test[nodes] |= held
        used[nodes] |= train | val
    return test & ~used


class KeptMessages:
    """The messages of a training, which receivers of another one get in place of its own; those from one to the other
    of the pair ``altered`` with other numbers."""

    def __init__(self, earlier: KeptMessages | None = None, altered: tuple[int, int] | None = None) -> None:
        self.batches: list[MessageBatch] = []
        self._earlier, self._altered = earlier, altered

    @staticmethod
    def with_rows(protocol: FederatedProtocol, graph: FederatedGraph, x: Tensor) -> KeptMessages:
        """Return the messages of a training of ``protocol`` without a defense, on ``graph`` with rows ``x``."""
        found = KeptMessages()
        record(protocol, replace(graph, x=x), NoDefense(), tamper=found.keep)
        return found

    def keep(self, batch: MessageBatch, payload: Payload) -> Payload:
        own = type(payload).from_tensors({n: v if v.is_meta else v.clone() for n, v in payload.tensors().items()})
        self.batches.append(replace(batch, payload=own))
        return payload

    def force(self, batch: MessageBatch, payload: Payload) -> Payload:
        self.keep(batch, payload)
        assert self._earlier is not None
        at = len(self.batches) - 1
        if at >= len(self._earlier.batches) or not aligned(self._earlier.batches[at], self.batches[at]):
            return payload
        earlier = self._earlier.batches[at]
        return earlier.payload if self._altered is None else _altered(earlier, *self._altered)

    def pairs(self) -> list[tuple[int, int]]:
        """Return senders and receivers to try: of every two kinds of parties the last receiver, and its first sender.
        A sender knows what it sent itself."""
        found: dict[tuple[bool, bool], tuple[int, int]] = {}
        for batch in self.batches:
            receiver = int(batch.receivers.max())
            sender = int(batch.senders[batch.receivers == receiver].min())
            found.setdefault((sender == SERVER, receiver == SERVER), (sender, receiver))
        return list(found.values())

    def strange(self, parties: tuple[int, ...]) -> tuple[str, int] | None:
        """Return the field that left another one than ``parties``, whose data or messages changed, and who it was; up
        to where two trainings send different messages."""
        assert self._earlier is not None
        for before, after in zip(self._earlier.batches, self.batches, strict=False):
            if not aligned(before, after):
                return None
            others = ~torch.isin(before.senders, torch.tensor(parties))
            message = before.entry_messages()
            for name in before.payload.tensors():
                entries = moved(before, after, name)
                entries = entries[others[message[entries]]]
                if len(entries):
                    return f"{name} of {type(before.payload).__name__}", int(before.senders[message[entries[0]]])
        return None


def aligned(one: MessageBatch, other: MessageBatch) -> bool:
    kinds = type(one.payload) is type(other.payload) and one.payload.shapes() == other.payload.shapes()
    parties = torch.equal(one.senders, other.senders) and torch.equal(one.receivers, other.receivers)
    return kinds and parties and (one.splits is None or torch.equal(one.splits, other.splits))  # type: ignore[arg-type]


def _altered(batch: MessageBatch, sender: int, receiver: int) -> Payload:
    """Return the payload with other numbers in what ``sender`` sends to ``receiver``."""
    mine = ((batch.senders == sender) & (batch.receivers == receiver))[batch.entry_messages()]
    changed = {}
    for name, value in batch.payload.tensors().items():
        if not value.is_meta and value.is_floating_point():
            there = mine.to(value.device).view(-1, *[1] * (value.dim() - 1))
            value = torch.where(there, value * 1.5 + 0.1, value)
        changed[name] = value
    return type(batch.payload).from_tensors(changed)


def moved(one: MessageBatch, other: MessageBatch, name: str = "") -> Tensor:
    """Return which entries of the leading axis differ by more than roundoff, in the field ``name`` or in any."""
    count = len(one.senders) if one.splits is None else int(one.splits[-1].item())
    found = torch.zeros(count, dtype=torch.bool)
    fields = other.payload.tensors()
    for field, value in one.payload.tensors().items():
        if name in ("", field) and not value.is_meta:
            close = torch.isclose(value.double(), fields[field].double(), _RELATIVE, _ABSOLUTE, equal_nan=True)
            found |= ~close.reshape(count, -1).all(1).cpu()
    return found.nonzero().squeeze(1)
