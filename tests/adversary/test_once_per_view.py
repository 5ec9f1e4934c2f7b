"""What attacks share is made once per view, and goes with it."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest
import torch
from recordings import OBSERVERS, recorded
from torch import Tensor

from fglaudit.adversary.running import once_per_view as module
from fglaudit.adversary.running.once_per_view import MOST_BYTES, forget, once_per_view
from fglaudit.attacks.sums import plain_sums
from fglaudit.attacks.sums.bits.bit_decoding import DecodedBits, decode_bits
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations, neighbor_equations
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.view import KnownLabels, View


@dataclasses.dataclass(frozen=True)
class _Found:
    values: Tensor


def test_once_per_view_and_gone_with_it() -> None:
    calls = []

    @once_per_view
    def number(view: View) -> _Found:
        calls.append(view.observer)
        return _Found(torch.zeros(3))

    views = [recorded("fedgcn-1").view(observer) for observer in OBSERVERS[:2]]
    first = [number(view) for view in views]
    assert [number(view) for view in views] == first and first[0] is not first[1] and len(calls) == 2
    gone = weakref.ref(first[0])
    del first, views, calls[:]
    gc.collect()
    assert gone() is None


def test_once_per_view_and_value() -> None:
    named = once_per_view(lambda view, device: _Found(torch.zeros(1, device=device)))
    view = recorded("fedgcn-1").view(OBSERVERS[1])
    cpu = torch.device("cpu")
    assert named(view, cpu) is named(view, torch.device("cpu"))
    assert named(view, cpu) is not named(view, torch.device("meta"))


def test_attacks_on_plain_sums_share_what_they_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    view = recorded("fedgcn-1").view(next(o for o in OBSERVERS if o.clients))
    calls: list[Tensor] = []

    def counted(equations: NeighborEquations, odds: Tensor) -> DecodedBits:
        calls.append(odds)
        return decode_bits(equations, odds)

    monkeypatch.setattr(plain_sums, "decode_bits", counted)
    results = [
        attack.run(view, rng=torch.Generator(), device=torch.device("cpu"))
        for attack in (SubsetSum(), MaximumAPosteriori())
    ]
    assert len(calls) == 1 and torch.equal(results[0].nodes, results[1].nodes)


def test_what_is_large_is_not_kept() -> None:
    made = once_per_view(lambda view: _Found(torch.zeros(1).expand(MOST_BYTES)))
    view = recorded("fedgcn-1").view(OBSERVERS[1])
    assert made(view) is not made(view)


def test_equations_of_a_changed_view_are_made_anew() -> None:
    view = recorded("fedgcn-1").view(OBSERVERS[1])
    assert neighbor_equations(view) is neighbor_equations(view)
    assert neighbor_equations(dataclasses.replace(view, degrees=None)) is not neighbor_equations(view)


def test_attacks_that_are_watched_share_too_and_are_said_to_have_read_it() -> None:
    calls = []

    @once_per_view
    def first_entries(view: View) -> _Found:
        calls.append(view)
        return _Found(neighbor_equations(view).values)

    view = recorded("fedgcn-1").view(OBSERVERS[1])
    logs: list[set[tuple[str, str]]] = [set(), set()]
    found = [first_entries(view.noted(log)) for log in logs]
    assert found[0] is found[1] is first_entries(view) and len(calls) == 1
    assert logs[0] == logs[1] and ("NeighborSums", "sums") in logs[0]
    changed = dataclasses.replace(view.noted(set()), labels=KnownLabels.none())
    assert first_entries(changed) is not found[0] and len(calls) == 2


def test_what_is_forgotten_is_made_anew() -> None:
    made = once_per_view(lambda view: (_Found(torch.zeros(3)), 1))
    view = recorded("fedgcn-1").view(OBSERVERS[1])
    first = made(view)
    assert made(view.noted(set())) is first
    forget(view)
    assert made(view) is not first


def test_all_views_together_keep_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES_IN_ALL", 20)
    monkeypatch.setattr(module, "_shelves", {})
    made = once_per_view(lambda view, part: (_Found(torch.zeros(3)), part))
    view = recorded("fedgcn-1").view(OBSERVERS[1])
    assert made(view, 1) is made(view, 1) and made(view, 2) is not made(view, 2)
