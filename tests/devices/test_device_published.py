"""Code of authors that is no protocol here trains on a device too, with the numbers of the CPU."""

from __future__ import annotations

import pytest
import torch
from places import on_devices, place

from fglaudit.interfaces import DefenseSession, Trained
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce.authors_code.fedgcn_one_hop import PublishedOneHop
from fglaudit.reproduce.authors_code.fedgcn_sums import PublishedSums
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.wire.channel import RecordingChannel

CASES: dict[str, FedGCN] = {
    "sums": PublishedSums(rounds=2),
    "one hop": PublishedOneHop(rounds=2),
    "sampled and noisy": PublishedOneHop(rounds=2, noise=0.1, share=0.5),
}


@on_devices
@pytest.mark.parametrize("case", CASES)
def test_published_code(case: str, where_to: str) -> None:
    graph = example_graph()

    def trained(device: torch.device) -> Trained:
        channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0))
        return CASES[case].train(graph, channel, rng=derive(1), device=device)

    there, on_cpu = place(where_to), trained(torch.device("cpu"))
    with there.used():
        found = trained(there.device)
    assert found.weights.keys() == on_cpu.weights.keys()
    if there.exact:
        assert all(torch.equal(found.weights[name], on_cpu.weights[name]) for name in on_cpu.weights)
