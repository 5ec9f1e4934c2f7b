"""The papers' curves by ``fglaudit reproduce``: figures of one round, trainings that rows share, bytes, drawn lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.graph import Graph
from fglaudit.interfaces import Trained
from fglaudit.partition import PartitionSpec
from fglaudit.payloads import ModelUpdate
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.reproduce import trainings
from fglaudit.reproduce.measuring import NO_TRAINING, measure, protocol_of, rows_of, seeds_of
from fglaudit.reproduce.papers import fedgat, fedgcn
from fglaudit.reproduce.papers.partly_iid import owners
from fglaudit.reproduce.printing.axes import Axis
from fglaudit.reproduce.printing.curves import curves
from fglaudit.reproduce.printing.panels import panels_of
from fglaudit.reproduce.printing.table import write
from fglaudit.reproduce.published import TITLES, Published
from fglaudit.reproduce.rounds import at_round, numbers, value
from fglaudit.reproduce.run import Compared, rounded
from fglaudit.reproduce.trainings import Measured, Training, channel_of, trained_on
from fglaudit.testing import example_graph

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def no_training_is_kept() -> Iterator[None]:
    trainings.trained.cache_clear()
    yield
    trainings.trained.cache_clear()


def outcome(rounds: int = 20, **series: torch.Tensor) -> Trained:
    """Return a training whose accuracy is the number of the round in percent."""
    accuracy = torch.arange(1, rounds + 1) / 100
    return Trained(accuracy.unsqueeze(1).expand(-1, 3), accuracy, {}, series=series)


def row(setting: str = "iid", *, method: str = "A", metric: str = "accuracy", clients: str = "10") -> Published:
    return Published("fedgcn-figure5", "cora", setting, clients, method, metric, "percent", None, None)


def test_a_setting_asks_for_a_round_or_for_the_round_of_an_update() -> None:
    whole = outcome()
    assert at_round(whole, "iid, degree=8") is whole
    assert value(row(), at_round(whole, "iid, round=7"), whole=True) == pytest.approx(7)
    assert value(row(), at_round(whole, "iid, tau=0.5, update=60", 5), whole=False) == pytest.approx(12)
    assert numbers("iid, tau=0.5, round=7") == {"tau": 0.5, "round": 7}
    for setting, steps in (("iid, round=21", 1), ("iid, round=0", 1), ("iid, update=7", 5), ("iid, update=105", 5)):
        with pytest.raises(FglauditError, match=rf"from 1 to 20; got '{setting}'"):
            at_round(whole, setting, steps)


def test_losses_are_those_of_the_round_and_missing_ones_are_named() -> None:
    found = at_round(outcome(3, training_loss=torch.tensor([3.0, 2.0, 1.0])), "iid, round=2")
    assert value(row(metric="training-loss"), found, whole=True) == 2.0
    with pytest.raises(FglauditError, match="keeps validation_loss in Trained"):
        value(row(metric="validation-loss"), found, whole=True)


def test_rows_that_follow_one_another_share_one_training(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, int]] = []

    def once(graph: object, protocol: object, defense: object, seed: int, device: torch.device) -> object:
        made.append((protocol, seed))
        losses = torch.linspace(2, 1, 5000)
        return outcome(5000, training_loss=losses, validation_loss=losses), Measured(0.0, 1.0)

    monkeypatch.setattr(trainings, "trained_on", once)
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: None)
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: None)
    for table, methods in (("gfl-appnp-figure3", 4 * 4 + 2), ("fedgcn-figure6", 5 * 3)):
        made.clear()
        monkeypatch.setattr("fglaudit.reproduce.papers.fedgcn.PartlyIid.apply", lambda *_: None)
        found = [measure(each, seed, "") for seed in (0, 1) for each in rows_of(table)]
        assert all(isinstance(each, Measured) for each in found), found[0]
        assert len(made) == 2 * methods and {seed for _, seed in made} == {0, 1}


def test_rows_of_a_curve_ask_for_rounds_that_their_training_has() -> None:
    asked = 0
    for each in (each for table in TITLES for each in rows_of(table)):
        if {"round", "update"} & set(numbers(each.setting)):
            protocol = protocol_of(each)
            if protocol == NO_TRAINING:  # label distributions, drawn beside what the same round compares
                continue
            assert not isinstance(protocol, str)
            whole = outcome(protocol.num_rounds)
            assert at_round(whole, each.setting, getattr(protocol, "local_steps", 1)) is not whole
            asked += 1
    assert asked > 500


def test_bytes_are_counted_by_payload_and_once_between_two_clients() -> None:
    graph = example_graph()
    protocol = DistributedGCN(rounds=2)
    _, measured = trained_on(graph, protocol, NoDefense(), 0)
    models, beside = measured.sent[ModelUpdate] / 1e6, measured.megabytes_beside_models
    assert measured.megabytes == pytest.approx(models + beside) and beside > 0
    both_ends = 1e3 * (measured.gigabytes_up + measured.gigabytes_down)
    assert both_ends == pytest.approx(models + 2 * beside)  # all but models goes from client to client


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_bytes_before_training_are_those_of_messages_that_are_made(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = example_graph()
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: graph)
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: None)
    table = "fedgat-figure7"
    wanted = next(each for each in rows_of(table) if each.method.startswith("Vector") == (variant == "vector"))
    made: list[object] = []
    monkeypatch.setattr("fglaudit.protocols.fedgat.fedgat.deliver", lambda *_: made.append(1))
    found = measure(wanted, 0, None)
    assert isinstance(found, Measured) and not made and seeds_of(wanted) == range(1)
    monkeypatch.undo()
    protocol = fedgat.protocol(wanted)
    assert isinstance(protocol, FedGAT) and protocol.variant == variant and protocol.remote == "matrices"
    whole = replace(protocol, path="matrices", rounds=1)
    channel = channel_of(graph, whole, NoDefense(), 0)
    whole.train(graph, channel, rng=torch.Generator().manual_seed(0), device=torch.device("cpu"))
    sent = sum(size for kind, size in channel.bytes_of.items() if kind is not ModelUpdate)
    assert found.value == pytest.approx(sent / 1e9)


def test_a_share_of_the_nodes_is_dealt_out_evenly() -> None:
    labels = torch.arange(3).repeat_interleave(100)
    by_share = {s: owners(labels, 5, s, torch.Generator().manual_seed(0)) for s in (0.0, 0.5, 1.0)}
    classes = {s: torch.bincount(owner * 3 + labels, minlength=15).view(5, 3) for s, owner in by_share.items()}
    assert ((classes[0.0] > 0).sum(1) == 1).all() and classes[0.0].sum(1).tolist() == [50, 50, 100, 50, 50]
    assert classes[1.0].sum(1).tolist() == [60] * 5 and classes[1.0].min() >= 10
    own = classes[0.5][torch.arange(5), torch.arange(5) % 3]
    assert (own > classes[0.5].sum(1) / 2).all() and classes[0.5].min() > 0
    with pytest.raises(FglauditError, match="2 clients for 3 classes"):
        owners(labels, 2, 0.5, torch.Generator())


def test_partly_iid_clients_hold_every_node_once() -> None:
    whole = example_graph()
    graph = Graph(
        whole.x, whole.y, whole.edge_index, "example", *(torch.arange(len(whole.y)) % 3 == k for k in range(3))
    )
    drawn = next(each for each in rows_of("fedgcn-figure6") if "share=0.5" in each.setting)
    classes = graph.num_classes
    partition = fedgcn.partition(replace(drawn, clients=str(classes)))
    split = partition.apply(graph, DatasetSpec("cora"), torch.Generator().manual_seed(0))
    assert split.num_clients == classes
    assert sorted(torch.cat(split.clients).tolist()) == list(range(graph.num_nodes))
    assert hash(Training(DatasetSpec("cora"), partition, fedgcn.protocol(drawn))) is not None


def test_training_is_flat_from_the_first_round_near_its_end() -> None:
    assert fedgcn.plateau(torch.tensor([0.1, 0.5, 0.79, 0.795, 0.7, *[0.8] * 20])) == 4
    assert fedgcn.plateau(torch.full((3,), 0.4)) == 1


def compared(*places: tuple[str, str, float], metric: str = "accuracy", spread: float = 0.0) -> list[Compared]:
    """Return rows of (method, setting, mean); a ``spread`` is that of two runs around it."""
    return [
        Compared(row(setting, method=method, metric=metric), (mean - spread, mean + spread), 1.0, mean / 100, "")
        for method, setting, mean in places
    ]


def test_lines_are_per_method_and_panels_per_partition_and_metric() -> None:
    rows = compared(
        ("A", "iid, round=10", 50), ("A", "iid, round=1", 20), ("B", "iid, round=1", 30), ("B", "iid, round=10", 40),
        ("A", "non-iid, round=1", 10), ("A", "non-iid, round=10", 60), ("C", "centralized", 80), ("D", "iid", 70),
    )  # fmt: skip
    panels = {panel.title: {line.method: line for line in lines} for panel, lines in panels_of(rows).items()}
    assert {title: set(lines) for title, lines in panels.items()} == {
        "cora, iid, 10 clients": {"A", "B", "C", "D"},
        "cora, non-iid, 10 clients": {"A", "C"},
    }
    assert panels["cora, iid, 10 clients"]["A"].xs == (1.0, 10.0) and panels["cora, iid, 10 clients"]["D"].xs == ()
    drawn = ElementTree.fromstring(curves("a & b", rows))
    lines = [line.attrib["points"].split() for line in drawn.iter(f"{SVG}polyline")]
    assert len(lines) == 3
    heights = [[float(point.split(",")[1]) for point in line] for line in lines]
    assert all(first > last for first, last in heights), "a larger figure lies higher"
    assert heights[0][0] > heights[1][0] and heights[2][0] > heights[0][0] > heights[2][1], "panels share a scale"
    assert len(list(drawn.iter(f"{SVG}circle"))) == 6


def test_no_measured_row_is_missing_in_the_figure() -> None:
    rows = compared(("A", "iid, round=1", 20), ("A", "iid, round=10", 50), ("A", "non-iid, round=1", 30), ("B", "x", 9))
    rows += compared(("A", "iid, round=1", 2), metric="training-loss")
    drawn = Counter(len(line.rows) for lines in panels_of(rows).values() for line in lines)
    assert sum(size * count for size, count in drawn.items()) == len(rows)
    assert curves("", rows).count("<circle") == len(rows)


def test_spreads_and_printed_figures_are_drawn() -> None:
    rows = compared(("A", "iid, round=1", 20), ("A", "iid, round=10", 50))
    plain, spread = (
        curves("", rows),
        curves("", compared(*((r.row.method, r.row.setting, r.mean or 0) for r in rows), spread=5)),
    )
    assert spread.count("<path") == plain.count("<path") + 2
    printed = [replace(each, row=replace(each.row, mean=30.0)) for each in rows]
    assert curves("", printed).count('fill="white" stroke') == 2


def test_where_nothing_varies_accuracies_lie_over_bytes(tmp_path: Path) -> None:
    rows = compared(("A", "beta=1", 20), ("B", "beta=1", 50))
    rows += compared(("A", "beta=1", 300), ("B", "beta=1", 7), metric="communication")
    ((panel, lines),) = panels_of(rows).items()
    assert panel.axis.startswith("communication") and {line.method: line.xs for line in lines} == {
        "A": (300,),
        "B": (7,),
    }
    assert [line.rows[0].mean for line in lines] == [20, 50]
    write("fedgcn-figure4", rows, tmp_path)
    assert ">communication, percent<" in (tmp_path / "table.svg").read_text()
    for table, some in (
        ("fedgcn-table2", rows),
        ("fedgcn-figure4", rows[:1] + rows[2:3]),
        ("fedgcn-figure4", rows[:2]),
    ):
        write(table, some, tmp_path)
        assert ">communication, percent<" not in (tmp_path / "table.svg").read_text()


@pytest.mark.parametrize(("values", "logarithmic"), [((1.0, 200.0), False), ((0.1, 300.0), True), ((5.0, 5.0), False)])
def test_ticks_are_round_and_on_the_axis(values: tuple[float, float], logarithmic: bool) -> None:
    axis = Axis.around(values, 10, 110, logarithmic=logarithmic)
    ticks = list(axis.ticks())
    assert 2 <= len(ticks) <= 8 and all(re.fullmatch(r"[0-9.]{1,4}", f"{tick:g}") for tick in ticks)
    assert all(10 <= axis.at(tick) <= 110 for tick in (*ticks, *values))
    assert axis.at(values[0]) <= axis.at(values[1])


def test_small_figures_keep_their_digits() -> None:
    assert [rounded(each) for each in (81.456, 0.69123, 0.00176, 0.0)] == ["81.46", "0.691", "0.00176", "0.00"]


def test_far_apart_figures_but_accuracies_lie_on_a_logarithmic_axis() -> None:
    places = (("A", "iid, round=1", 1), ("A", "iid, round=2", 10), ("A", "iid, round=3", 100))

    def steps(rows: list[Compared]) -> float:
        (line,) = ElementTree.fromstring(curves("", rows)).iter(f"{SVG}polyline")
        first, second, third = (float(point.split(",")[1]) for point in line.attrib["points"].split())
        return (first - second) / (first - third)

    in_nats = [replace(each, row=replace(each.row, unit="nats")) for each in compared(*places)]
    assert steps(in_nats) == pytest.approx(0.5, abs=0.01) and steps(compared(*places)) == pytest.approx(
        9 / 99, abs=0.01
    )
