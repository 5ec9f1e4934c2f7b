"""FedGT and FED-PUB: all clients but one have the uploads of the one, from the averages that they are sent."""

from __future__ import annotations

import pytest
import torch

from fglaudit.adversary.uploads.held import codebooks, model_rounds, others_upload
from fglaudit.adversary.uploads.personal_averages import last_uploads
from fglaudit.attacks.global_nodes.global_node_labels import GlobalNodeLabels
from fglaudit.attacks.global_nodes.global_node_membership import GlobalNodeMembership
from fglaudit.attacks.global_nodes.one_node_clusters import OneNodeClusters
from fglaudit.attacks.updates.adam_shares import AdamShares
from fglaudit.attacks.updates.update_labels import UpdateLabels
from fglaudit.defenses.none import NoDefense
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import GlobalNodes, ModelUpdate
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.recording import Kept, record_training
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep

SERVER = Observer(parties=(-1,))


def trained(**settings: object) -> Run:
    graph = example_graph(nodes=120, clients=4)
    return record(FedGT(rounds=2, hidden=32, encoding=4, **settings), graph)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_the_last_upload_is_found(scale: float) -> None:
    run = trained(global_scale=scale)
    rounds = last_uploads(run.view(Observer(parties=(0, 1, 3))))
    nodes = codebooks(run.view(SERVER), 2)
    assert len(rounds) == 2
    for index, (found, sent) in enumerate(zip(rounds, model_rounds(run.view(SERVER), 2), strict=True)):
        assert found.client == 2
        assert float((found.change[0] - sent.change[2]).norm() / sent.change[2].norm()) < 1e-2
        torch.testing.assert_close(found.model[0], sent.received[2], atol=1e-4, rtol=1e-3)
        assert found.received is not None and found.uploaded is not None
        torch.testing.assert_close(found.received[0], nodes.received[index, 2], atol=1e-3, rtol=1e-2)
        torch.testing.assert_close(found.uploaded[0], nodes.uploaded[index, 2], atol=1e-3, rtol=1e-2)


def test_the_last_upload_of_fedpub_is_found_and_attacked() -> None:
    run = record(FedPub(rounds=3, hidden=16), example_graph(nodes=120, clients=4))
    view = run.view(Observer(parties=(0, 1, 3), auxiliary=0.2))
    rounds = last_uploads(view)
    assert len(rounds) == 3 and all(found.sound for found in rounds)
    for found, sent in zip(rounds, model_rounds(run.view(SERVER), 3), strict=True):
        torch.testing.assert_close(found.model[0], sent.received[2], atol=1e-5, rtol=1e-4)
        assert float((found.change[0] - sent.change[2]).norm() / sent.change[2].norm()) < 1e-3
    assert others_upload(view, ModelUpdate) and not others_upload(view, GlobalNodes)


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_one_of_two_has_the_others_upload(scale: float) -> None:
    """A single average leaves its weight open; the global nodes of the average, of which it was made, do not."""
    run = record(FedGT(rounds=2, hidden=32, encoding=4, global_scale=scale), example_graph(nodes=120, clients=2))
    rounds = last_uploads(run.view(Observer(parties=(0,))))
    assert len(rounds) == 2
    for found, sent in zip(rounds, model_rounds(run.view(SERVER), 2), strict=True):
        assert found.sound and found.client == 1
        assert float((found.change[0] - sent.change[1]).norm() / sent.change[1].norm()) < 1e-3


def test_one_of_two_has_the_others_upload_of_fedpub() -> None:
    """No global nodes tell the weight of the single average: the other's model moved as far as one's own."""
    run = record(FedPub(rounds=4, hidden=16), example_graph(nodes=120, clients=2))
    for one, other in ((0, 1), (1, 0)):
        rounds = last_uploads(run.view(Observer(parties=(one,))))
        assert len(rounds) == 4
        for found, sent in zip(rounds, model_rounds(run.view(SERVER), 4), strict=True):
            assert found.sound and found.client == other
            assert float(torch.cosine_similarity(found.change[0], sent.change[other], 0)) > 0.99


@pytest.mark.parametrize("protocol", [FedPub(rounds=2, hidden=16), FedGT(rounds=2, hidden=32, encoding=4)])
def test_what_weights_are_made_of_is_kept_for_an_attack_on_models_alone(protocol: FederatedProtocol) -> None:
    observer = Observer(parties=(0, 1, 3))
    keep = Keep.for_attacks([observer], [AdamShares()], 2)
    recording, _ = record_training(example_graph(nodes=120, clients=4), protocol, NoDefense(), keep=Kept(messages=keep))
    assert AdamShares().unsupported(recording.view(observer)) is None


def test_global_nodes_give_weights_that_models_hardly_do() -> None:
    """Uploads differ little after one step: weights from models alone were off by percents, and single nodes in
    clusters, all that a self-test has, were found in half of its draws."""
    view = trained().view(Observer(parties=(0, 1, 3), auxiliary=0.2))
    flaws = [planted_flaw(OneNodeClusters(), view, derive(draw, "single nodes"), CPU) for draw in range(6)]
    assert flaws == [None] * 6


def test_two_others_stay_hidden_and_all_from_one_average_for_all() -> None:
    assert not last_uploads(trained().view(Observer(parties=(0, 1))))
    assert not last_uploads(trained(similarity="fedavg").view(Observer(parties=(0, 1, 3))))


def test_attacks_on_uploads_run_on_it() -> None:
    """Attacks on global nodes and updates pass their self-tests; who holds a node is no question any more."""
    view = trained().view(Observer(parties=(0, 1, 3), auxiliary=0.2))
    for attack in (UpdateLabels(), GlobalNodeLabels(), OneNodeClusters()):
        assert attack.unsupported(view) is None
        assert planted_flaw(attack, view, derive(0, attack.name), CPU) is None, attack.name
    assert "that client's" in str(GlobalNodeMembership().unsupported(view))
