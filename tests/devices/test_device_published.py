"""Code of authors that is no protocol here trains on a device too, with the numbers of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from places import on_devices, place

from fglaudit.interfaces import DefenseSession, Trained
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce import published_one_hop, published_sums
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.wire.channel import RecordingChannel

CASES: dict[str, tuple[Callable[..., Trained], dict[str, float]]] = {
    "sums": (published_sums.train, {}),
    "one hop": (published_one_hop.train, {}),
    "sampled and noisy": (published_one_hop.train, {"noise": 0.1, "share": 0.5}),
}


@on_devices
@pytest.mark.parametrize("case", CASES)
def test_published_code(case: str, where_to: str) -> None:
    train, changes = CASES[case]
    graph = example_graph()

    def trained(device: torch.device) -> Trained:
        channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0))
        return train(FedGCN(rounds=2), graph, channel, derive(1), device, **changes)

    there, on_cpu = place(where_to), trained(torch.device("cpu"))
    with there.used():
        found = trained(there.device)
    assert found.weights.keys() == on_cpu.weights.keys()
    if there.exact:
        assert all(torch.equal(found.weights[name], on_cpu.weights[name]) for name in on_cpu.weights)
