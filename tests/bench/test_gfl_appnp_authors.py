"""The bench of GFL-APPNP's authors' data: files of draws are read as arrays alone, and the network learns."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
import torch

from bench.gfl_appnp.authors import _Reader, accuracy


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_draw_that_would_run_code_is_refused_and_arrays_are_read() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"asks for (posix|nt)\.system"):
        _Reader(io.BytesIO(pickle.dumps(Harmful()))).load()
    assert _Reader(io.BytesIO(pickle.dumps(np.arange(3)))).load().tolist() == [0, 1, 2]


def test_the_network_learns_from_few_labels() -> None:
    y = torch.arange(40) % 2
    x = torch.where(y == 1, 1.0, -1.0).unsqueeze(1) * torch.tensor([1.0, 0.5])
    edges = torch.stack([torch.arange(40), (torch.arange(40) + 2) % 40])  # within the classes
    parts = {"train": torch.arange(4), "valid": torch.arange(4, 12), "test": torch.arange(12, 40)}
    assert accuracy(x, y, edges, parts, 0, steps=50) == 100.0
