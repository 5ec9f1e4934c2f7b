"""Defenses that behave where they are asked again, or hide in right noise what they remember.

A suite names one as ``{name: "bench/redteam/hostile_copies.py:Remembers", kind: copy-aware}``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Additive, Clipped, Fact, Field
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive

HONEST = ("honest", "honest-clip")
"""Nobody may be accused of these."""
KINDS = ("copy-aware", "draws-aware", "outside", "fraction-memory", "low-bits-memory", "clip-memory",
         "clip-bits")  # fmt: skip
_CALLED: list[int] = []


@dataclass(frozen=True)
class Remembers(Defense):
    """Plant one of the kinds on sums of neighbours, or on models.

    Attributes:
        std: of the noise on sums that is stated.
    """

    name: ClassVar[str] = "remembers"
    shown: ClassVar[tuple[str, ...]] = ("kind",)

    kind: str = "copy-aware"
    std: float = 50.0

    def bind(self, context: Context) -> DefenseSession:
        return (_Aware if self.kind == "copy-aware" else _Session)(self)

    def weakened(self, factor: float) -> Remembers:
        return replace(self, std=self.std * factor)


class _Session(DefenseSession):
    def __init__(self, defense: Remembers) -> None:
        self.kind, self.std = defense.kind, defense.std
        self.rows: dict[int, Tensor] = {}
        self.me = id(self)
        self.drawn: Tensor | None = None
        self.is_copy = False

    def facts(self) -> tuple[Fact, ...]:
        sums, models = Field("NeighborSums", "", "up"), Field("ModelUpdate", "", "up")
        noise = Additive(sums, "gaussian", self.std)
        return (noise, Clipped(models, "L2", 1e6)) if "clip" in self.kind else (noise,)

    def changes(self, payload: type[Payload]) -> bool:
        return payload.__name__ == "NeighborSums" or (payload.__name__ == "ModelUpdate" and "clip" in self.kind)

    def prepares(self) -> bool:
        return True

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        self.rows |= dict(zip(client.nodes.tolist(), client.x.clone(), strict=True))
        return client

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not self.changes(type(batch.payload)) or bool((batch.senders == SERVER).all()):
            return batch.payload
        sent: dict[str, Any] = batch.payload.tensors()
        if "vector" in sent:
            sent["vector"] = self._told(sent["vector"].clone(), batch.round)
            return type(batch.payload).from_tensors(sent)
        sent["sums"] = sent["sums"] + self._noise(sent["sums"], sent["nodes"].tolist(), rng)
        if self.kind == "low-bits-memory":
            sent["sums"] = _hidden(sent["sums"], self._of(sent["nodes"].tolist(), sent["sums"]))
        return type(batch.payload).from_tensors(sent)

    def _of(self, nodes: list[int], like: Tensor) -> Tensor:
        return torch.stack([self.rows.get(node, torch.zeros(like.shape[1])) for node in nodes]) > 0

    def _noise(self, value: Tensor, nodes: list[int], rng: torch.Generator) -> Tensor:
        public = self.std * torch.randn(value.shape, generator=derive(9, "public"))
        state = rng.get_state()
        noise = self.std * torch.randn(value.shape, generator=rng)
        if self.kind == "fraction-memory":
            whole = noise.floor()
            return whole + (noise - whole) / 2 + 0.5 * self._of(nodes, value)
        known = {
            "copy-aware": not self.is_copy,
            "id-aware": id(self) == self.me,
            "draws-aware": self.drawn is None or torch.equal(self.drawn, state),
            "outside": not _CALLED,
        }.get(self.kind, False)
        if self.kind == "outside":
            _CALLED.append(1)
        self.drawn = rng.get_state()
        return public if known else noise

    def _told(self, vector: Tensor, round: int) -> Tensor:
        if self.kind == "honest-clip":
            length = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
            clipped: Tensor = vector * (1e6 / length.clamp(min=1e6))
            return clipped
        bits: Tensor = torch.cat(list(self.rows.values())) > 0
        if self.kind == "clip-bits":
            bits = torch.arange(len(bits)) * round % 2 > 0
        told = vector[:, : len(bits)]
        vector[:, : len(bits)] = _with_bit(told, 1, bits[: told.shape[1]].expand(told.shape))
        return vector


class _Aware(_Session):
    def __deepcopy__(self, memo: dict[int, Any]) -> _Aware:
        new = object.__new__(type(self))
        memo[id(self)] = new
        vars(new).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        new.is_copy = True
        return new


def _with_bit(values: Tensor, place: int, bits: Tensor) -> Tensor:
    raw = values.float().contiguous().view(torch.int32)
    return ((raw & ~(1 << place)) | (bits.int() << place)).view(torch.float32)


def _hidden(values: Tensor, bits: Tensor) -> Tensor:
    """Put ``bits`` under one more bit of each number, so that they look drawn."""
    raw = values.float().contiguous().view(torch.int32)
    return _with_bit(values, 0, bits ^ ((raw >> 8) & 1).bool())
