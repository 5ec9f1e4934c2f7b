"""Every defense's session serves training on a device: noise, seals and masks give what they give on the CPU."""

from __future__ import annotations

import pytest
import torch
from places import on_devices, place
from recordings import SETUPS

from bench.defense_settings import defenses
from fglaudit.interfaces import Defense
from fglaudit.recording import record_training

QUICK = ("fedgcn-1", "nfedgnn-gcn", "gfl-appnp", "fedgt")
"""One recording per family; FedGAT's, whose matrices are many small operations, is slow."""


def cases() -> list[object]:
    """Return every defense that serves a protocol, with that protocol."""
    found: list[object] = []
    for where in (*QUICK, "fedgat-matrix"):
        setup = SETUPS[where]
        context = setup.build().context(setup.graph())
        for number, defense in enumerate(defenses(setup.protocol)):
            if defense.unsupported(context) is None and type(defense).name != "none":
                marks = () if where in QUICK else (pytest.mark.slow,)
                found.append(pytest.param(where, defense, id=f"{where}-{type(defense).name}-{number}", marks=marks))
    return found


@on_devices
@pytest.mark.parametrize(("where", "defense"), cases())
def test_defense(where: str, defense: Defense, where_to: str) -> None:
    there = place(where_to)
    setup = SETUPS[where]
    on_cpu = record_training(setup.graph(), setup.build(), defense)[1].trained
    with there.used():
        recording, truth = record_training(setup.graph(), setup.build(), defense, device=there.device)
    assert recording.transcript.entries
    assert all(bool(weight.isfinite().all()) for weight in truth.trained.weights.values())
    if there.exact:
        # Up to the order in which products are summed, and, where keys and masks are fresh, to the sums' fixed point.
        close = {
            n: torch.allclose(truth.trained.weights[n], v, rtol=1e-3, atol=1e-4) for n, v in on_cpu.weights.items()
        }
        assert all(close.values()), close
