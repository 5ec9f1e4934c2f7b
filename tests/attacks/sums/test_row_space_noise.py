"""The row-space attack through noise: a linear estimate is turned into a posterior, and is not below the prior."""

from __future__ import annotations

import pytest
from scored_runs import finding_of

from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record

CLIENT = ObserverSpec(("client:0",))
SERVER = ObserverSpec(("server",), topology=True)


@pytest.mark.parametrize(("epsilon", "least"), [(8.0, -0.03), (2000.0, 0.1)])
def test_noise_leaves_the_guess_and_little_noise_more(epsilon: float, least: float) -> None:
    """At epsilon 8 thresholds at one half leave a row without an entry, whose F1 is 0."""
    run = record(FedGCN(hops=1, rounds=1), example_graph(nodes=120, features=60), Gaussian(epsilon=epsilon, clip=3.0))
    found = finding_of(run, RowSpace(), CLIENT)
    assert found.f1 is not None and found.control_f1 is not None
    assert found.f1 > found.control_f1 + least


def test_who_knows_no_row_and_sees_noise_alone_is_left_with_the_guess() -> None:
    run = record(FedGCN(hops=1, rounds=1), example_graph(nodes=120, features=60), Gaussian(epsilon=1.0, clip=3.0))
    found = finding_of(run, RowSpace(), SERVER)
    assert found.f1 is not None and found.control_f1 is not None
    assert found.f1 > found.control_f1 - 0.03
