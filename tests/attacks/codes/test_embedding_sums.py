"""Attacks on sums of embeddings: exact where nothing hides them, and less where noise does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fglaudit.attacks.codes.embedding_sum_edges import EmbeddingSumEdges
from fglaudit.attacks.codes.embedding_sum_rows import EmbeddingSumRows
from fglaudit.attacks.codes.seen_embeddings import embedded, encoder, steps
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.interfaces import Defense, Inference, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.gap import EDGE, GAP, REPORTING
from fglaudit.protocols.private.progap import ProGAP
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer

FEW: dict[str, Any] = {"encoder_rounds": 3, "rounds": 1}
SERVER_ALONE = Observer(parties=(SERVER,))
KNOWING = Observer(parties=(SERVER,), topology=True, auxiliary=0.5)


def found_edges(defense: Defense | None, **fields: Any) -> float:
    """Return the share of the edges among the as many pairs that rank first."""
    graph = example_graph()
    run = record(GAP(**FEW, **fields), graph, defense)
    answer = EmbeddingSumEdges().run(run.view(SERVER_ALONE), rng=derive(0, "attack"), device=CPU)
    assert isinstance(answer, Inference)
    truth = {(int(a), int(b)) for a, b in graph.edge_index.T.tolist() if a < b}
    first = answer.subjects[answer.estimate.argsort(descending=True)][: len(truth)]
    return sum((int(a), int(b)) in truth for a, b in first.tolist()) / len(truth)


def test_the_server_finds_the_edges_and_noise_hides_them() -> None:
    assert found_edges(None) > 0.9
    assert found_edges(Gaussian(on="EmbeddingSums", unit=EDGE, epsilon=0.1)) < 0.4


def test_public_codes_give_edges_away_in_the_first_step_and_no_feature() -> None:
    assert found_edges(None, sums_of="codes", hops=(1,)) > 0.95
    assert found_edges(Gaussian(on="EmbeddingSums", unit=EDGE, epsilon=0.1), sums_of="codes", hops=(1,)) < 0.4
    view = record(GAP(sums_of="codes", **FEW)).view(KNOWING)
    assert "no feature" in str(EmbeddingSumRows().unsupported(view))


def test_it_says_where_it_cannot_work() -> None:
    one = record(GAP(unit=REPORTING, **FEW))
    assert "one step" in str(EmbeddingSumEdges().unsupported(one.view(SERVER_ALONE)))
    two = record(ProGAP(**FEW))
    assert "does not know" in str(EmbeddingSumEdges().unsupported(two.view(SERVER_ALONE)))
    three = record(GAP(**FEW))
    assert "totals" in str(EmbeddingSumEdges().unsupported(three.view(Observer(parties=(0,)))))
    assert "topology" in str(EmbeddingSumRows().unsupported(three.view(Observer(parties=(SERVER,), auxiliary=0.5))))


def test_embeddings_of_known_rows_are_those_that_were_summed() -> None:
    """Nodes with one neighbour get its embedding as their total, which the attacker computes from the model it saw."""
    graph = example_graph()
    run = record(GAP(**FEW), graph)
    view = run.view(KNOWING)
    weight = encoder(view)
    assert weight is not None
    lonely = (graph.degrees() == 1).nonzero().squeeze(1)
    assert len(lonely)
    row, column = graph.edge_index
    neighbor = column[torch.isin(row, lonely)]
    total = steps(view, up=False)[0]
    sums = torch.zeros(graph.num_nodes, total.sums.shape[1], dtype=torch.double)
    sums[total.node] = total.sums
    assert torch.allclose(sums[lonely], embedded(view, graph.x[neighbor], weight), atol=1e-4)


def test_rows_are_better_than_their_class_alone_and_noise_takes_that() -> None:
    """Compared with what is rebuilt from noise of the same mechanism at a small epsilon."""
    graph = example_graph()

    def error(defense: Defense | None) -> float:
        view = record(GAP(unit=REPORTING, hops=(1,), **FEW), graph, defense).view(KNOWING)
        answer = EmbeddingSumRows().run(view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(answer, Reconstruction) and len(answer.nodes)
        truth = graph.x[answer.nodes]
        hit = (answer.rows * truth).sum()
        return float(2 * hit / (answer.rows.sum() + truth.sum()))

    noisy = error(Gaussian(on="EmbeddingSums", unit=REPORTING, epsilon=0.05))
    assert error(None) > noisy


def test_known_rows_that_are_all_equal_are_the_answer() -> None:
    """There was nothing to regress on: the matrix was singular, and the row failed."""
    graph = example_graph()
    equal = replace(graph, x=graph.x[:1].expand_as(graph.x).contiguous())
    answer = EmbeddingSumRows().run(record(GAP(**FEW), equal).view(KNOWING), rng=derive(0, "attack"), device=CPU)
    assert isinstance(answer, Reconstruction) and len(answer.nodes)
    torch.testing.assert_close(answer.rows, equal.x[answer.nodes])
