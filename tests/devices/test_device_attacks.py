"""Every attack runs on a device: with the findings of the CPU, handed back on the CPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from places import on_devices, place
from pretend_device import CPU
from recordings import attack, reached, seen
from torch import Tensor

from fglaudit.adversary.running.once_per_view import forget
from fglaudit.attacks import ATTACKS
from fglaudit.interfaces import Inference, Reconstruction
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw

SLOW = ("weight-replay", "masked-rounds", "update-labels", "mask-flip", "representation-inversion", "power-moments")
ON_THE_CPU = {
    "adam-inversion",
    "adam-shares",
    "differenced-updates",
    "functional-labels",
    "global-node-centroids",
    "global-node-labels",
    "global-node-membership",
    "label-reading",
    "lone-parts",  # a sort of rows and one product: carrying them over costs more
    "one-node-clusters",
    "raw-features",
    "label-sums",  # in the view of this test, the server's, nothing is left to solve
    "report-labels",
    "report-rows",
    "row-presence",
    "update-inversion",
    "update-labels",
    "update-shares",
    "update-subset-sum",
}
"""Attacks that stay on the CPU whatever device they are given: they work on a few numbers per client or class, or by
a linear programme."""


def tensors(result: Reconstruction | Inference) -> dict[str, Tensor]:
    """Return all that an attack found."""
    held = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    return {name: value for name, value in held.items() if isinstance(value, Tensor)}


def cases(slow: tuple[str, ...] = SLOW) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in ATTACKS]


@on_devices
@pytest.mark.parametrize("name", cases())
def test_attack(name: str, where_to: str) -> None:
    there = place(where_to)
    where, observer = reached(name)[0]
    view = seen(where, observer)
    on_cpu = tensors(attack(name).run(view, rng=derive(0, "attack"), device=CPU))
    forget(view)  # what another attack computed of this view there counts for none of this one's
    with there.used() as traffic:
        found = tensors(attack(name).run(view, rng=derive(0, "attack"), device=there.device))
    assert found.keys() == on_cpu.keys()
    assert all(found[key].device == CPU and found[key].shape == on_cpu[key].shape for key in found)
    if traffic is not None:
        assert all(torch.equal(found[key], on_cpu[key]) for key in found)
        assert (traffic.operations == 0) == (name in ON_THE_CPU), "either it uses the device or the list says why not"


CHOICES = {"variant": ("online", "offline")}
"""What fields of attacks that are words may be."""


def settings() -> list[object]:
    """Return every attack with every boolean and every word of its fields that is not the default, one at a time."""
    found: list[object] = []
    for name in ATTACKS:
        default = attack(name)
        for field in dataclasses.fields(default):  # type: ignore[arg-type]
            value = getattr(default, field.name)
            others = [not value] if isinstance(value, bool) else CHOICES[field.name] if isinstance(value, str) else ()
            found += [
                pytest.param(name, field.name, other, id=f"{name}-{field.name}-{other}")
                for other in others
                if other != value
            ]
    return found


@on_devices
@pytest.mark.parametrize(("name", "field", "value"), settings())
def test_settings_that_are_no_defaults(name: str, field: str, value: object, where_to: str) -> None:
    there = place(where_to)
    where, observer = reached(name)[0]
    view = seen(where, observer)
    candidate = dataclasses.replace(attack(name), **{field: value})  # type: ignore[type-var]
    assert candidate.unsupported(view) is None
    on_cpu = tensors(candidate.run(view, rng=derive(0, "attack"), device=CPU))
    forget(view)
    with there.used():
        found = tensors(candidate.run(view, rng=derive(0, "attack"), device=there.device))
    assert all(found[key].device == CPU and found[key].shape == on_cpu[key].shape for key in on_cpu)
    if there.exact:
        assert all(torch.equal(found[key], on_cpu[key]) for key in on_cpu)


@pytest.mark.slow
@on_devices
@pytest.mark.parametrize("name", ATTACKS)
def test_self_test(name: str, where_to: str) -> None:
    """The planted leak is found there too."""
    there = place(where_to)
    where, observer = reached(name)[0]
    with there.used():
        assert planted_flaw(attack(name), seen(where, observer), derive(0, "self-test", name), there.device) is None
