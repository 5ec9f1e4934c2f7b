"""Where tests of devices run: on the device of pretence, and once more on a GPU where there is one."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import pytest
import torch
from pretend_device import PRETEND, Traffic, pretending


@dataclass(frozen=True)
class Place:
    """A device.

    Attributes:
        exact: whether it computes the CPU's numbers, bit for bit.
    """

    device: torch.device
    exact: bool

    def used(self) -> contextlib.AbstractContextManager[Traffic | None]:
        """Return the context in which the device can be used."""
        return pretending() if self.exact else contextlib.nullcontext()


def found_gpu() -> torch.device:
    """Return the GPU; without one the test is skipped, or fails if ``FGLAUDIT_REQUIRE_GPU=1``."""
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    why = "torch finds no GPU"
    if os.environ.get("FGLAUDIT_REQUIRE_GPU") == "1":
        pytest.fail(f"{why}, and FGLAUDIT_REQUIRE_GPU=1 asks for one")
    pytest.skip(why)


on_devices = pytest.mark.parametrize("where_to", ["pretend", pytest.param("gpu", marks=pytest.mark.gpu)])
"""Runs a test on the device of pretence, then on a GPU; it asks :func:`place` for it."""


def place(where_to: str) -> Place:
    """Return the device that :data:`on_devices` names."""
    return Place(PRETEND, exact=True) if where_to == "pretend" else Place(found_gpu(), exact=False)
