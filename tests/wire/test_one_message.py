"""A model that the server sends to all clients is released once, with one draw of noise, however it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fglaudit.context import Context
from fglaudit.facts import Additive, Fact, Field
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record


class _Session(DefenseSession):
    def __init__(self, fault: str) -> None:
        self.fault = fault

    def changes(self, payload: type[Payload]) -> bool:
        return payload is ModelUpdate

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Add one draw of noise to what all clients get, in memory of its own for each of them."""
        if not isinstance(batch.payload, ModelUpdate) or bool((batch.senders != SERVER).any()):
            return batch.payload
        models = batch.payload.vector
        noise = torch.randn(models.shape[1:], generator=rng)
        if self.fault == "one draw of few":
            noise = torch.randn(models.shape[1:], generator=torch.Generator().manual_seed(batch.round))
        own = torch.arange(len(models)).unsqueeze(1) if self.fault == "own models" else 0
        return ModelUpdate(models.clone() + own + noise)

    def facts(self) -> tuple[Fact, ...]:
        return (Additive(Field("ModelUpdate", direction="down"), "gaussian", 1.0),)


@dataclass(frozen=True)
class ServersNoise(Defense):
    """The server's noise on the mean."""

    name: ClassVar[str] = "servers-noise"
    fault: str = "none"

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self.fault)


@pytest.mark.parametrize(("fault", "strange"), [("none", False), ("one draw of few", True), ("own models", True)])
def test_one_draw_for_one_message_to_all(fault: str, strange: bool) -> None:
    run = record(FedGCN(hops=0, rounds=3), example_graph(clients=6), ServersNoise(fault))
    assert bool(run.truth.unstated) is strange, run.truth.unstated
