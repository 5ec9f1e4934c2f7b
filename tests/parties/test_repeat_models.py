"""Rounds that start from the same model: means over other senders show single uploads, whatever seals them."""

from __future__ import annotations

from dataclasses import replace

import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.updates.differenced_updates import DifferencedUpdates, single_uploads
from fglaudit.attacks.updates.update_inversion import UpdateInversion
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.none import NoDefense
from fglaudit.defenses.stack import Stack
from fglaudit.defenses.training.dp_fedavg import DpFedAvg
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Defense
from fglaudit.observers import ObserverSpec
from fglaudit.parties.base import Behaviour
from fglaudit.parties.repeat_models import RepeatModels
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.recording import Recording, record_training
from fglaudit.rng import derive
from fglaudit.scoring.score import Scorer
from fglaudit.scoring.truth import GroundTruth
from fglaudit.testing import example_graph
from fglaudit.view import Observer

SAMPLED = FedGCN(hops=1, rounds=12, hidden=64, local_steps=1, dropout=0.0, participation=0.6)
MASKS = SecureAggregation(on=("ModelUpdate",))


def sparse() -> FederatedGraph:
    """Return a graph of 5 clients whose rows have words of their own."""
    graph = example_graph(nodes=90, features=400, clients=5)
    words = torch.rand(90, 400, generator=derive(5, "words")).topk(4, dim=1).indices
    return replace(graph, x=torch.zeros(90, 400).scatter_(1, words, 1.0))


def recorded(protocol: FedGCN, defense: Defense, active: Behaviour | None = None) -> tuple[Recording, GroundTruth]:
    return record_training(sparse(), protocol, defense, behaviour=active)


def finding(run: tuple[Recording, GroundTruth], attack: Attack) -> Finding:
    scorer = Scorer(run[1])
    [output] = run_attacks(run[0], [ObserverSpec(("server",))], [attack], nothing_to_ask=scorer.nothing_to_ask)
    return scorer.measure(output).finding


def test_means_over_other_senders_show_every_upload_as_in_the_clear() -> None:
    clear = recorded(replace(SAMPLED, participation=1.0), NoDefense())
    run = recorded(SAMPLED, MASKS, RepeatModels(rounds=12))
    found = single_uploads(run[0].view(Observer((SERVER,))))
    assert found is not None and found.clients.tolist() == [0, 1, 2, 3, 4]
    uploads = next(
        b for b in clear[0].view(Observer((SERVER,))).messages.of(ModelUpdate) if bool((b.senders != SERVER).all())
    )
    assert isinstance(uploads.payload, ModelUpdate)
    assert torch.allclose(found.uploads, uploads.payload.vector[uploads.senders.argsort()], atol=1e-5)
    shown = finding(run, DifferencedUpdates())
    one_round = finding(clear, UpdateInversion(rounds=1))
    assert shown.status is Status.OK and shown.adapted == "yes" and (shown.exact_rate or 0) > 0.8
    assert abs((shown.exact_rate or 0) - (one_round.exact_rate or 0)) < 0.1
    assert (finding(run, UpdateInversion()).exact_rate or 0) < 0.2
    assert any("receive the first model again" in note for note in run[0].notes)


def test_drop_outs_during_aggregation_do_the_same() -> None:
    dropping = SecureAggregation(on=("ModelUpdate",), dropouts=0.2)
    run = recorded(replace(SAMPLED, participation=1.0), dropping, RepeatModels(rounds=12))
    assert (finding(run, DifferencedUpdates()).exact_rate or 0) > 0.5


def test_honest_rounds_equal_senders_and_clear_uploads_show_nothing_more() -> None:
    for defense, active, why in (
        (MASKS, None, "no two rounds start"),
        (NoDefense(), RepeatModels(rounds=12), "where uploads are sealed"),
    ):
        found = finding(recorded(SAMPLED, defense, active), DifferencedUpdates())
        assert found.status is Status.NOT_APPLICABLE and why in found.reason
    always = recorded(replace(SAMPLED, participation=1.0), MASKS, RepeatModels(rounds=12))
    assert finding(always, DifferencedUpdates()).status is Status.NOT_APPLICABLE


def test_noise_of_every_round_stays_in_what_is_solved() -> None:
    private = Stack((DpFedAvg(epsilon=4, delta=1e-3, clip=0.5, trust="local"), MASKS))
    found = finding(recorded(SAMPLED, private, RepeatModels(rounds=12)), DifferencedUpdates())
    assert found.status is Status.NOT_APPLICABLE or found.exact_rate == 0


def test_what_is_impossible_is_refused_with_a_reason() -> None:
    assert "repeats 32 rounds; there are 12" in str(RepeatModels().unsupported(SAMPLED, sparse()))
    assert "not that of gfl-appnp" in str(RepeatModels(rounds=2).unsupported(GFLAPPNP(), sparse()))
