"""Edges among known nodes: scores against plain formulas, and what a trained model adds to the rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scored_runs import inferred, truth_about

from fglaudit.attacking import unsuitable
from fglaudit.attacks.models.link_scores import directions, likely_pairs
from fglaudit.attacks.models.model_links import ModelLinks
from fglaudit.errors import FglauditError
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Question
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer

KNOWING = Observer(parties=(SERVER,), auxiliary=1.0)


def test_pairs_are_scored_by_cosines_in_units_of_their_spread() -> None:
    one, two = (torch.randn(6, d, generator=derive(0, "values", d)) for d in (3, 4))
    pairs, scores = likely_pairs([directions(one), directions(two)], 36)
    assert len(pairs) == 15 and bool((pairs[:, 0] < pairs[:, 1]).all())
    expected = torch.zeros(15, dtype=torch.double)
    for values in (one, two):
        centred = (values - values.mean(0)).double()
        cosine = torch.stack([torch.cosine_similarity(centred[a], centred[b], dim=0) for a, b in pairs.tolist()])
        expected += cosine / cosine.square().mean().sqrt()
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    fewer, best = likely_pairs([directions(one), directions(two)], 12)
    assert len(fewer) <= 12 and float(best.max().item()) == pytest.approx(float(expected.max().item()), rel=1e-5)


def test_a_trained_model_shows_more_than_the_rows() -> None:
    """Words say nothing of a class by themselves in one half of the rows: the model learns which ones do."""
    graph = example_graph(nodes=240, features=60, classes=4)
    loud = (torch.rand(240, 60, generator=derive(0, "loud")) < 0.5).float()
    graph = dataclasses.replace(graph, x=torch.cat([graph.x, loud], 1))
    trained = FedGCN(hops=2, rounds=30, optimizer="adam", learning_rate=0.02, weight_decay=5e-3, dropout=0.0)
    run = record(trained, graph)
    view, kind = run.view(KNOWING), inferred("edges")
    asked = kind.ask(truth_about(run, KNOWING))
    assert isinstance(asked, Question) and unsuitable(ModelLinks(), view) is None
    result = ModelLinks().run(view, rng=derive(0, "attack"), device=CPU)
    guess = kind.guess(view, asked.subjects, derive(0, "guess"))
    found, control = (kind.score(asked, r, guess).columns["auc"] for r in (result, guess))
    assert found > control + 0.03


def test_what_it_takes() -> None:
    run = record(FedGCN(hops=1, rounds=1), example_graph())
    assert "auxiliary" in (unsuitable(ModelLinks(), run.view(Observer(parties=(SERVER,)))) or "")
    with pytest.raises(FglauditError, match="pairs counts the pairs that are listed; got 0"):
        ModelLinks(pairs=0)
