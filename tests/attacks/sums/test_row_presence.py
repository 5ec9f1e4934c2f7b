"""Which clients hold a node's neighbours: read from the rows they send, sealed or not, and hidden by padding from all
but key holders."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Finding, Status
from fglaudit.interfaces import Defense, Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Truth, quantity
from fglaudit.scoring.arena import Arena
from fglaudit.scoring.measure import measure
from fglaudit.scoring.selftest import NoiseMessages
from fglaudit.testing import CPU, Run, check_attack, example_graph, record
from fglaudit.view import Auxiliary, Observer

pytest.importorskip("tenseal")
GRAPH = example_graph(nodes=120, clients=5)
BLANK = Finding("s", "c", "d", "p", 5, "fedgcn", "", "honest", "none", "", 0, "server", "", "a", Status.OK)
DEFENSES: dict[str, Defense] = {
    "none": NoDefense(),
    "sealed": HomomorphicEncryption(),
    "padded": HomomorphicEncryption(padded=True),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: record(FedGCN(hops=1, rounds=1), GRAPH, defense) for name, defense in DEFENSES.items()}


def facts(run: Run, observer: Observer) -> Truth:
    return Truth(GRAPH, run.protocol, observer, Auxiliary.empty(GRAPH.num_features), {}, False)


def test_the_question_lists_every_pair_that_is_not_known() -> None:
    observer = Observer(parties=(SERVER, 0))
    asked = quantity("neighboring-clients").ask(facts(record(FedGCN(hops=1, rounds=1), GRAPH), observer))
    assert not isinstance(asked, str)
    owner = GRAPH.owner()
    neighbors: dict[int, set[int]] = {}
    for i, j in GRAPH.edge_index.T.tolist():
        neighbors.setdefault(i, set()).add(int(owner[j]))
    expected = {
        (k, i): float(k in neighbors.get(i, set()))
        for k in range(1, 5)
        for i in range(GRAPH.num_nodes)
        if int(owner[i]) not in (0, k)
    }
    assert dict(zip(map(tuple, asked.subjects.tolist()), asked.truth.tolist(), strict=True)) == expected
    assert torch.equal(asked.clusters, asked.subjects[:, 0])


@pytest.mark.parametrize(
    ("defense", "observer", "expected"),
    [
        ("none", Observer(parties=(SERVER,)), 1.0),
        ("sealed", Observer(parties=(SERVER,)), 1.0),
        ("sealed", Observer(wire=True), 1.0),
        ("padded", Observer(parties=(SERVER,)), 0.5),
        ("padded", Observer(wire=True), 0.5),
        ("padded", Observer(parties=(SERVER, 0)), 1.0),
        ("padded", Observer(parties=(0,), wire=True), 1.0),
    ],
    ids=lambda value: value.name if isinstance(value, Observer) else str(value),
)
def test_presence_tells_everything_until_rows_are_padded(
    defense: str, observer: Observer, expected: float, runs: dict[str, Run]
) -> None:
    arena = Arena((runs[defense].view(observer),), (facts(runs[defense], observer),), 0)
    finding = measure(RowPresence(), BLANK, arena, CPU).finding
    assert finding.status is Status.OK, finding.reason  # sees what is planted, and nothing in noise
    assert finding.value == expected and finding.control == 0.5


def test_conformance_and_refusal(runs: dict[str, Run]) -> None:
    check_attack(RowPresence(), runs["sealed"].view(Observer(parties=(SERVER,))))
    assert "only the server and the wire" in (
        RowPresence().unsupported(runs["none"].view(Observer(parties=(0,)))) or ""
    )


def test_noise_in_place_of_node_ids_says_nothing(runs: dict[str, Run]) -> None:
    view = runs["sealed"].view(Observer(parties=(SERVER,)))
    blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, 0, GRAPH.num_nodes))
    result = RowPresence().run(blind, rng=torch.Generator(), device=CPU)
    kind, asked = (
        quantity("neighboring-clients"),
        quantity("neighboring-clients").ask(facts(runs["none"], view.observer)),
    )
    assert isinstance(result, Inference) and not isinstance(asked, str)
    found = kind.score(asked, result, kind.guess(view, asked.subjects)).values.mean()
    assert abs(float(found) - 0.5) < 0.05
