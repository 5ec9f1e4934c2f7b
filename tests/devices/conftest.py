"""Every test that takes ``place`` runs on the device of pretence, and once more on a GPU where there is one."""

from __future__ import annotations

import pytest
from places import Place, found_gpu
from pretend_device import PRETEND


@pytest.fixture(params=["pretend", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> Place:
    """The device of pretence, then a GPU."""
    return Place(PRETEND, exact=True) if request.param == "pretend" else Place(found_gpu(), exact=False)
