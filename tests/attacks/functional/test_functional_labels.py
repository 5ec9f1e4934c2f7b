"""Labels from functional embeddings: clients of one class each are told apart, and no client's own weights are read."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.attacks.functional.functional_labels import FunctionalLabels
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER, FunctionalEmbeddings, ModelUpdate
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View

SERVER_ALONE = Observer(parties=(SERVER,))


def lopsided() -> FederatedGraph:
    """Return a graph whose client k has nearly all of its training nodes in class k."""
    graph = example_graph(nodes=240, classes=3)
    clients = tuple(
        torch.cat([(graph.y == k).nonzero().squeeze(1), torch.tensor([(k + 1) % 3])]).sort().values for k in range(3)
    )
    masks = [torch.ones(len(ids), dtype=torch.bool) for ids in clients]
    graph = dataclasses.replace(graph, clients=clients, train=tuple(masks), val=tuple(masks), test=tuple(masks))
    return graph


def attacked(view: View) -> Inference:
    found = FunctionalLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    return found


def test_clients_of_one_class_each_are_told_apart() -> None:
    run = record(FedPub(rounds=10, hidden=16), lopsided())
    found = attacked(run.view(SERVER_ALONE))
    assert found.subjects.tolist() == [0, 1, 2]
    centred = found.estimate - found.estimate.mean(0)
    assert centred.argmax(1).tolist() == [0, 1, 2]


def test_the_clients_own_weights_are_not_read() -> None:
    view = record(FedPub(rounds=3, hidden=16), lopsided()).view(SERVER_ALONE)
    without = [*view.messages.of(FunctionalEmbeddings)]
    without += [b for b in view.messages.of(ModelUpdate) if bool((b.senders == SERVER).all())]
    bare = dataclasses.replace(view, messages=MemoryMessages(tuple(without)))
    assert torch.equal(attacked(bare).estimate, attacked(view).estimate)


def test_self_test_and_refusals() -> None:
    run = record(FedPub(rounds=3, hidden=8), example_graph(classes=2))
    attack = FunctionalLabels()
    for observer in (SERVER_ALONE, Observer(wire=True)):
        assert planted_flaw(attack, run.view(observer), derive(0, "self-test"), CPU) is None
    narrow = record(FedPub(rounds=2, hidden=2), example_graph(classes=3)).view(SERVER_ALONE)
    assert planted_flaw(attack, narrow, derive(0, "self-test"), CPU) is None
    why = attack.unsupported(run.view(Observer(parties=(0,))))
    assert why is not None and "no functional embedding of another client" in why


def test_all_clients_but_one_make_the_embedding_themselves() -> None:
    """Of the averages follow its weights; the self-test asks about models too."""
    run, attack, found = record(FedPub(rounds=5, hidden=16), lopsided()), FunctionalLabels(), []
    for last in range(3):
        view = run.view(Observer(parties=tuple({0, 1, 2} - {last})))
        assert attack.unsupported(view) is None
        assert planted_flaw(attack, view, derive(0, "self-test"), CPU) is None
        found.append(attacked(view))
    assert torch.cat([each.subjects for each in found]).tolist() == [0, 1, 2]
    estimates = torch.cat([each.estimate for each in found])
    assert (estimates - estimates.mean(0)).argmax(1).tolist() == [0, 1, 2]
