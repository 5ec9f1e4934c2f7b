"""One cell, from data to findings, with the real parts."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.execution.run_cell import run_cell
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.observers import ObserverSpec, expand
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import Recording, protocol_of
from fglaudit.recording import record as record_cell
from fglaudit.scoring import GroundTruth, score
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU
from fglaudit.view import Observer, View

OPTIONS = CsbmOptions(nodes=120, edges=260, dimensions=40, ones_per_row=5)
CELL = Cell(
    dataset=DatasetSpec(name="csbm", split="random", csbm=OPTIONS),
    partition=PartitionSpec(scheme="dirichlet", clients=6, beta=10.0),
    protocol=FedGCN(hops=1, rounds=2),
    defense=NoDefense(),
    seed=0,
    observers=(ObserverSpec(("client:each",)), ObserverSpec(("server",), topology=True)),
    attacks=(SubsetSum(), RowSpace(), ServerPartialSums()),
)


def run(cell: Cell, folder: Path | None = None) -> CellRecord:
    kept = (None, None) if folder is None else (folder / "recording", folder / "truth")
    return run_cell(cell, suite="test", device=CPU, recording_dir=kept[0], truth_dir=kept[1])


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


ALL = dataclasses.replace(CELL, record="all")


def found(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """All columns but seconds, and but what a suite writes into its rows."""
    rows = [dataclasses.asdict(f) for f in findings]
    return [
        {k: v for k, v in row.items() if not k.startswith("seconds_") and k not in ("suite", "cell")} for row in rows
    ]


def test_an_attack_on_a_saved_recording_finds_what_it_found_in_the_suite(tmp_path: Path) -> None:
    record = run(ALL, tmp_path)
    recording = Recording.load(tmp_path / "recording")
    assert {type(b.payload) for b in recording.view(Observer((SERVER,))).messages.of(ModelUpdate)} == {ModelUpdate}
    truth = GroundTruth.load(tmp_path / "truth", protocol_of(recording.description))
    later = score(run_attacks(recording, ALL.observers, ALL.attacks), truth)
    assert found(m.finding for m in later) == found(record.findings)
    assert {f.status for f in record.findings} == {Status.OK, Status.NOT_APPLICABLE}


ATTACK_WITHOUT_TRUTH = """
import pickle, sys
import torch

torch.set_num_threads(1)  # as here: another number sums in another order
from pathlib import Path
from fglaudit.attacking import run_attacks
from fglaudit.recording import Recording, protocol_of
from fglaudit.recording import record as record_cell
observers, attacks = pickle.load(sys.stdin.buffer)
pickle.dump(run_attacks(Recording.load(Path(sys.argv[1])), observers, attacks), sys.stdout.buffer)
"""


def test_attacks_run_in_a_process_that_never_had_the_truth(tmp_path: Path) -> None:
    record = run(ALL, tmp_path)
    truth = GroundTruth.load(tmp_path / "truth", ALL.protocol)
    shutil.rmtree(tmp_path / "truth")
    asked = pickle.dumps((ALL.observers, ALL.attacks))
    child = [sys.executable, "-c", ATTACK_WITHOUT_TRUTH, str(tmp_path / "recording")]
    outputs = pickle.loads(subprocess.run(child, input=asked, stdout=subprocess.PIPE, check=True).stdout)
    assert found(m.finding for m in score(outputs, truth)) == found(record.findings)


def test_a_saved_truth_is_the_truth(tmp_path: Path) -> None:
    _, truth = record_cell(ALL)
    truth.save(tmp_path)
    loaded = GroundTruth.load(tmp_path, ALL.protocol)
    assert torch.equal(loaded.graph.x, truth.graph.x) and torch.equal(loaded.graph.edge_index, truth.graph.edge_index)
    for name in ("clients", "train", "val", "test"):
        assert all(
            torch.equal(a, b) for a, b in zip(getattr(loaded.graph, name), getattr(truth.graph, name), strict=True)
        )
    assert loaded.graph.schema() == truth.graph.schema() and loaded.seed == truth.seed
    (tmp_path / "truth.safetensors").write_bytes(b"{")
    with pytest.raises(FglauditError, match=r"whole; .* run the suite again with record: all"):
        GroundTruth.load(tmp_path, ALL.protocol)


@pytest.mark.parametrize("kind", ["defense_class", "protocol_class", "inside"])
def test_files_that_a_recording_names_run_only_if_they_are_trusted(kind: str, tmp_path: Path) -> None:
    """A recording can come from anybody, and so can the path in it."""
    recording, _ = record_cell(ALL)
    file, ran = tmp_path / "sent.py", tmp_path / "ran"
    file.write_text(f"from pathlib import Path\nPath({str(ran)!r}).touch()\nclass Sent: ...\n")
    name = f"{file}:Sent"
    changed = {"protocol": {**recording.description["protocol"], "parts": [name]}} if kind == "inside" else {kind: name}
    replaced = dataclasses.replace(recording, description={**recording.description, **changed})
    replaced.save(tmp_path / "recording")
    with pytest.raises(FglauditError, match=r"only if they are trusted.*sent\.py:Sent; read them, then give --trust"):
        Recording.load(tmp_path / "recording")
    assert not ran.exists()
    if kind == "defense_class":  # this one is no defense, so the messages are attacked without one
        assert Recording.load(tmp_path / "recording", trust_plugins=True).seed == recording.seed
        assert ran.exists()


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
    assert failed.status is Status.FAILED and failed.reason.startswith(
        "ValueError: no such luck (test_run_cell.py line "
    )
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
    own = [
        dataclasses.replace(CELL, dataset=DatasetSpec("npz", path=path, sha256=digit * 64)).hash()
        for path, digit in (("g.npz", "a"), ("/home/me/g.npz", "a"), ("g.npz", "b"))
    ]
    assert own[0] == own[1] != own[2]
