"""The rules that make a report believable, each for every plugin that can break it."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from swapped_data import with_data
from torch import Tensor

from fglaudit.attacks import ATTACKS
from fglaudit.context import Context
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph, canonical_edges
from fglaudit.interfaces import Attack, Defense, FederatedProtocol, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.local_gcn import LocalGCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Truth
from fglaudit.quantities.game import Game
from fglaudit.recording import record_training
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.testing import CPU, check_attack, check_defense, check_protocol, example_graph, record
from fglaudit.view import Observer, View
from fglaudit.wire.side_knowledge import draw_auxiliary

PROTOCOLS = [
    FedGCN(hops=0, rounds=3),
    FedGCN(hops=1, rounds=3),
    FedGCN(hops=2, rounds=3, aggregate="counts", optimizer="adam", learning_rate=0.01),
    FedGCN(hops=3, layers=3, rounds=3, participation=0.5),
    GCN(rounds=3),
    LocalGCN(rounds=3),
]
DEFENSES = [NoDefense(), DropSingletons(), Gaussian(epsilon=2.0), Gaussian(epsilon=50.0, clip=3.0)]
OBSERVERS = [
    Observer(parties=(0,)),
    Observer(parties=(0,), degrees=False),
    Observer(parties=(0, 2), auxiliary=0.2),
    Observer(parties=(SERVER,)),
    Observer(parties=(SERVER,), topology=True),
    Observer(parties=(SERVER, 1)),
    Observer(wire=True),
]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Observer) else f"{getattr(type(value), 'name', value)}"


def attack(name: str) -> Attack:
    built = build("attack", name, {})
    assert isinstance(built, Attack)
    return built


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=name_of)
def test_protocols_keep_their_promises(protocol: FederatedProtocol) -> None:
    check_protocol(protocol)


@pytest.mark.parametrize("defense", DEFENSES, ids=name_of)
@pytest.mark.parametrize("protocol", PROTOCOLS[:3], ids=name_of)
def test_defenses_keep_their_promises(defense: Defense, protocol: FederatedProtocol) -> None:
    check_defense(defense, protocol)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("observer", OBSERVERS, ids=name_of)
@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
def test_attacks_keep_their_promises(name: str, observer: Observer, aggregate: str) -> None:
    run = record(FedGCN(hops=1, rounds=1, aggregate=aggregate))
    check_attack(attack(name), run.view(observer))


def outcome(name: str, view: View) -> list[Tensor] | None:
    """Return the tensors of what an attack finds, None where it does not apply."""
    if attack(name).unsupported(view) is not None:
        return None
    result = attack(name).run(view, rng=derive(0, "attack"), device=CPU)
    if isinstance(result, Reconstruction):
        return [result.rows, result.nodes, result.confidence]
    return [result.subjects, result.estimate]


def with_other_private_data(graph: FederatedGraph, observer: Observer) -> FederatedGraph:
    """Return ``graph`` with the features of everybody but the observer replaced."""
    mine = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for k in observer.clients:
        mine[graph.clients[k]] = True
    random = (torch.rand(graph.x.shape, generator=derive(9, "other")) < 0.5).float()
    return dataclasses.replace(graph, x=torch.where(mine.unsqueeze(1), graph.x, random))


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("hops", [1, 2])
def test_rule_1_attacks_see_messages_not_the_truth(name: str, hops: int) -> None:
    run = record(FedGCN(hops=hops, rounds=1))
    for observer in (Observer(parties=(0,)), Observer(parties=(SERVER,), topology=True), Observer(parties=(SERVER,))):
        first = outcome(name, run.view(observer))
        swapped = with_data(run, with_other_private_data(run.graph, observer))
        again = outcome(name, swapped.view(observer))
        assert (first is None) == (again is None)
        if first is not None and again is not None:
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def digest(*tensors: Tensor) -> str:
    return hashlib.blake2b(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()


def test_rule_1_attacks_give_the_same_in_a_fresh_process(tmp_path: Path) -> None:
    recording, _ = record_training(example_graph(), FedGCN(hops=1, rounds=1), NoDefense(), fractions=(0.1,))
    view = recording.view(Observer(parties=(1,), auxiliary=0.1))
    recording.save(tmp_path)
    code = """
import sys, hashlib
from pathlib import Path
from fglaudit.recording import Recording
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.view import Observer
import torch
view = Recording.load(Path(sys.argv[1])).view(Observer(parties=(1,), auxiliary=0.1))
for name in sys.argv[2:]:
    attack = build("attack", name, {})
    if attack.unsupported(view) is None:
        r = attack.run(view, rng=derive(0, "attack"), device=torch.device("cpu"))
        found = (r.rows, r.nodes, r.confidence) if hasattr(r, "rows") else (r.subjects, r.estimate)
        body = b"".join(t.contiguous().numpy().tobytes() for t in found)
        print(name, hashlib.blake2b(body).hexdigest())
"""
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *ATTACKS], capture_output=True, text=True, check=True
    )
    there = dict(line.split() for line in out.stdout.splitlines())
    here = {name: digest(*found) for name in ATTACKS if (found := outcome(name, view)) is not None}
    assert there == here and here


def test_rule_3_own_and_auxiliary_nodes_are_no_targets() -> None:
    graph, protocol = example_graph(), FedGCN(hops=2)
    auxiliary = draw_auxiliary(graph, 0.3, 0)
    for observer in OBSERVERS:
        game = Game.of(Truth(graph, protocol, observer, auxiliary, {}, False))
        own = torch.cat([graph.clients[k] for k in observer.clients] or [torch.empty(0, dtype=torch.long)])
        assert len(game.targets) > 0
        assert not torch.isin(game.targets, torch.cat([own, auxiliary.nodes])).any()


def test_drop_singletons_by_hand() -> None:
    """Edges 0-1, 0-2, 0-3, 1-3; client 0 holds nodes 0 and 1, client 1 nodes 2 and 3."""
    half = torch.tensor([False, True])
    graph = FederatedGraph(
        x=torch.eye(4),
        y=torch.tensor([0, 1, 0, 1]),
        edge_index=canonical_edges(torch.tensor([[0, 0, 0, 1], [1, 2, 3, 3]]), 4),
        clients=(torch.tensor([0, 1]), torch.tensor([2, 3])),
        train=(half, half),
        val=(half, half),
        test=(half, half),
        name="by hand",
        num_classes=2,
        features=FeatureKind.BINARY,
    )
    session = DropSingletons().bind(Context("fedgcn", 1, 2, 4, FedGCN().releases(graph)))
    first, second = (session.prepare(graph.client(k), derive(0)) for k in (0, 1))
    assert edges(first) == {(0, 2), (0, 3)}  # node 1 has node 3 alone and gives it up
    assert edges(second) == {(3, 0), (3, 1)}  # node 2 has node 0 alone and gives it up


def edges(client: ClientGraph) -> set[tuple[int, int]]:
    """Boundary edges in global ids."""
    own, remote = client.boundary
    return set(zip(client.nodes[own].tolist(), client.remote_nodes[remote].tolist(), strict=True))
