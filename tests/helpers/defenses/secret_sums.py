"""Models that are sent up and down through secure aggregation, and what an observer reads of a run."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.federated.fedavg import averaged_models
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import derive
from fglaudit.testing import Run
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel

SERVER_ALONE = Observer(parties=(SERVER,))


def averaging(clients: int, defense: SecureAggregation) -> RecordingChannel:
    context = Context("averaging", 1, clients, 1, (), aggregates=averaged_models({"w": (1,)}, clients, clients, 1))
    return RecordingChannel(defense.bind(context), clients, derive(0, "defense"))


def send_up(channel: RecordingChannel, models: Tensor, round: int = 1) -> Tensor:
    clients = torch.arange(len(models))
    payload = channel.send(MessageBatch(round, clients, torch.full_like(clients, SERVER), ModelUpdate(models)))
    assert isinstance(payload, ModelUpdate)
    return payload.vector


def send_down(channel: RecordingChannel, model: Tensor, clients: int, round: int = 1) -> Tensor:
    to = torch.arange(clients)
    payload = channel.send(MessageBatch(round, torch.full_like(to, SERVER), to, ModelUpdate(model.expand(clients, -1))))
    assert isinstance(payload, ModelUpdate)
    return payload.vector


def read(run: Run, observer: Observer, payload: type[Payload]) -> list[MessageBatch]:
    return list(run.view(observer).messages.of(payload))
