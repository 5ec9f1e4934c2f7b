"""The powers that the benchmark of growing problems prints."""

from __future__ import annotations

import pytest

from bench.speed.growth import CASES, FACTORS, LEAST, Case, Size, power


@pytest.mark.parametrize(("exponent", "shown"), [(1.0, "1.0"), (2.0, "2.0"), (0.0, "0.0"), (-1.0, "-1.0")])
def test_the_power_of_a_power_law_is_found(exponent: float, shown: str) -> None:
    assert power([0.5 * factor**exponent for factor in FACTORS]) == shown


def test_what_is_too_short_to_measure_has_no_power() -> None:
    assert power([LEAST / 2, 1.0, 2.0]) == "."


def test_nodes_bring_edges_and_edges_bring_no_nodes() -> None:
    size = Size()
    assert size.grown("nodes", 4).edges == 4 * size.edges
    assert size.grown("edges", 4).nodes == size.nodes


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.protocol}-{case.size.nodes}")
def test_every_graph_can_be_drawn(case: Case) -> None:
    """A graph that is too dense to be drawn would end the measurement after most of its time."""
    for what in case.size.respects():
        grown = case.size.grown(what, FACTORS[-1])
        assert case.graph(grown).num_nodes == grown.nodes
