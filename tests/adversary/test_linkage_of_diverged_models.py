"""Messages of a training that diverged are linked to nothing, and those before it as ever."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.attacks.updates.update_linkage import UpdateLinkage
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer


def test_rounds_that_hold_no_numbers_fail_no_linkage() -> None:
    view = record(FedGCN(hops=1, rounds=2), example_graph()).view(Observer((SERVER,)))
    clients = torch.arange(view.public.num_clients)
    same = torch.randn(len(clients), 8, generator=derive(0, "models"))
    sent = (same, same, same * torch.nan, torch.full_like(same, torch.inf), same * 1e30)
    batches = tuple(
        MessageBatch(round, clients, torch.full_like(clients, SERVER), ModelUpdate(vector))
        for round, vector in enumerate(sent, start=1)
    )
    found = UpdateLinkage().run(
        dataclasses.replace(view, messages=MemoryMessages(batches)), rng=derive(0, "attack"), device=CPU
    )
    assert isinstance(found, Inference)
    scores = found.estimate.view(-1, len(clients) ** 2)
    assert bool(scores.isfinite().all())
    linked = (scores > 0.999).sum(1)
    assert linked.tolist() == [3, 0, 0, 3, 0, 0, 3, 0, 0, 0], "rounds 1, 2 and 5 alone"
