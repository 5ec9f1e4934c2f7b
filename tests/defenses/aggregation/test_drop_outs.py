"""Clients that drop out of secure aggregation: means and sums are over those who are left, or the round fails."""

from __future__ import annotations

import pytest
import torch
from fedgcn_runs import adjacency
from secret_sums import SERVER_ALONE, averaging, read, send_down, send_up
from stated_facts import stated

from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.errors import FglauditError
from fglaudit.facts import Absent
from fglaudit.payloads import Ciphertexts, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record


@pytest.mark.parametrize("dropouts", [0.125, 0.25])
def test_the_mean_is_over_those_who_are_left(dropouts: float) -> None:
    models = torch.randn(8, 50, generator=torch.Generator().manual_seed(2))
    channel = averaging(8, SecureAggregation(dropouts=dropouts))
    left = set()
    for round in (1, 2, 3):
        arrived = send_up(channel, models, round)
        assert len(arrived) == round_half_up(8 * (1 - dropouts))
        mean = send_down(channel, arrived.mean(0), 8, round)[0]
        fits = [
            subset
            for subset in torch.combinations(torch.arange(8), len(arrived)).tolist()
            if torch.allclose(models[subset].mean(0), mean, atol=1e-6)
        ]
        assert len(fits) == 1
        left.add(tuple(fits[0]))
    assert len(left) > 1  # drawn anew in every round


def round_half_up(value: float) -> int:
    return int(value + 0.5)


def test_sums_lack_the_clients_that_dropped_out_and_say_which() -> None:
    graph = example_graph(clients=8)
    run = record(FedGCN(hops=1, rounds=2), graph, SecureAggregation(dropouts=0.25))
    absent = stated(run.session, Absent, "NeighborSums").clients
    assert len(absent) == 2
    present = graph.x.double() * (~torch.isin(graph.owner(), torch.tensor(absent)))[:, None]
    (batch,) = read(run, SERVER_ALONE, NeighborSums)
    assert isinstance(batch.payload, NeighborSums)
    torch.testing.assert_close(
        batch.payload.sums, (adjacency(graph) @ present).float()[batch.payload.nodes], atol=1e-6, rtol=1e-6
    )
    (shown,) = [b for b in read(run, SERVER_ALONE, Ciphertexts) if b.round == 0]
    assert set(range(8)) - set(shown.senders.tolist()) == set(absent)


def test_too_many_drop_outs_fail_the_round() -> None:
    with pytest.raises(FglauditError, match=r"needs 6 of 8 clients to the end; 4 dropped out and 4 are left"):
        record(FedGCN(hops=1, rounds=2), example_graph(clients=8), SecureAggregation(dropouts=0.5))


@pytest.mark.parametrize(("threshold", "dropouts", "together"), [(2 / 3, 0.0, 7), (1.0, 0.0, 9), (2 / 3, 0.3, 6)])
def test_all_that_are_left_but_one_need_no_shares(threshold: float, dropouts: float, together: int) -> None:
    """They take their messages off the sum: fewer than hold enough shares read each message."""
    context = FedGCN(hops=1).context(example_graph(clients=10))
    custody = SecureAggregation(threshold=threshold, dropouts=dropouts).bind(context).guarantee().key_custody
    assert f"the server and {together} of 10 clients" in custody
