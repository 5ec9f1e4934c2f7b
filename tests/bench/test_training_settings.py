"""``python -m bench training-settings``: what trains convolutions and attention on graphs unlike Cora."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from user_graphs import user_graph

from fglaudit.datasets import DatasetSpec
from fglaudit.partition import PartitionSpec


def test_validation_and_test_nodes_are_told_apart_and_runs_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = importlib.import_module("bench.accuracy.training_settings")
    graph = user_graph(nodes=60)
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: None)
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: graph)
    monkeypatch.setattr(bench, "DATASETS", ("chameleon",))
    monkeypatch.setattr(bench, "PROTOCOLS", {"gcn": bench.PROTOCOLS["gcn"]})
    monkeypatch.setattr(bench, "ROUNDS", 2)
    bench.run(tmp_path, None, 1)
    first = capsys.readouterr().out
    assert len(first.splitlines()) == len(bench.SETTINGS) and "chameleon gcn defaults 0" in first
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("measured again"))
    bench.run(tmp_path, None, 1)
    assert capsys.readouterr().out == first
