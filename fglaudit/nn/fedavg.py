"""Federated averaging (McMahan et al. 2017) with clients as a tensor dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.interfaces import Channel
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate


def sample_clients(eligible: Tensor, fraction: float, rng: torch.Generator) -> Tensor:
    """Return ``max(1, round(fraction n))`` of the n ``eligible`` clients, ascending; at fraction 1 all, without a draw."""
    if fraction >= 1:
        return eligible
    count = max(1, round(fraction * len(eligible)))
    return eligible[torch.randperm(len(eligible), generator=rng)[:count]].sort().values


def average(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean [D] of ``vectors`` [P, D]; ``weights`` [P] need not sum to one."""
    return (weights / weights.sum()) @ vectors


def upload(channel: Channel, round: int, models: Tensor, clients: Tensor) -> Tensor:
    """Send the models [K, D] of some ``clients`` [P] to the server; return what it receives [P, D]."""
    server = torch.full_like(clients, SERVER)
    return _vectors(channel, MessageBatch(round, clients, server, ModelUpdate(models[clients])))


def broadcast(channel: Channel, round: int, model: Tensor, num_clients: int) -> Tensor:
    """Send one model [D] to every client; return what each receives [K, D]."""
    clients = torch.arange(num_clients)
    payload = ModelUpdate(model.expand(num_clients, -1))
    return _vectors(channel, MessageBatch(round, torch.full_like(clients, SERVER), clients, payload))


def _vectors(channel: Channel, batch: MessageBatch) -> Tensor:
    arrived = channel.send(batch)
    assert isinstance(arrived, ModelUpdate)
    return arrived.vector
