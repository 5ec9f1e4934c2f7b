"""Inferences: every quantity's truth, control and score against values that can be checked by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from scored_runs import inferred
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fglaudit.attacks.updates.update_shares import UpdateShares
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import QUANTITIES, Attempt, ObserverTruth, Question, quantity
from fglaudit.quantities.base import ALL_ROWS_KNOWN
from fglaudit.quantities.nodes.edges import likely_pairs
from fglaudit.quantities.ranking import found_at, placements
from fglaudit.recording import Recording
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer, PartialRows, View
from fglaudit.wire.side_knowledge import draw_auxiliary

GRAPH = example_graph()
SERVER_ONLY = Observer(parties=(SERVER,))
CONTROL = derive(0, "control")
ASKED_EVERYWHERE = [
    name for name in QUANTITIES if name not in ("features", "global-nodes", "centroids")
]  # the last two are asked of FedGT alone; feature rows have tests of their own (test_game.py)


def facts(
    observer: Observer = SERVER_ONLY, protocol: FederatedProtocol | None = None, graph: FederatedGraph = GRAPH
) -> ObserverTruth:
    known, partial = PartialRows.apart(draw_auxiliary(graph, observer.auxiliary, 0), observer.sensitive)
    return ObserverTruth(graph, protocol or FedGCN(hops=1), observer, known, {}, False, partial=partial)


def knowing(name: str) -> Observer:
    """Return a server that knows enough to be asked about the quantity ``name``."""
    if name == "attributes":
        return dataclasses.replace(SERVER_ONLY, auxiliary=0.6, sensitive=(1, 4))
    return dataclasses.replace(SERVER_ONLY, auxiliary=0.2)


def view(observer: Observer = SERVER_ONLY) -> View:
    return record(FedGCN(hops=0, rounds=1)).view(observer)


def ask(name: str, observer: Observer = SERVER_ONLY) -> Question:
    question = quantity(name).ask(facts(observer))
    assert isinstance(question, Question)
    return question


def infer(name: str, subjects: Tensor, estimate: Tensor) -> Inference:
    return Inference(name, subjects, estimate)


@pytest.mark.parametrize("ties", [False, True])
def test_placements_average_to_the_area_under_the_curve(ties: bool) -> None:
    rng = derive(0, "auc")
    positive, negative = torch.randn(40, generator=rng) + 0.5, torch.randn(70, generator=rng)
    if ties:
        positive, negative = positive.round(), negative.round()
    truth = torch.cat([torch.ones(40), torch.zeros(70)])
    expected = roc_auc_score(truth.numpy(), torch.cat([positive, negative]).numpy())
    assert float(placements(positive, negative).mean()) == pytest.approx(expected)


def test_unlisted_negatives_count_like_listed_ones_with_the_lowest_score() -> None:
    positive, negative = torch.tensor([3.0, -float("inf")]), torch.tensor([5.0, 1.0])
    whole = torch.cat([negative, torch.full((6,), -float("inf"))])
    assert placements(positive, negative, rest=6).tolist() == placements(positive, whole).tolist() == [7 / 8, 3 / 8]
    for rate in (0.0, 0.1, 0.25, 0.5, 0.9):
        assert found_at(positive, negative, rate, rest=6).tolist() == pytest.approx(
            found_at(positive, whole, rate).tolist()
        )


def test_a_constant_score_finds_as_many_as_it_wrongly_names() -> None:
    same = torch.zeros(50, dtype=torch.double)
    assert found_at(same, same, 0.01).tolist() == pytest.approx([0.01] * 50)


@pytest.mark.parametrize("name", ASKED_EVERYWHERE)
def test_the_truth_scores_one_and_the_guess_less(name: str) -> None:
    observer = knowing(name)
    question = ask(name, observer)
    kind = inferred(name)
    truth = question.truth
    if name == "labels":
        truth = torch.nn.functional.one_hot(truth, GRAPH.num_classes).double()
    guess = kind.guess(view(observer), question.subjects, CONTROL)
    perfect = kind.score(question, infer(name, question.subjects, truth), guess)
    guessed = kind.score(question, guess, guess)
    assert perfect.values.mean() == 1.0
    assert guessed.values.mean() < 0.9
    assert len(perfect.values) == len(perfect.clusters) == len(guessed.values)


@pytest.mark.parametrize("name", [name for name in ASKED_EVERYWHERE if name != "edges"])
def test_where_an_attack_is_silent_the_guess_stands_and_order_does_not_matter(name: str) -> None:
    observer = knowing(name)
    question, kind = ask(name, observer), inferred(name)
    guess = kind.guess(view(observer), question.subjects, CONTROL)
    nothing = infer(name, question.subjects[:0], guess.estimate[:0])
    assert torch.equal(kind.score(question, nothing, guess).values, kind.score(question, guess, guess).values)
    estimate = torch.rand(guess.estimate.shape, generator=derive(0, "estimate"))
    order = torch.randperm(len(question.subjects), generator=derive(0, "order"))
    straight = kind.score(question, infer(name, question.subjects, estimate), guess)
    shuffled = kind.score(question, infer(name, question.subjects[order], estimate[order]), guess)
    assert torch.equal(straight.values, shuffled.values)


def test_edges_are_ranked_among_all_pairs_of_foreign_nodes() -> None:
    observer = Observer(parties=(0,))
    question = ask("edges", observer)
    foreign = torch.cat([GRAPH.clients[1], GRAPH.clients[2]])
    assert len(question.subjects) + question.rest == len(foreign) * (len(foreign) - 1) // 2
    assert bool(torch.isin(question.subjects, foreign).all())
    # All pairs listed, with own ones on top: they are no mistakes, because they are not asked about.
    nodes = torch.arange(GRAPH.num_nodes)
    pairs = torch.combinations(nodes)
    score = torch.rand(len(pairs), generator=derive(0, "pairs"))
    own = ~(torch.isin(pairs, foreign).all(1))
    adjacent = torch.zeros(GRAPH.num_nodes, GRAPH.num_nodes, dtype=torch.bool)
    adjacent[GRAPH.edge_index[0], GRAPH.edge_index[1]] = True
    found = inferred("edges").score(
        question, infer("edges", pairs.flip(1), score + own), inferred("edges").guess(view(), pairs, CONTROL)
    )
    expected = roc_auc_score(adjacent[pairs[~own, 0], pairs[~own, 1]].numpy(), score[~own].numpy())
    assert found.columns["auc"] == pytest.approx(expected)


def test_edges_that_are_not_named_rank_last() -> None:
    question, kind = ask("edges"), inferred("edges")
    guess = kind.guess(view(), question.subjects, CONTROL)
    assert kind.score(question, guess, guess).columns["auc"] == pytest.approx(0.5)
    half = question.subjects[: len(question.subjects) // 2]
    share = len(half) / len(question.subjects)
    found = kind.score(question, infer("edges", half, torch.ones(len(half))), guess)
    assert found.columns["auc"] == pytest.approx(share + (1 - share) / 2)
    assert found.columns["tpr_at_fpr_1"] == pytest.approx(share + (1 - share) * 0.01, abs=1e-3)


class Labelling(FedGCN):
    """A protocol whose server holds the labels of the first client's nodes."""

    def labelled(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        return graph.clients[0] if SERVER in observer.parties else super().labelled(graph, observer)


def test_labels_that_the_protocol_gives_away_are_known_and_not_asked_for() -> None:
    protocol = Labelling(hops=1, rounds=1)
    question = quantity("labels").ask(facts(protocol=protocol))
    assert isinstance(question, Question)
    assert not bool(torch.isin(question.subjects, GRAPH.clients[0]).any())
    seen = record(protocol).view(SERVER_ONLY)
    assert torch.equal(seen.labels.nodes, GRAPH.clients[0]) and torch.equal(seen.labels.y, GRAPH.y[GRAPH.clients[0]])


def test_with_the_topology_the_guess_of_labels_follows_the_edges() -> None:
    observer = Observer(parties=(SERVER,), auxiliary=0.3, topology=True)
    question, kind = ask("labels", observer), inferred("labels")
    blind = kind.guess(view(dataclasses.replace(observer, topology=False)), question.subjects, CONTROL)
    informed = kind.guess(view(observer), question.subjects, CONTROL)
    plain, spread = (kind.score(question, guess, guess).values.mean() for guess in (blind, informed))
    assert spread > plain + 0.1


def test_what_cannot_be_asked_has_a_reason() -> None:
    for name, observer in (("edges", dataclasses.replace(SERVER_ONLY, topology=True)), ("node-owner", SERVER_ONLY)):
        reason = quantity(name).ask(facts(observer))
        assert isinstance(reason, str) and reason
    with pytest.raises(FglauditError, match="labels"):
        quantity("label")


def test_label_distributions_are_those_of_the_clients() -> None:
    question = ask("label-distributions", Observer(parties=(1,)))
    assert question.subjects.tolist() == [0, 2]
    for client, row in zip(question.subjects.tolist(), question.truth, strict=True):
        counts = torch.bincount(GRAPH.y[GRAPH.clients[client]], minlength=GRAPH.num_classes)
        assert torch.allclose(row, counts.double() / counts.sum())


def test_views_keep_their_labels_when_saved(tmp_path: Path) -> None:
    run = record(Labelling(hops=0, rounds=1))
    seen = run.view(SERVER_ONLY)
    run.recording.save(tmp_path)
    loaded = Recording.load(tmp_path).view(SERVER_ONLY)
    assert torch.equal(loaded.labels.nodes, GRAPH.clients[0]) and torch.equal(loaded.labels.y, seen.labels.y)


def test_who_knows_all_rows_beforehand_is_told_so_and_not_that_none_is_sent() -> None:
    truth = record(FedGCN(hops=1, rounds=1)).truth
    for share, why in ((1.0, ALL_ROWS_KNOWN), (0.5, None)):
        (about,) = truth.about([Observer((SERVER,), auxiliary=share)], False)
        kind = quantity("features")
        assert kind.nothing_to_ask([kind.ask(about)]) == why
    norms = quantity("l1-norms")
    (about,) = truth.about([Observer((SERVER,), auxiliary=1.0)], False)
    assert norms.nothing_to_ask([norms.ask(about)]) == ALL_ROWS_KNOWN


def test_even_shares_are_no_more_than_a_guess_where_training_nodes_are_drawn_per_class() -> None:
    """Known labels say that half of all nodes are of one class, of which no more train than of another."""
    clients, skewed = torch.arange(3), torch.tensor([0.5, 0.25, 0.25]).double().expand(3, -1)
    even = torch.full((3, 3), 1 / 3, dtype=torch.double)
    guess, result = infer("training-labels", clients, skewed), infer("training-labels", clients, even)
    kind, seen = inferred("training-labels"), view()
    for truth, control in ((even, 1.0), (skewed, 1.0), (torch.eye(3).double(), 1 / 3)):
        attempt = Attempt(seen, Question(clients, truth, clients), result, guess)
        compared = kind.compare(UpdateShares(), [attempt])
        assert float(compared.controls.mean()) == pytest.approx(control)


def test_likely_pairs_in_blocks_are_those_of_the_whole_product() -> None:
    rows = torch.randn(2500, 20, dtype=torch.double, generator=derive(0, "rows"))
    pairs, products = likely_pairs(rows)
    first, second = torch.triu_indices(2500, 2500, offset=1)
    whole = (rows @ rows.T)[first, second]
    order = torch.argsort(pairs[:, 0] * 2500 + pairs[:, 1])
    assert torch.equal(pairs[order], torch.stack([first, second], 1)[whole > 0])
    assert torch.allclose(products[order], whole[whole > 0])
    assert torch.allclose(likely_pairs(rows, 1000)[1].sort().values, whole.topk(1000).values.flip(0))
