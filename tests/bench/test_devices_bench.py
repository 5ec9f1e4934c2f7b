"""The table of training times by device."""

from __future__ import annotations

from pathlib import Path

import torch

from bench.cost.devices import KEY, PAPER, VALUES, add, present
from bench.defense_settings import SETUPS
from fglaudit.reproduce.measurements import Table


def test_a_row_is_measured_once(tmp_path: Path) -> None:
    table = Table(tmp_path / "devices.csv", KEY, VALUES)
    for _ in range(2):
        add(table, "small", SETUPS[0], torch.device("cpu"), runs=1)
    (row,) = table.rows()
    assert (row["protocol"], row["device"], row["runs"], row["peak_gpu_gb"]) == ("fedgcn", "cpu", "1", "")
    assert 0 < float(row["lowest"]) <= float(row["seconds"]) <= float(row["highest"])


def test_every_setting_can_be_built() -> None:
    assert {setup.build().name for setup in PAPER} == {"fedgcn", "fedgat", "nfedgnn", "gfl-appnp", "fedgt"}
    assert present()[-1] == torch.device("cpu")
