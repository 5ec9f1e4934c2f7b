"""What the server makes of clients' messages about nodes: their sum, where a protocol has it add them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fglaudit.attacks.learned.entries import float_fields
from fglaudit.payloads import MessageBatch


@dataclass
class Totals:
    """Running sums of one round, by field and node."""

    round: int = -1
    codes: list[Tensor] = field(default_factory=list)
    parts: dict[str, list[Tensor]] = field(default_factory=dict)

    def followed(self, batch: MessageBatch) -> MessageBatch:
        """Take note of what clients sent, and return it."""
        nodes = getattr(batch.payload, "nodes", None)
        if nodes is None:
            return batch
        if batch.round != self.round:
            self.round, self.codes, self.parts = batch.round, [], {}
        self.codes.append(nodes)
        for name in float_fields(batch):
            self.parts.setdefault(name, []).append(batch.payload.tensors()[name])
        return batch

    def made_again(self, batch: MessageBatch) -> MessageBatch:
        """Return what the server sends, made of the parts that clients sent in the same round; as it is where there
        were none."""
        nodes = getattr(batch.payload, "nodes", None)
        if nodes is None or batch.round != self.round or not self.codes:
            return batch
        unique, place = torch.unique(torch.cat([*self.codes, nodes]), return_inverse=True)
        tensors, changed = batch.payload.tensors(), {}
        for name, parts in self.parts.items():
            values = torch.cat(parts).double()
            total = torch.zeros(len(unique), *values.shape[1:], dtype=torch.double)
            total.index_add_(0, place[: len(values)], values)
            changed[name] = total[place[len(values) :]].to(tensors[name].dtype)
        return dataclasses.replace(batch, payload=batch.payload.with_fields(changed))
