"""What a run will take: extrapolated from its first rounds, and what cannot be foretold said so."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from execution_runs import suite

from fglaudit.errors import duration
from fglaudit.execution import dry_run
from fglaudit.execution.dry_run import foretold, opened
from fglaudit.execution.forecast import forecast, settings
from fglaudit.execution.forecast.costs import AUDITS
from fglaudit.execution.forecast.forecast import Forecast
from fglaudit.execution.forecast.probe import Probe, probe
from fglaudit.execution.forecast.settings import forecasts
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record
from fglaudit.testing import example_graph

PROTOCOLS = [
    {"name": "fedgcn", "hops": 1, "rounds": 12},
    {"name": "private-reports", "encoder_rounds": 2, "rounds": 12},
]


@pytest.mark.parametrize("kept", ["needed", "all"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda one: str(one["name"]))
def test_messages_on_disk_are_those_of_all_rounds(protocol: dict[str, object], kept: str, tmp_path: Path) -> None:
    cell = suite(protocols=[protocol], record=kept).cells()[0]
    found = probe(cell)
    assert isinstance(found, Probe) and found.training > 0 and found.memory > 2**20
    record(cell, folder=tmp_path)
    stored = sum(path.stat().st_size for path in tmp_path.glob("messages-*"))
    # Of a protocol with several stages the last trained round is not as all that follow.
    assert found.disk == pytest.approx(stored, rel=0.02 if protocol["name"] == "fedgcn" else 0.3)


def test_attacks_that_do_not_apply_read_nothing() -> None:
    found = probe(suite(attacks=["row-space", "subset-sum"], protocols=[PROTOCOLS[0]]).cells()[0])
    assert isinstance(found, Probe)
    assert set(found.attacks) == {("client:each", "row-space"), ("client:each", "subset-sum")}
    assert found.attacks["client:each", "row-space"] > 3 * 20 * 4  # rows of every client, not of one
    none = suite(protocols=["gcn"], defenses=["drop-singletons"]).cells()[0]
    assert str(probe(none)).startswith("not applicable: ")


def test_observers_of_one_name_that_know_different_things_all_count() -> None:
    both = [{"parties": ["client:each"]}, {"parties": ["client:each"], "topology": True}]
    found = probe(suite(attacks=["row-space"], protocols=[PROTOCOLS[0]], observers=both).cells()[0])
    assert isinstance(found, Probe)
    assert set(found.attacks) == {("client:each", "row-space"), ("client:each topology", "row-space")}


def test_seconds_follow_from_rounds_costs_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "COSTS", {"a": (1.0, 2.0), AUDITS: (4.0, 0.0)})
    monkeypatch.setattr(forecast, "REFERENCE", 0.5)
    seen = Probe(3.0, 2, {("server", "a"): 10**6, ("server", "b"): 10**6}, released=1, memory=2**20, disk=2**21)
    found = Forecast.of(seen, machine_seconds=1.0)
    assert (found.training, found.attacks, found.audits, found.seconds) == (6.0, 6.0, 8.0, 20.0)
    assert str(found) == (
        "at least 20 s (training 6 s, attacks 6 s, audits 8 s; without b, whose cost is not known), at least 1.0 MiB"
        " of memory, 2.0 MiB on disk"
    )
    seen = dataclasses.replace(seen, attacks={("server", "a"): 10**6})
    assert str(Forecast.of(seen, machine_seconds=1.0)).startswith("about 20 s (training 6 s, attacks 6 s, audits 8 s),")
    assert [duration(s) for s in (0.123, 99, 119, 150, 9000, 10**6)] == [
        "0.12 s", "99 s", "119 s", "2.5 min", "2.5 h", "278 h",
    ]  # fmt: skip


def test_settings_that_differ_in_seed_or_fraction_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = suite(
        protocols=[PROTOCOLS[0]], defenses=["none", {"name": "gaussian", "epsilon": {"sweep": [1.5, 2.5]}}]
    ).cells()
    skipped = [(len(members), why) for members, why in forecasts(cells, skipped=[cells[0].dataset])]
    assert skipped == [(n, "not estimated: its data set was not opened") for n in (2, 4)]
    monkeypatch.setattr(settings, "SECONDS_ALL", -1.0)
    late = list(forecasts(cells))
    assert {why for _, why in late} == {"not estimated: others took -1 s"}


def test_a_total_without_attacks_of_unknown_cost_is_a_least_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """update-properties was foretold about 0.6 s a cell, and took 49: its one attack trains shadow clients."""
    told = [Forecast(3.0, 0.0, 0.0, 2**20, 2**20, unknown) for unknown in (("a",), ("a", "b"), ())]
    whole = suite(protocols=[PROTOCOLS[0]])
    groups = [([cell], found) for cell, found in zip(whole.cells() * 2, told, strict=False)]
    monkeypatch.setattr(dry_run, "forecasts", lambda *_: iter(groups))
    assert "at least 9 s of one core" in (last := list(foretold(whole, opened(whole)))[-1].text)
    assert "here, without a, b, whose cost is not known;" in last
    monkeypatch.setattr(dry_run, "forecasts", lambda *_: iter(groups[2:]))
    assert "about 3 s of one core" in (last := list(foretold(whole, opened(whole)))[-1].text) and "without" not in last


def test_a_probe_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SECONDS_EACH", 0.0)
    cells = suite(protocols=[PROTOCOLS[0]]).cells()
    assert [why for _, why in forecasts(cells)] == ["not estimated: its first rounds take more than 0 s"]


def test_a_protocol_whose_check_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FedGCN, graph: object) -> None:
        raise TypeError("no such thing")

    monkeypatch.setattr(FedGCN, "check", broken)
    (said,) = dry_run._unfit(example_graph(), [FedGCN()])
    assert said == "protocols[0]: its check ends in TypeError: no such thing"
