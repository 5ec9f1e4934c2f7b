"""Which clients hold a node's neighbours: read from the rows they send, sealed or not, and hidden by padding from all
but key holders."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scored_runs import finding_of, inferred, truth_about

from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.none import NoDefense
from fglaudit.finding import Status
from fglaudit.interfaces import Defense, Inference
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.scoring.selftest import NoiseMessages
from fglaudit.testing import CPU, Run, check_attack, example_graph, record
from fglaudit.view import Observer

pytest.importorskip("tenseal")
GRAPH = example_graph(nodes=120, clients=5)
DEFENSES: dict[str, Defense] = {
    "none": NoDefense(),
    "sealed": HomomorphicEncryption(),
    "padded": HomomorphicEncryption(padded=True),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: record(FedGCN(hops=1, rounds=1), GRAPH, defense) for name, defense in DEFENSES.items()}


def test_the_question_lists_every_pair_that_is_not_known() -> None:
    observer = Observer(parties=(SERVER, 0))
    asked = inferred("neighboring-clients").ask(truth_about(record(FedGCN(hops=1, rounds=1), GRAPH), observer))
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
        ("none", ObserverSpec(("server",)), 1.0),
        ("sealed", ObserverSpec(("server",)), 1.0),
        ("sealed", ObserverSpec(("wire",)), 1.0),
        ("padded", ObserverSpec(("server",)), 0.5),
        ("padded", ObserverSpec(("wire",)), 0.5),
        ("padded", ObserverSpec(("server", "client:0")), 1.0),
        ("padded", ObserverSpec(("wire", "client:0")), 1.0),
    ],
    ids=lambda value: value.name if isinstance(value, ObserverSpec) else str(value),
)
def test_presence_tells_everything_until_rows_are_padded(
    defense: str, observer: ObserverSpec, expected: float, runs: dict[str, Run]
) -> None:
    finding = finding_of(runs[defense], RowPresence(), observer)
    assert finding.status is Status.OK, finding.reason  # sees what is planted, and nothing in noise
    assert finding.value == expected and finding.control == 0.5


@pytest.mark.parametrize(("hops", "least", "most"), [(1, 0.5, 0.5), (2, 1.0, 1.0), (3, 0.6, 0.9)])
def test_rows_that_come_back_tell_where_every_client_sends_every_row(hops: int, least: float, most: float) -> None:
    """With two hops a client gets the rows of its nodes' neighbours, with more those of nodes further off too."""
    pytest.importorskip("cryptography")
    run = record(FedGCN(hops=hops, rounds=1), example_graph(nodes=120, clients=6), SecureAggregation())
    for party in ("server", "wire"):
        found = finding_of(run, RowPresence(), ObserverSpec((party,)))
        assert found.status is Status.OK and found.value is not None and least <= found.value <= most


def test_conformance_and_refusal(runs: dict[str, Run]) -> None:
    check_attack(RowPresence(), runs["sealed"].view(Observer(parties=(SERVER,))))
    assert "only the server and the wire" in (
        RowPresence().unsupported(runs["none"].view(Observer(parties=(0,)))) or ""
    )


def test_noise_in_place_of_node_ids_says_nothing(runs: dict[str, Run]) -> None:
    view = runs["sealed"].view(Observer(parties=(SERVER,)))
    blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, 0, GRAPH.num_nodes))
    result = RowPresence().run(blind, rng=torch.Generator(), device=CPU)
    kind = inferred("neighboring-clients")
    asked = kind.ask(truth_about(runs["none"], view.observer))
    assert isinstance(result, Inference) and not isinstance(asked, str)
    guess = kind.guess(view, asked.subjects, derive(0, "control"))
    found = kind.score(asked, result, guess).values.mean()
    assert abs(float(found) - 0.5) < 0.05
