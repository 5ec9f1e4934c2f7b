"""Every protocol, as every recording sets it, under every rule."""

from __future__ import annotations

import pytest
import torch
from recordings import OBSERVERS, SETUPS

from fglaudit.protocols import PROTOCOLS
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import ObserverTruth
from fglaudit.quantities.rows.game import Game
from fglaudit.testing import check_protocol, example_graph
from fglaudit.wire.side_knowledge import draw_auxiliary


@pytest.mark.parametrize("where", [where for where, setup in SETUPS.items() if setup.behaviour is None])
def test_protocols_keep_their_promises(where: str) -> None:
    check_protocol(SETUPS[where].build(), SETUPS[where].graph())


def test_every_protocol_is_recorded() -> None:
    assert {setup.protocol for setup in SETUPS.values()} == set(PROTOCOLS)


def test_rule_3_own_and_auxiliary_nodes_are_no_targets() -> None:
    graph, protocol = example_graph(), FedGCN(hops=2)
    auxiliary = draw_auxiliary(graph, 0.3, 0)
    for observer in OBSERVERS:
        game = Game.of(ObserverTruth(graph, protocol, observer, auxiliary, {}, False))
        own = torch.cat([graph.clients[k] for k in observer.clients] or [torch.empty(0, dtype=torch.long)])
        assert len(game.targets) > 0
        assert not torch.isin(game.targets, torch.cat([own, auxiliary.nodes])).any()
