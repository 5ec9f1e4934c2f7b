"""Which client holds a node: whose upload learned its label."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scored_runs import inferred, truth_about

from fglaudit.attacking import unsuitable
from fglaudit.attacks.models.client_gains import ClientGains
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Attempt
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer

KNOWING = Observer(parties=(SERVER,), topology=True, auxiliary=1.0)
GRAPH = example_graph(nodes=150, features=60)
EVERYBODY = dataclasses.replace(
    GRAPH,
    train=tuple(torch.arange(len(nodes)) > 0 for nodes in GRAPH.clients),
    val=tuple(torch.zeros(len(nodes), dtype=torch.bool) for nodes in GRAPH.clients),
    test=tuple(torch.arange(len(nodes)) == 0 for nodes in GRAPH.clients),
)


def result(run: Run, attack: ClientGains) -> Inference:
    found = attack.run(run.view(KNOWING), rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    return found


@pytest.mark.parametrize("rounds", [1, 10])
def test_uploads_tell_whose_nodes_they_were_trained_on(rounds: int) -> None:
    """Labels are random, so that nothing but the client's own steps teaches a node's label."""
    run = record(FedGCN(hops=2, rounds=10, learning_rate=2.0, dropout=0.0), EVERYBODY)
    view, kind = run.view(KNOWING), inferred("node-owner")
    asked = kind.ask(truth_about(run, KNOWING))
    assert not isinstance(asked, str)
    guess = kind.guess(view, asked.subjects, derive(0, "guess"))
    attack = ClientGains(rounds=rounds)
    compared = kind.compare(attack, [Attempt(view, asked, result(run, attack), guess)])
    assert (compared.columns["auc"] or 0) > 0.6 and compared.columns["control_auc"] == 0.5
    shares = compared.breakdown["nodes of the client"]
    assert shares["in training"] > 0.6 and set(shares) == {"in training", "not in training"}


def test_a_step_that_learns_nothing_tells_nothing() -> None:
    """Dealt at random among the clients, a node's gains say nothing of where it went."""
    run = record(FedGCN(hops=2, rounds=3, learning_rate=2.0, dropout=0.0), EVERYBODY)
    kind = inferred("node-owner")
    asked = kind.ask(truth_about(run, KNOWING))
    assert not isinstance(asked, str)
    found = result(run, ClientGains())
    dealt = torch.randint(GRAPH.num_clients, (GRAPH.num_nodes,), generator=derive(0, "dealt"))
    other = dataclasses.replace(asked, truth=(asked.subjects[:, 0] == dealt[asked.subjects[:, 1]]).double())
    assert abs(kind.score(other, found, found).columns["auc"] - 0.5) < 0.1


def test_what_it_takes() -> None:
    run = record(FedGCN(hops=1, rounds=1), GRAPH)
    attack = ClientGains()
    assert "topology" in (unsuitable(attack, run.view(Observer(parties=(SERVER,), auxiliary=1.0))) or "")
    assert "others upload" in (unsuitable(attack, run.view(Observer(parties=(0,), topology=True, auxiliary=1.0))) or "")
    sealed = record(FedGCN(hops=1, rounds=1), GRAPH, defense=SecureAggregation())
    assert "others upload" in (unsuitable(attack, sealed.view(KNOWING)) or "")
    with pytest.raises(FglauditError, match="rounds counts the uploads that are read"):
        ClientGains(rounds=0)


def test_clients_of_few_features_are_told_apart_and_a_lone_uploader_is_not() -> None:
    """With three features one node was planted, at one client: there was nothing to tell apart, and the row failed."""
    few = example_graph(nodes=60, features=3)
    view = record(FedGCN(hops=2, rounds=2), few).view(KNOWING)
    assert planted_flaw(ClientGains(), view, derive(0, "self-test"), CPU) is None
    none = tuple(mask & (k == 0) for k, mask in enumerate(few.train))
    view = record(FedGCN(hops=2, rounds=2), dataclasses.replace(few, train=none)).view(KNOWING)
    assert "a single client uploads" in (unsuitable(ClientGains(), view) or "")
