"""Label distributions of training nodes from the directions in which Adam moves a last layer."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.functional import one_hot

from fglaudit.attacks.updates.adam_shares import AdamShares, Moves, shares_of_steps
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol, Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.scoring.selftest import NoiseMessages, planted_flaw
from fglaudit.testing import CPU, check_attack, example_graph, record
from fglaudit.view import Observer, View

SERVER_ALONE, ALL_BUT_ONE = Observer(parties=(SERVER,)), Observer(parties=(0, 1, 2))
SAGE, GCFL = FedAvgSage(hidden=32, rounds=3), GCFLSage(hidden=32, rounds=3)


def skewed() -> FederatedGraph:
    """Return a graph of four clients, each with half of its nodes in a class of its own, and rows that tell classes."""
    graph = example_graph(nodes=160, features=32, clients=4)
    y, classes = graph.y.clone(), graph.num_classes
    for client, nodes in enumerate(graph.clients):
        y[nodes] = torch.where(torch.arange(len(nodes)) % 2 == 0, client % classes, torch.arange(len(nodes)) % classes)
    return dataclasses.replace(graph, y=y, x=one_hot(y, 32).float() + one_hot(torch.arange(160) % 20 + 10, 32).float())


def answer(view: View) -> Inference:
    found = AdamShares().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    return found


NOISE = ClippedLaplace(clip=0.002, scale=0.001, on=("ModelUpdate",))


@pytest.mark.parametrize(("protocol", "defense"), [(SAGE, None), (GCFL, None), (GCFL, NOISE)])
def test_a_server_that_knows_nothing_reads_shares_of_every_client(
    protocol: FederatedProtocol, defense: Defense | None
) -> None:
    graph = skewed()
    view = record(protocol, graph, defense).view(SERVER_ALONE)
    assert AdamShares().unsupported(view) is None
    found, held = answer(view), zip(graph.clients, graph.train, strict=True)
    truth = torch.stack([one_hot(graph.y[nodes][train], graph.num_classes).double().mean(0) for nodes, train in held])
    truth = truth[found.subjects]
    overlap, guess = (1 - (each - truth).abs().sum(1).mean() / 2 for each in (found.estimate, truth.mean(0)))
    assert overlap > guess + 0.1, "the true shares of all clients together are a worse answer"


@pytest.mark.parametrize("observer", [SERVER_ALONE, ALL_BUT_ONE])
def test_self_tests_succeed_and_noise_has_an_answer(observer: Observer) -> None:
    view = record(SAGE, example_graph(nodes=120, clients=4)).view(observer)
    assert AdamShares().unsupported(view) is None
    check_attack(AdamShares(), view)
    assert planted_flaw(AdamShares(), view, derive(0, "self-test"), CPU) is None
    noise = answer(dataclasses.replace(view, messages=NoiseMessages(view.messages, 0)))
    assert set(noise.subjects.tolist()) == {0, 1, 2, 3} - set(observer.clients)


def test_units_of_either_sign_say_the_same_and_noise_says_nothing() -> None:
    rng, known = derive(0, "units"), torch.tensor([0.7, 0.2, 0.1]).double()
    up = torch.tensor([[1.0, -1, -1], [-1, 1, -1]]).double()
    sign = torch.rand(40, 1, generator=rng).sub(0.5).sign().double()
    clients, units = torch.arange(2), up.unsqueeze(1).expand(-1, 40, -1)
    plain, turned = (shares_of_steps(Moves(clients, part, up, 0.0), known) for part in (units, sign * units))
    torch.testing.assert_close(plain, turned)
    assert bool((plain.argmax(1) == torch.tensor([0, 1])).all())
    drowned = Moves(clients, 100 * torch.randn(units.shape, generator=rng).double(), up, 1e4)
    assert bool((shares_of_steps(drowned, known).argmax(1) == 0).all()), "what is known beforehand is left"


def test_the_less_units_agree_with_biases_the_more_even_classes_are() -> None:
    """Where units move each its own way classes are nearly even, which is not what is known of other nodes."""
    rng, known = derive(0, "units"), torch.tensor([0.8, 0.1, 0.1]).double()
    up = torch.tensor([[1.0, -1, -1]]).double()
    alike = up.unsqueeze(1).expand(1, 300, 3)
    apart = torch.where(torch.rand(1, 300, 1, generator=rng) < 0.05, alike, torch.rand(1, 300, 3, generator=rng) - 0.5)
    one, other = (
        shares_of_steps(Moves(torch.arange(1), part, up, 0.0), known) for part in (alike, apart.sign().double())
    )
    assert float(one[0, 0]) > 0.9
    assert float(other[0, 0]) < 0.75, "0.95 where how much they agree is not asked"


def test_a_layout_without_biases_and_a_lone_client_are_refused() -> None:
    graph = example_graph(nodes=120, clients=4)
    for without in (FedGCN(rounds=2), DistGAT(rounds=2, optimizer="adam")):  # attention vectors [1, C] are no biases
        assert "bias" in (AdamShares().unsupported(record(without, graph).view(SERVER_ALONE)) or "")
    assert "averages" in (AdamShares().unsupported(record(SAGE, graph).view(Observer(parties=(0,)))) or "")
