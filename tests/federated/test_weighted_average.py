"""The server's mean of models: equal weights, or by training nodes, as the settings say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fglaudit.federated.fedavg import Weighting, average
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record


def test_weights_need_not_sum_to_one() -> None:
    vectors = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    assert average(vectors, torch.tensor([1.0, 3.0])).tolist() == [0.25, 3.0]
    assert average(vectors).tolist() == [0.5, 2.0]


@pytest.mark.parametrize("weighting", ["uniform", "train-nodes"])
def test_clients_get_the_mean_that_the_settings_say(weighting: Weighting) -> None:
    graph = example_graph()
    few = (graph.train[0] & (torch.arange(len(graph.train[0])) < 6), *graph.train[1:])
    run = record(FedGCN(hops=0, rounds=1, weighting=weighting), replace(graph, train=few))
    batches = [run.transcript.read(index) for index in range(len(run.transcript.entries))]
    sent = {bool((b.senders == SERVER).all()): b.payload.tensors()["vector"] for b in batches if b.round == 1}
    counts = torch.stack([mask.sum() for mask in few]).float()
    weights = counts / counts.sum() if weighting == "train-nodes" else torch.full((len(few),), 1 / len(few))
    assert len(set(counts.tolist())) > 1
    assert torch.allclose(sent[True][0], weights @ sent[False], atol=1e-6)
