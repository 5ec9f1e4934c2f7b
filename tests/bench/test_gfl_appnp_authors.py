"""The benches of GFL-APPNP's authors' data: files of draws are read as arrays alone, networks learn, first weights."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
import torch

from bench.gfl_appnp.authors import _Reader, accuracy, chosen_accuracy
from bench.gfl_appnp.authors_gat import first_model


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_draw_that_would_run_code_is_refused_and_arrays_are_read() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"asks for (posix|nt)\.system"):
        _Reader(io.BytesIO(pickle.dumps(Harmful()))).load()
    assert _Reader(io.BytesIO(pickle.dumps(np.arange(3)))).load().tolist() == [0, 1, 2]


def test_the_networks_learn_from_few_labels() -> None:
    y = torch.arange(40) % 2
    x = torch.where(y == 1, 1.0, -1.0).unsqueeze(1) * torch.tensor([1.0, 0.5])
    edges = torch.stack([torch.arange(40), (torch.arange(40) + 2) % 40])  # within the classes
    parts = {"train": torch.arange(4), "valid": torch.arange(4, 12), "test": torch.arange(12, 40)}
    assert accuracy(x, y, edges, parts, 0, steps=50) == 100.0
    assert chosen_accuracy(first_model(2, 2, 0), x, y, edges, parts, 0.1, 100) == 100.0


def test_first_weights_are_those_of_release_1_7() -> None:
    """Which drew a linear layer's own weights first and Glorot's twice; each layer's score vectors follow."""
    model, again = first_model(5, 3, 0), first_model(5, 3, 0)
    torch.manual_seed(0)
    torch.rand(5 * 64), torch.rand(5 * 64)
    expected = (2 * torch.rand(64, 5) - 1) * (6 / 69) ** 0.5
    assert torch.allclose(model.first.lin.weight, expected, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert not torch.equal(model.second.att_dst, first_model(5, 3, 1).second.att_dst)
