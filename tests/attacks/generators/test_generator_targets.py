"""Rows from answers to generators: one by hand, many on a recording, and none where there are more nodes than units."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.attacks.generators.generator_targets import Answer, GeneratorTargets, targets
from fglaudit.interfaces import Inference
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.nn.neighbor_generator import FeatureGenerator, nearest
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedsage.fedsage import FedSage
from fglaudit.quantities import Attempt, quantity
from fglaudit.quantities.base import ObserverTruth
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer

SMALL = FedSage(rounds=1, hidden=8, embedding=8, generator_hidden=24, generator_epochs=20, generator_rounds=3)
CLIENT = Observer(parties=(0,))


def run() -> Run:
    return record(SMALL, example_graph(nodes=120))


def attacked(recorded: Run, observer: Observer) -> Inference:
    found = GeneratorTargets().run(recorded.view(observer), rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    return found


def answer(nodes: int, x: Tensor, lacking: Tensor | None = None) -> tuple[Answer, FeatureGenerator, Tensor]:
    """Return what a holder of ``x`` [n, F] answers about so many nodes, ``lacking`` [nodes] neighbours, else two each,
    and the rows that it used [r, F]."""
    shape = FeatureGenerator(embedding=6, hidden=16, slots=2, features=x.shape[1])
    rng = derive(0, "answer")
    vector = initial_model(shape.layout(), rng).unsqueeze(0)
    inputs = torch.randn(1, nodes, 6, generator=rng)
    counts = torch.full((1, nodes), 2.0) if lacking is None else lacking.unsqueeze(0)
    held, everyone = x.unsqueeze(0), torch.ones(1, len(x), dtype=torch.bool)
    sent = shape.gradients(vector, inputs, counts, held, everyone)
    used = nearest(shape.rows(vector, shape.units(vector, inputs)).flatten(1, 2), held, everyone)[0]
    used = used[shape.counted(counts)[0].flatten()]
    return Answer(1, vector[0], inputs[0], counts[0], sent[0]), shape, used


def test_one_answer_gives_every_row_that_it_used() -> None:
    x = torch.rand(12, 9, generator=derive(1, "rows"))
    asked, shape, used = answer(10, x)
    assert len(torch.unique(used, dim=0)) > 1
    torch.testing.assert_close(targets(shape, asked, torch.device("cpu")).float(), used, rtol=1e-3, atol=1e-3)


def test_nodes_that_lack_no_neighbour_do_not_hide_the_others() -> None:
    """16 units solve for 14 first rows and for 5 second ones, of 24 nodes asked about."""
    lacking = torch.tensor([1.0] * 9 + [2.0] * 5 + [0.0] * 10)
    asked, shape, used = answer(24, torch.rand(12, 9, generator=derive(1, "rows")), lacking)
    assert len(used) == 19
    torch.testing.assert_close(targets(shape, asked, torch.device("cpu")).float(), used, rtol=1e-3, atol=1e-3)


def test_more_nodes_than_units_hide_the_rows() -> None:
    asked, shape, used = answer(60, torch.rand(12, 9, generator=derive(1, "rows")))
    assert float((targets(shape, asked, torch.device("cpu")).float() - used).abs().median()) > 0.02


def test_every_row_that_is_listed_is_somebodys() -> None:
    recorded = run()
    found = attacked(recorded, CLIENT)
    clients = set(found.subjects[:, 0].tolist())
    assert clients == {1, 2} and len(found.subjects) > 3
    for client in clients:
        own = normalize(recorded.graph.x[recorded.graph.clients[client]], dim=1)
        assert bool(((found.estimate[found.subjects[:, 0] == client] @ own.T).amax(1) > 0.99999).all())


def test_rows_are_scored_against_all_that_others_hold() -> None:
    recorded, kind = run(), quantity("held-rows")
    view = recorded.view(CLIENT)
    truth = ObserverTruth(recorded.graph, SMALL, CLIENT, view.auxiliary, {}, False)
    question = kind.ask(truth)
    guess = kind.guess(view, question.subjects, derive(0, "guess"))
    found = attacked(recorded, CLIENT)
    compared = kind.compare(GeneratorTargets(), [Attempt(view, question, found, guess)])
    others = recorded.graph.x[torch.cat(recorded.graph.clients[1:])]
    assert len(compared.values) == int(others.any(1).sum())
    distinct = sum(
        len(torch.unique(found.estimate[found.subjects[:, 0] == k].round(decimals=4), dim=0)) for k in (1, 2)
    )
    assert int(compared.values.sum()) == distinct and float(compared.controls.mean()) == 0


def test_self_test_and_refusal() -> None:
    recorded = run()
    for observer in (CLIENT, Observer(wire=True)):
        assert planted_flaw(GeneratorTargets(), recorded.view(observer), derive(0, "self-test"), CPU) is None
    why = GeneratorTargets().unsupported(recorded.view(Observer(parties=(SERVER,))))
    assert why is not None and "no answer of another client" in why
    simulated = record(replace(SMALL, generator="simulated"), example_graph())
    assert "Generators" in str(GeneratorTargets().unsupported(simulated.view(CLIENT)))
