"""Where there is nothing to learn: noise that is done as stated, however large the messages are."""

from __future__ import annotations

import pytest

from fglaudit.attacks.learned import unexplained as module
from fglaudit.attacks.learned.learned_inversion import seen_payloads
from fglaudit.attacks.learned.unexplained import unexplained
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer


@pytest.mark.parametrize("values", [2**21, 2000, 1])
def test_stated_noise_is_explained_though_some_messages_are_too_large(
    values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = example_graph()
    view = record(FedGCN(hops=1, rounds=1), graph, Gaussian(epsilon=8.0)).view(Observer(parties=(0, 1), topology=True))
    monkeypatch.setattr(module, "_VALUES", values)
    assert not unexplained(view, seen_payloads(view))
