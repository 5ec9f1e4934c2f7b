"""Counts what passes a channel: releases by payload and side, prepared clients, gradients. See
:mod:`fglaudit.privacy.counted`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fglaudit.payloads import SERVER, MessageBatch, is_repeated
from fglaudit.privacy.counted import Counted, Sent
from fglaudit.sealing import SealedTensor

_MIX = (0x1F123BB5159A55E5, 0x2C9277B5A7F53B1D, 0x6B2FB644ECCEEE15)
"""Odd factors of sender, receiver and node in a number for all three; products wrap around."""


class Counter:
    """Counts one run.

    Args:
        num_clients: K.
        exact: whether messages are told apart one by one, as accounting needs it; otherwise rounds are counted alone.
    """

    def __init__(self, num_clients: int, *, exact: bool) -> None:
        self._exact = exact
        self._sent: dict[tuple[str, bool], Sent] = {}
        self._round: dict[tuple[str, bool], tuple[int, list[Tensor], list[Tensor]]] = {}
        self._prepared = [0] * num_clients
        self._updates = 0
        self._examples: Tensor | None = None

    def prepared(self, client: int) -> None:
        """A client was prepared."""
        self._prepared[client] += 1

    def updated(self, gradients: Tensor) -> None:
        """Gradients [E, K, D] are about to be used."""
        used = (torch.linalg.vector_norm(gradients, ord=torch.inf, dim=2) != 0).sum(0)
        same = self._examples is not None and self._examples.shape == used.shape
        self._examples = self._examples + used if same and self._examples is not None else used
        self._updates += 1

    def sent(self, batch: MessageBatch) -> None:
        """A batch leaves its senders."""
        from_server = batch.senders == SERVER
        for by_server, chosen in ((True, from_server), (False, ~from_server)):
            if bool(chosen.any()):
                self._count(batch, by_server, chosen)

    @property
    def counted(self) -> Counted:
        """What was counted so far."""
        for key in list(self._round):
            self._close(key)
        examples = () if self._examples is None else tuple(int(n) for n in self._examples.tolist())
        return Counted(tuple(self._sent.values()), tuple(self._prepared), self._updates, examples)

    def _count(self, batch: MessageBatch, by_server: bool, chosen: Tensor) -> None:
        name = type(batch.payload).__name__
        key = (name, by_server)
        known = self._sent.get(key, Sent(name, by_server, first_round=batch.round))
        values = {n: v for n, v in batch.payload.tensors().items() if v.is_floating_point()}
        plain = [v for v in values.values() if not isinstance(v, SealedTensor)]
        numbers = max(known.numbers, sum(v[:1].numel() for v in plain) if len(batch.senders) else 0)
        fields = tuple(dict.fromkeys((*known.fields, *values)))
        if self._round.get(key, (batch.round,))[0] != batch.round:
            self._close(key)
            known = self._sent[key]
        if key not in self._round:
            self._round[key] = (batch.round, [], [])
            known = replace(known, rounds=known.rounds + 1)
        to_server = batch.receivers[chosen] == SERVER
        self._sent[key] = replace(
            known,
            numbers=numbers,
            fields=fields,
            to_server=known.to_server or bool(to_server.any()),
            to_clients=known.to_clients or not bool(to_server.all()),
        )
        if self._exact and not any(v.is_meta for v in values.values()):
            _, senders, entries = self._round[key]
            senders.append(batch.senders[chosen][:1] if self._alike(plain, by_server) else batch.senders[chosen])
            entries.append(_codes(batch, chosen))

    @staticmethod
    def _alike(values: list[Tensor], by_server: bool) -> bool:
        """Whether the server tells everybody the same."""
        return by_server and all(is_repeated(v) or bool((v == v[:1]).all()) for v in values) and bool(values)

    def _close(self, key: tuple[str, bool]) -> None:
        _, senders, entries = self._round.pop(key)
        known = self._sent[key]
        self._sent[key] = replace(
            known, messages=known.messages + _most(senders), repeats=known.repeats + _most(entries)
        )


def _codes(batch: MessageBatch, chosen: Tensor) -> Tensor:
    """Return a number for the sender, receiver and node of every entry of the ``chosen`` messages."""
    nodes = getattr(batch.payload, "nodes" if batch.payload.ragged else "node", None)
    if isinstance(nodes, Tensor) and not nodes.is_meta:
        message, about = batch.entry_messages(), nodes.cpu().long()
    else:  # all rows of a message are one
        message, about = torch.arange(len(batch.senders)), torch.zeros(len(batch.senders), dtype=torch.long)
    parts = (batch.senders.cpu()[message], batch.receivers.cpu()[message], about)
    code = sum(((part.long() + 2) * factor for part, factor in zip(parts, _MIX, strict=True)), about.new_zeros(()))
    return code[chosen.cpu()[message]]


def _most(parts: list[Tensor]) -> int:
    """Return how often the most frequent number occurs."""
    if not parts:
        return 0
    values = torch.cat([part.cpu() for part in parts])
    return int(torch.unique(values, return_counts=True)[1].max().item()) if len(values) else 0
