"""A server that computes on every edge is not asked about, unsaid, as one that has none."""

from __future__ import annotations

import pytest

from fglaudit import registry
from fglaudit.execution.rows import without_its_edges
from fglaudit.observers import ObserverSpec

WITHOUT, WITH = ObserverSpec(("server",)), ObserverSpec(("server",), topology=True)


@pytest.mark.parametrize("name", ["nfedgnn", "cnfgnn", "gfl-appnp", "fedgat", "lpgnn"])
def test_the_report_says_which_observer_is_missing(name: str) -> None:
    protocol = registry.load("protocol", name)()
    (note,) = without_its_edges(protocol, [ObserverSpec(("client:each",)), WITHOUT])
    assert name in note and "topology: true" in note
    assert not without_its_edges(protocol, [WITHOUT, WITH])
    assert not without_its_edges(protocol, [ObserverSpec(("client:each",))])


def test_a_server_that_knows_no_edge_is_asked_as_it_is() -> None:
    assert not without_its_edges(registry.load("protocol", "fedgcn")(), [WITHOUT])
