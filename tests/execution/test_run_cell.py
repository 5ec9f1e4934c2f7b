"""One cell, from data to findings, with the real parts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.audit import run_cell
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm import CsbmOptions
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord, Status
from fglaudit.interfaces import Attack, Inference, Planted, Reconstruction
from fglaudit.observers import ObserverSpec, expand
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.scoring.game import Game
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU
from fglaudit.view import View
from fglaudit.wire.side_knowledge import load_views

OPTIONS = CsbmOptions(nodes=120, edges=260, dimensions=40, ones_per_row=5)
CELL = Cell(
    dataset=DatasetSpec(name="csbm", split="random", csbm=OPTIONS),
    partition=PartitionSpec(scheme="dirichlet", clients=6, beta=10.0),
    protocol=FedGCN(hops=1, rounds=2),
    server="honest",
    defense=NoDefense(),
    seed=0,
    observers=(ObserverSpec(("client:each",)), ObserverSpec(("server",), topology=True)),
    attacks=(SubsetSum(), RowSpace(), ServerPartialSums()),
)


def run(cell: Cell, folder: Path | None = None) -> CellRecord:
    return run_cell(cell, suite="test", device=CPU, transcript_dir=folder)


def without_seconds(record: CellRecord) -> list[dict[str, object]]:
    rows = [dataclasses.asdict(f) for f in record.findings]
    return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in rows]


def test_every_observer_and_attack_has_a_row_with_its_control() -> None:
    record = run(CELL)
    assert [(f.observer, f.attack) for f in record.findings] == [
        (o, a) for o in ("client:each", "server") for a in ("subset-sum", "row-space", "server-partial-sums")
    ]
    measured = [f for f in record.findings if f.status is Status.OK]
    assert len(measured) == 5
    for f in measured:
        assert f.value is not None and f.control is not None and f.advantage is not None
        assert f.advantage_low is not None and f.advantage_high is not None
        assert f.advantage_low <= f.advantage <= f.advantage_high
        assert f.advantage == pytest.approx((f.value - f.control) / (1 - f.control))
    (refused,) = [f for f in record.findings if f.status is Status.NOT_APPLICABLE]
    assert refused.attack == "server-partial-sums" and "the sums of all nodes" in refused.reason
    assert record.findings[0].bytes_up and record.findings[0].accuracy is not None


def test_two_runs_are_equal() -> None:
    assert without_seconds(run(CELL)) == without_seconds(run(CELL))
    assert CellRecord.from_json(run(CELL).to_json()).findings[0].cell == CELL.hash()


def test_whole_transcripts_can_be_attacked_later(tmp_path: Path) -> None:
    record = run(dataclasses.replace(CELL, record="all"), tmp_path)
    views = load_views(tmp_path)
    assert len(views) == 7  # six clients in turn and the server
    assert {type(b.payload) for b in views[0].messages.of(ModelUpdate)} == {ModelUpdate}
    game = Game.load(tmp_path / "game.safetensors", views[0].public.features)
    assert len(game.targets) == 120
    result = RowSpace().run(views[6], rng=torch.Generator(), device=CPU)
    assert record.findings[4].identifiable_rate == pytest.approx(_proven_share(result, game))


def _proven_share(result: Reconstruction | Inference, game: Game) -> float:
    assert isinstance(result, Reconstruction)
    return float(game.answer(result)[2].float().mean())


def test_a_defense_that_does_not_fit_is_a_row_with_a_reason() -> None:
    record = run(dataclasses.replace(CELL, protocol=GCN(rounds=1), defense=Gaussian()))
    assert len(record.findings) == 6
    assert all(f.status is Status.NOT_APPLICABLE and "sends no NeighborSums" in f.reason for f in record.findings)


def test_f1_says_nothing_about_dense_rows() -> None:
    dense = DatasetSpec(name="csbm", split="random", csbm=dataclasses.replace(OPTIONS, features="gaussian"))
    record = run(
        dataclasses.replace(CELL, dataset=dense, attacks=(MaximumAPosteriori(),), defense=Gaussian(epsilon=1.0))
    )
    for f in record.findings:
        assert f.metric == "cosine" and f.advantage is not None and f.advantage < 0.5


def test_noise_states_its_epsilon() -> None:
    record = run(dataclasses.replace(CELL, defense=Gaussian(epsilon=3.0)))
    for f in record.findings:
        assert f.epsilon_claimed == 3.0 and f.epsilon_accounted == pytest.approx(3.0, rel=1e-3)
        assert f.delta == 1e-5 and f.privacy_unit == "node" and "zeroed out" in f.mechanism


@dataclass(frozen=True)
class Cheat(Attack):
    """Claims rows of ones as proven; or raises."""

    name: ClassVar[str] = "cheat"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"
    fail: bool = False

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        if self.fail:
            raise ValueError("no such luck")
        nodes = torch.arange(view.public.num_nodes)
        ones = torch.ones(len(nodes), view.public.num_features)
        return Reconstruction(ones, nodes, torch.ones(len(nodes)), torch.ones(len(nodes), dtype=torch.bool))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        nodes = torch.arange(view.public.num_nodes)
        return Planted(view, torch.zeros(len(nodes), view.public.num_features), nodes)


def test_an_attack_that_fails_its_self_test_is_broken_and_one_that_raises_has_failed() -> None:
    record = run(dataclasses.replace(CELL, attacks=(Cheat(), Cheat(fail=True), RowSpace())))
    broken, failed, fine = record.findings[:3]
    assert (
        broken.status is Status.BROKEN_ATTACK
        and "called proven are wrong" in broken.reason
        and "self-test" in broken.reason
    )
    assert failed.status is Status.FAILED and failed.reason == "ValueError: no such luck"
    assert fine.status is Status.OK


def test_observers_are_expanded() -> None:
    observers, pooled = expand(ObserverSpec(("server", "client:each"), degrees=False), 3)
    assert pooled and [o.parties for o in observers] == [(SERVER, 0), (SERVER, 1), (SERVER, 2)]
    assert all(o.degrees is False for o in observers)
    (wire,), pooled = expand(ObserverSpec(("wire",)), 3)
    assert wire.wire and wire.parties == () and not pooled
    with pytest.raises(FglauditError, match="got 'client:3'"):
        expand(ObserverSpec(("client:3",)), 3)


def test_hash_covers_what_is_computed_and_not_where_files_lie() -> None:
    moved = dataclasses.replace(CELL, dataset=dataclasses.replace(CELL.dataset, root="elsewhere"))
    other = dataclasses.replace(CELL, protocol=FedGCN(hops=1, rounds=3))
    assert moved.hash() == CELL.hash() != other.hash()
