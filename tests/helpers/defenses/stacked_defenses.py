"""Stacks and their parts, and a part that states nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from user_graphs import GCN, user_graph

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.defenses.stack import Stack
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.testing import example_graph

SUMS, GRAPH = FedGCN(hops=1, rounds=3), example_graph()
MATRICES = FedGAT(variant="matrix", rounds=2, heads=2)
SHARED, USERS = CNFGNN(**GCN), user_graph()

NOISE = {"name": "gaussian", "epsilon": 4.0, "clip": 2.0}
DP_SGD = {"name": "dp-sgd", "edges": "public"}
HE = {"name": "homomorphic-encryption", "scheme": "ckks"}
SECRET_SUMS = {"name": "secure-aggregation"}


def stack(*parts: dict[str, Any] | str | Defense) -> Stack:
    built = registry.build("defense", "stack", {"parts": list(parts)})
    assert isinstance(built, Stack)
    return built


class SilentSession(DefenseSession):
    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        return batch.payload


@dataclass(frozen=True)
class Silent(Defense):
    """States nothing of what it does."""

    name: ClassVar[str] = "silent"

    def bind(self, context: Context) -> DefenseSession:
        return SilentSession()
