"""A protocol of somebody else's: it sends rows in payloads of its own, turned by a matrix that its code holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive, split

_SHIFT = 0.5


@dataclass(frozen=True)
class Sketches(Payload):
    """Rows as they are shown to the server: nodes [rows], values [rows, D]."""

    ragged: ClassVar[bool] = True
    nodes: Tensor
    values: Tensor


@dataclass(frozen=True)
class Unnamed(Payload):
    """Rows of which it is not said whose they are: values [rows, D]."""

    ragged: ClassVar[bool] = True
    values: Tensor


@dataclass(frozen=True)
class Sketching(FederatedProtocol):
    """Every client shows the server its rows.

    Attributes:
        kind: "rotation" and "curve" are part of the code, "secret" draws an order of the columns in every run.
        wider: how many columns more a message has than a row.
        named: whether a message says whose row it is.
    """

    name: ClassVar[str] = "sketching"
    emits: ClassVar[tuple[type[Payload], ...]] = (Sketches, Unnamed)

    kind: str = "rotation"
    wider: int = 0
    named: bool = True

    @property
    def num_rounds(self) -> int:
        return 1

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        own = self._secret(graph.num_features, split(rng, "order"))
        for k in range(graph.num_clients):
            client = channel.prepare(graph.client(k))
            shown = self._shown(client.x.double(), own).float()
            sent = Sketches(client.nodes, shown) if self.named else Unnamed(shown)
            splits = torch.tensor([0, len(client.nodes)])
            channel.send(MessageBatch(0, torch.tensor([k]), torch.tensor([SERVER]), sent, splits))
        channel.round_done(0, 1)
        return Trained(torch.full((1, graph.num_clients), 0.5), torch.tensor([0.5]), {"weight": torch.zeros(1)})

    def _secret(self, columns: int, rng: torch.Generator) -> Tensor:
        return torch.randperm(columns, generator=rng)

    def _shown(self, rows: Tensor, order: Tensor) -> Tensor:
        """Return what is shown for ``rows`` [n, F]."""
        if self.kind == "secret":
            return rows[:, order]
        columns = rows.shape[1]
        wide = torch.randn(columns + self.wider, columns, generator=derive(3, "sketch"), dtype=torch.double)
        turned = rows @ torch.linalg.qr(wide)[0].T + _SHIFT
        return turned if self.kind == "rotation" else torch.tanh(0.25 * turned)
