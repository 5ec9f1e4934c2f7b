"""Attacks read what a protocol states of its payloads, and say what they lack where it states nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from fedgat_runs import SMALL, mixed_graph
from neighbor_sum_views import make_view, random_federated
from node_graphs import graph as node_graph
from small_protocols import TINY_GT
from user_graphs import GCN as USERS
from user_graphs import user_graph

from fglaudit.attacks import ATTACKS
from fglaudit.attacks.sums.integer_propagation import IntegerPropagation
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.context import Aggregate, Release
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.execution.run_cell import run_cell
from fglaudit.files.own import stamped, unstamped
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Channel, FederatedProtocol, Inference, Planted, Reconstruction, Trained
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import SERVER, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.recording import Recording
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.structure import (
    BUILT_IN,
    Encoder,
    Structure,
    Sums,
    Training,
)
from fglaudit.suite.cell import Cell
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer, View

HIDDEN = FedGCN(hops=1, rounds=2)


@dataclass(frozen=True)
class BareSums(FederatedProtocol):
    """A user's own protocol: it sends neighbour sums, and has none of FedGCN's fields."""

    name: ClassVar[str] = "bare-sums"
    emits: ClassVar[tuple[type[Payload], ...]] = (NeighborSums, ModelUpdate)

    @property
    def num_rounds(self) -> int:
        return HIDDEN.num_rounds

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        return HIDDEN.releases(graph)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        return HIDDEN.aggregates(graph)

    def exposed(self, graph: FederatedGraph, observer: Observer) -> torch.Tensor:
        return HIDDEN.exposed(graph, observer)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return HIDDEN.train(graph, channel, rng=rng, device=device)


@dataclass(frozen=True)
class StatedSums(BareSums):
    """The same, which states what its sums are."""

    name: ClassVar[str] = "stated-sums"

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((Sums("normalised"),))


CELL = Cell(
    dataset=DatasetSpec(
        name="csbm", split="random", csbm=CsbmOptions(nodes=60, edges=120, dimensions=40, ones_per_row=5)
    ),
    partition=PartitionSpec(scheme="dirichlet", clients=4, beta=10.0),
    protocol=HIDDEN,
    defense=NoDefense(),
    seed=0,
    observers=(ObserverSpec(("client:each",)), ObserverSpec(("server",)), ObserverSpec(("server",), topology=True)),
    attacks=(
        SubsetSum(),
        RowSpace(),
        MaximumAPosteriori(),
        IntegerPropagation(),
        ServerPartialSums(),
        RowPresence(),
    ),
)


@cache
def findings(protocol: FederatedProtocol) -> tuple[Finding, ...]:
    return run_cell(dataclasses.replace(CELL, protocol=protocol), suite="test", device=CPU).findings


def test_a_bare_protocol_gets_the_fix_or_a_result() -> None:
    bare = findings(BareSums())
    assert {f.status for f in bare} == {Status.OK, Status.NOT_APPLICABLE}
    open_ = "NeighborSums: the protocol does not state how sums are weighted"
    fix = f"{open_}; if it is your own, state it in structure(): Sums(...)"
    for ours, fedgcn in zip(bare, findings(HIDDEN), strict=True):
        if fedgcn.status is Status.OK and ours.attack != "row-presence":
            assert (ours.status, ours.reason) == (Status.NOT_APPLICABLE, fix)
    assert {f.attack for f in bare if f.status is Status.OK} == {"row-presence"}


@pytest.mark.parametrize("name", ["label-sums", "code-predictions"])  # the second reads models too
def test_of_payloads_that_are_not_sent_nothing_is_asked_to_be_stated(name: str) -> None:
    """FedGCN may send ``HopSums``, and with these settings does not: whoever runs it is no author of it."""
    attack = build("attack", name, {})
    cell = dataclasses.replace(CELL, attacks=(attack,))
    rows = run_cell(cell, suite="test", device=CPU).findings
    assert {(row.status, row.reason) for row in rows} == {(Status.NOT_APPLICABLE, "no HopSums reaches this observer")}


def test_stated_structure_gives_the_findings_of_fedgcn() -> None:
    named = ("cell", "protocol", "protocol_args", "seconds_train", "seconds_attack")
    ours, fedgcn = ([dataclasses.asdict(f) for f in findings(p)] for p in (StatedSums(), HIDDEN))
    assert len([row for row in ours if row["status"] == Status.OK]) > 8
    for row, other in zip(ours, fedgcn, strict=True):
        assert {k: v for k, v in row.items() if k not in named} == {k: v for k, v in other.items() if k not in named}


class AsksTooLate(Attack):
    """An attack that does not ask before it runs."""

    name: ClassVar[str] = "asks-too-late"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction | Inference:
        raise AssertionError(f"{view.public.structure.of(Training)} was stated")

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        raise NotImplementedError


def test_an_attack_that_asks_too_late_is_not_applicable() -> None:
    late = dataclasses.dataclass(frozen=True)(AsksTooLate)()
    rows = run_cell(dataclasses.replace(CELL, protocol=BareSums(), attacks=(late,)), suite="test", device=CPU).findings
    assert {(row.status, row.reason) for row in rows} == {(Status.NOT_APPLICABLE, Training.missing())}


RUNS: list[tuple[FederatedProtocol, FederatedGraph]] = [
    (FedGCN(rounds=2), example_graph()),
    (FedGAT(**{**SMALL, "rounds": 2}), mixed_graph(torch.float32)),
    (FedGAT(**{**SMALL, "rounds": 2, "variant": "vector"}), mixed_graph(torch.float32)),
    (NFedGNN(**{**USERS, "rounds": 2}), user_graph(nodes=12, features=16)),
    (CNFGNN(**{**USERS, "rounds": 2}), user_graph(nodes=12, features=16)),
    (GFLAPPNP(hidden=4, rounds=2, local_steps=1), node_graph()),
    (dataclasses.replace(TINY_GT, rounds=2), example_graph()),
]


@cache
def recorded(index: int) -> Run:
    protocol, graph = RUNS[index]
    return record(protocol, graph)


@pytest.mark.parametrize("observer", [Observer((SERVER,), auxiliary=0.3), Observer((0,), topology=True, auxiliary=0.3)])
@pytest.mark.parametrize("index", range(len(RUNS)), ids=[f"{p.name}-{i}" for i, (p, _) in enumerate(RUNS)])
def test_every_attack_copes_with_a_protocol_that_states_nothing(index: int, observer: Observer) -> None:
    """A reason or a result, and never an error; every reason that is about structure names the fix."""
    run = recorded(index)
    view = run.view(observer)
    public = dataclasses.replace(view.public, hyperparameters={}, structure=Structure())
    bare = dataclasses.replace(view, public=public)
    open_ends = [kind.missing() for kind in BUILT_IN.values()]
    refused = 0
    for name in ATTACKS:
        attack: Attack = build("attack", name, {})
        if not set(attack.consumes) <= set(type(run.protocol).emits):
            continue
        before, after = attack.unsupported(view), attack.unsupported(bare)
        if before is None and after is not None:
            assert after in open_ends
            refused += 1
        elif after is None:
            attack.run(bare, rng=derive(0, "attack"), device=CPU)
            attack.plant(bare, rng=derive(0, "plant"))
    assert refused or (SERVER not in observer.parties and not isinstance(run.protocol, FedGCN | FedGAT | GFLAPPNP))


def test_means_are_counts_that_the_sender_divided() -> None:
    """The rows of means over a neighbourhood are found where those of its counts are."""
    graph = random_federated(4, nodes=40, features=24)
    observer = Observer((0,), topology=True)
    result = RowSpace().run(make_view(graph, observer, aggregate="row-mean"), rng=derive(0, "attack"), device=CPU)
    counts = RowSpace().run(make_view(graph, observer, aggregate="counts"), rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction) and isinstance(counts, Reconstruction)
    assert result.proven is not None and counts.proven is not None and bool(result.proven.any())
    assert torch.equal(result.nodes, counts.nodes) and torch.equal(result.proven, counts.proven)
    sure = result.proven
    torch.testing.assert_close(result.rows[sure], graph.x[result.nodes[sure]])


def test_means_that_no_attack_reads_say_so() -> None:
    graph = random_federated(4)
    view = make_view(graph, Observer((SERVER,), topology=True), aggregate="row-mean")
    assert "no sign of protection" in (ServerPartialSums().unsupported(view) or "")
    assert "means have no weights" in (SubsetSum().unsupported(view) or "")
    stated = view.public.structure.replace(Sums, added_by="clients")
    passed_on = dataclasses.replace(view, public=dataclasses.replace(view.public, structure=stated))
    assert "no sign of protection" in (RowSpace().unsupported(passed_on) or "")


def test_structure_is_saved_with_recordings(tmp_path: Path) -> None:
    run = recorded(5)
    run.recording.save(tmp_path)
    loaded = Recording.load(tmp_path)
    assert loaded.public.structure == run.recording.public.structure == run.protocol.stated(run.graph)
    assert loaded.public.structure.of(Encoder).noise == 0.0
    path = tmp_path / "recording.json"
    stored = unstamped(path.read_bytes(), path.name)
    del stored["public"]["structure"]
    path.write_text(stamped(stored, path.name))
    with pytest.raises(FglauditError, match="record the run again"):
        Recording.load(tmp_path)
