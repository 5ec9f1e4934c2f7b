"""Which labels a model was trained on: an overfitted federated GCN shows it, one that never saw a label does not."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from drawn_masks import learned_by_heart
from scored_runs import finding_of, inferred, truth_about

from fglaudit.attacking import unsuitable
from fglaudit.attacks.models.lira import Lira
from fglaudit.attacks.models.loss_threshold import LossThreshold
from fglaudit.attacks.models.rmia import Rmia
from fglaudit.attacks.models.shadow_ensemble import batched_shadows, client_weights
from fglaudit.attacks.models.shadow_federations import balanced_members, needed_shadows
from fglaudit.defenses.training.dp_sgd import DpSgd
from fglaudit.errors import FglauditError
from fglaudit.facts import GRADIENTS, Additive
from fglaudit.finding import Status
from fglaudit.interfaces import Attack
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Question
from fglaudit.quantities.ranking import found_interval
from fglaudit.rng import derive, split
from fglaudit.suite.suite import fitting, resolve
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep

GRAPH = learned_by_heart(nodes=180, features=200)
OVERFITTED = FedGCN(
    hops=2, rounds=40, optimizer="adam", learning_rate=0.03, weight_decay=0.0, dropout=0.0, local_steps=2
)
SERVER_WITH_ROWS = ObserverSpec(("server",), topology=True, auxiliary=1.0)
KNOWING = Observer(parties=(SERVER,), topology=True, auxiliary=1.0)
SHARE = 1 / 3


@pytest.fixture(scope="module")
def overfitted() -> Run:
    return record(OVERFITTED, GRAPH)


def finding(run: Run, attack: Attack) -> tuple[Status, float, str]:
    side = dataclasses.replace(run.recording.side, auxiliary={1.0: run.view(KNOWING).auxiliary})
    recording = dataclasses.replace(run.recording, side=side)
    found = finding_of(dataclasses.replace(run, recording=recording), attack, SERVER_WITH_ROWS)
    return found.status, found.auc or 0.0, found.reason


def test_an_overfitted_model_shows_whom_it_was_trained_on(overfitted: Run) -> None:
    lira, loss = (finding(overfitted, a) for a in (Lira(shadows=9, training_share=SHARE), LossThreshold()))
    rmia = finding(overfitted, Rmia(training_share=SHARE))
    assert lira[0] is loss[0] is rmia[0] is Status.OK, (lira, loss, rmia)
    assert lira[1] > 0.8 and rmia[1] > loss[1] - 0.02 > 0.5


def test_a_model_that_never_saw_the_labels_shows_nothing() -> None:
    """Its one step is too short to leave anything of them."""
    run = record(dataclasses.replace(OVERFITTED, rounds=1, learning_rate=1e-6), GRAPH)
    _, auc, _ = finding(run, Lira(shadows=6, training_share=SHARE))
    assert abs(auc - 0.5) < 0.12


@pytest.mark.parametrize(
    ("hops", "private", "weaker"),
    [(2, DpSgd(epsilon=4.0, edges="public", degree_bound=2), 1e-6), (0, DpSgd(epsilon=4.0, degree_bound=2), 1e-6)],
)
def test_differentially_private_training_hides_members_and_at_no_strength_shows_them(
    hops: int, private: DpSgd, weaker: float
) -> None:
    """At epsilon 4 (Gaussian DP of about mu = 1) the trade-off curve allows an AUC of 0.76, and 8 % of the members at
    1 % false alarms. With 0 hops models are all that leaves a client, so that this epsilon is accounted."""
    fewer = dataclasses.replace(OVERFITTED, hops=hops, rounds=12, learning_rate=0.1)
    kind = inferred("training-membership")
    hidden, shown = (
        kind.judge(asked, Lira(shadows=12, training_share=SHARE).run(seen, rng=derive(0, "lira"), device=CPU).estimate)
        for run in (record(fewer, GRAPH, defense) for defense in (private, private.weakened(weaker)))
        for asked, seen in [(_asked(run), run.view(KNOWING))]
    )
    assert hidden.columns["auc"] < 0.6 < 0.64 < shown.columns["auc"]
    assert hidden.columns["tpr_at_fpr_1"] <= 0.08


def _asked(run: Run) -> Question:
    asked = inferred("training-membership").ask(truth_about(run, KNOWING))
    assert not isinstance(asked, str)
    return asked


def test_the_question_is_about_known_labels_of_others(overfitted: Run) -> None:
    kind = inferred("training-membership")
    asked = kind.ask(truth_about(overfitted, Observer(parties=(0,), topology=True, auxiliary=1.0)))
    assert not isinstance(asked, str)
    own = GRAPH.clients[0]
    assert not bool(torch.isin(asked.subjects, own).any()) and len(asked.subjects) == GRAPH.num_nodes - len(own)
    assert float(asked.truth.sum().item()) == sum(int(m.sum().item()) for m in GRAPH.train[1:])
    nothing = kind.ask(truth_about(overfitted, Observer(parties=(SERVER,))))
    assert isinstance(nothing, str) and "auxiliary" in nothing


@pytest.mark.parametrize("hops", [0, 2])
def test_one_batch_is_federated_averaging_where_clients_see_whole_neighbourhoods_or_their_own(hops: int) -> None:
    """One step of SGD per round, on sums of two hops or on edges among own nodes: the batch's model is the protocol's
    own, weight for weight."""
    protocol = FedGCN(hops=hops, rounds=12, local_steps=1, learning_rate=1.0, weight_decay=1e-3, dropout=0.0)
    view, stream = record(protocol, GRAPH).view(KNOWING), derive(0, "both")
    members = torch.zeros(1, GRAPH.num_nodes, dtype=torch.bool)
    for nodes, train in zip(GRAPH.clients, GRAPH.train, strict=True):
        members[0, nodes[train]] = True
    owners = GRAPH.owner().unsqueeze(0)
    weights = client_weights(members, owners, GRAPH.num_clients)
    held = None if hops else owners
    found = batched_shadows(view, GRAPH.x, GRAPH.y, GRAPH.edge_index, weights, stream, CPU, held)[0]
    fit = view.public.fit
    assert fit is not None
    trained = fit(GRAPH, split(derive(0, "both"), "ensemble"), CPU).weights
    expected = torch.cat([trained[name].flatten() for name in view.public.layout])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_a_batch_of_shadow_models_finds_members_and_refuses_what_it_does_not_retrace() -> None:
    """Other local steps and dropout than one step of plain SGD are close enough; Adam's signs are not."""
    run = record(FedGCN(hops=2, rounds=30, local_steps=2, learning_rate=0.5, weight_decay=0.0, dropout=0.1), GRAPH)
    untrained = record(FedGCN(hops=2, rounds=1, learning_rate=1e-6), GRAPH)
    lira = Lira(shadows=12, training_share=SHARE, batched=True)
    (status, found, why), (_, nothing, _) = (finding(each, lira) for each in (run, untrained))
    assert status is Status.OK and found > 0.8, (found, why)
    assert abs(nothing - 0.5) < 0.12
    adam = record(dataclasses.replace(OVERFITTED, rounds=1), GRAPH)
    assert "optimizer: adam; use batched: false" in (unsuitable(Lira(batched=True), adam.view(KNOWING)) or "")
    assert not Lira(batched=True).models(Additive(GRADIENTS, "gaussian", 1.0))


def test_without_hops_models_are_read_on_rows_alone() -> None:
    """With ten clients nearly no edge takes part in a loss: over all of them the model is asked about other inputs."""
    members = torch.cat([ids[mask] for ids, mask in zip(GRAPH.clients, GRAPH.train, strict=True)])
    clients = tuple(torch.arange(k, GRAPH.num_nodes, 10) for k in range(10))
    train = tuple(torch.isin(ids, members) for ids in clients)
    none = tuple(torch.zeros_like(mask) for mask in train)
    graph = dataclasses.replace(GRAPH, clients=clients, train=train, val=none, test=tuple(~mask for mask in train))
    run = record(FedGCN(hops=0, rounds=20, local_steps=2, learning_rate=1.0, weight_decay=0.0, dropout=0.0), graph)
    lira = Lira(shadows=12, training_share=SHARE, batched=True)
    found = [finding(run, attack)[1] for attack in (LossThreshold(), lira)]
    assert min(found) > 0.9, found


def test_a_rate_that_is_asked_for_needs_non_members(overfitted: Run) -> None:
    view = overfitted.view(KNOWING)
    asked = [Lira(shadows=9, training_share=SHARE, fpr=rate) for rate in (0.01, 0.001)]
    assert asked[0].unsupported(view) is None
    why = asked[1].unsupported(view) or ""
    assert "needs at least 1000 non-members; of the 180 nodes asked about some 120 are" in why
    assert "1000 non-members" in (LossThreshold(fpr=0.001).unsupported(view) or "")
    with pytest.raises(FglauditError, match="fpr is a false-positive rate in"):
        Rmia(fpr=1.0)


def test_the_interval_of_a_rate_holds_the_true_one() -> None:
    """Gaussian scores, members shifted by 1: P(Z > 2.326 - 1) = 9.24 % of them lie above 99 % of the others."""
    draws, inside = derive(0, "scores"), 0
    for _ in range(40):
        others, members = (torch.randn(1000, generator=draws).double() + shift for shift in (0.0, 1.0))
        low, high = found_interval([(members, others)], 0.01, derive(0, "interval"))
        inside += low <= 0.0924 <= high
    assert inside >= 34


def test_of_few_members_none_found_is_not_none_to_be_found() -> None:
    """Twenty members and a rate of 1 %: a bootstrap of no find gives nothing but 0, and covered the truth with 0.28."""
    draws, inside, truth = derive(1, "scores"), 0, 0.01
    for _ in range(40):
        others, members = (torch.randn(count, generator=draws).double() for count in (1000, 20))
        low, high = found_interval([(members, others)], 0.01, derive(0, "interval"))
        inside += low <= truth <= high
    assert inside >= 36
    none, every = (torch.full((20,), value, dtype=torch.double) for value in (-1.0, 9.0))
    others = torch.arange(100).double() / 100
    assert found_interval([(none, others)], 0.01, derive(0, "none")) == pytest.approx((0.0, 0.1684), abs=1e-4)
    assert found_interval([(every, others)], 0.01, derive(0, "all")) == pytest.approx((0.8316, 1.0), abs=1e-4)


def test_one_class_alone_is_said(overfitted: Run) -> None:
    kind, truth = inferred("training-membership"), truth_about(overfitted, KNOWING)
    for word, fill in (("none", torch.zeros_like), ("all", torch.ones_like)):
        masks = tuple(fill(mask) for mask in GRAPH.train)
        free = tuple(torch.zeros_like(mask) for mask in masks)
        asked = kind.ask(dataclasses.replace(truth, graph=dataclasses.replace(GRAPH, train=masks, val=free, test=free)))
        assert isinstance(asked, str) and asked.startswith(f"{word} of the 180 labelled nodes")


def test_rates_need_non_members(overfitted: Run) -> None:
    """Of 180 nodes more than 100 do not train: enough for 1 %, not for 0.1 %."""
    kind, question = inferred("training-membership"), _asked(overfitted)
    columns = kind.judge(question, question.truth).columns
    assert columns["tpr_at_fpr_1"] == 1 and "tpr_at_fpr_01" not in columns
    fewer = dataclasses.replace(
        question, subjects=question.subjects[:90], truth=question.truth[:90], clusters=question.clusters[:90]
    )
    assert set(kind.judge(fewer, fewer.truth).columns) == {"auc"}


def test_what_it_takes(overfitted: Run) -> None:
    lira = Lira()
    assert "topology" in (unsuitable(lira, overfitted.view(Observer(parties=(SERVER,), auxiliary=0.5))) or "")
    assert "auxiliary" in (unsuitable(lira, overfitted.view(Observer(parties=(SERVER,), topology=True))) or "")
    bare = overfitted.view(KNOWING)
    bare = dataclasses.replace(bare, public=dataclasses.replace(bare.public, fit=None))
    assert "public.fit" in (lira.unsupported(bare) or "") and LossThreshold().unsupported(bare) is None


def test_too_few_shadow_models_are_refused_with_the_number() -> None:
    assert needed_shadows(0.5, 2) == 4 and needed_shadows(0.05, 2) == 30
    with pytest.raises(FglauditError, match=r"it takes 30 shadow models.*got 16; use shadows: 30"):
        Lira(training_share=0.05)
    for count, share, each in ((30, 0.05, 2), (16, 0.5, 8), (9, SHARE, 3)):
        members = balanced_members(50, count, share, derive(0, "members"))
        assert bool((members.sum(0) == each).all())
    few = [balanced_members(2, 8, 0.5, derive(seed, "members")) for seed in range(20)]
    assert all(bool((each.sum(0) == 4).all()) and bool(each.any(1).all()) for each in few), "one model trains on nobody"


def test_shadow_models_are_trained_on_request_and_one_round_is_kept() -> None:
    attacks = (Lira(), Rmia(), LossThreshold())
    assert fitting(OVERFITTED, attacks) == ()
    named = {
        "name": "named",
        "datasets": [{"name": "csbm-cora"}],
        "partitions": [{"scheme": "metis"}],
        "protocols": [{"name": "fedgcn"}],
        "observers": [{"parties": ["server"]}],
        "attacks": [{"name": "lira", "shadows": 8}],
    }
    (cell,) = resolve(named, "test").cells()
    assert cell.attacks == (Lira(shadows=8),)
    keep = Keep.for_attacks([KNOWING], attacks, OVERFITTED.num_rounds)
    assert [keep.wants(ModelUpdate, round) for round in (0, 39, 40)] == [False, False, True]
