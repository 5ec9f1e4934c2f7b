"""Attacks that know how long a step of Adam is say so where clients step with other constants than every library's."""

from __future__ import annotations

import dataclasses

import pytest
from user_graphs import user_graph

from fglaudit import registry
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.structure import Training
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer

_OBSERVER = Observer((-1,), topology=True, initial_weights=True, auxiliary=0.2)


@pytest.mark.parametrize("changed", [{"adam_epsilon": 8.0}, {"adam_beta1": 0.0}, {"adam_beta2": 0.9}])
@pytest.mark.parametrize(
    ("protocol", "attack"),
    [
        ("fedgt", "adam-shares"),
        ("fedgt", "update-labels"),
        ("fedgt", "absent-words"),
        ("fedgcn", "adam-inversion"),
        ("fedgcn", "update-members"),
        ("nfedgnn", "update-l1-norms"),
        ("nfedgnn", "weight-replay"),
    ],
)
def test_other_constants_of_adam_are_refused(protocol: str, attack: str, changed: dict[str, float]) -> None:
    run = {
        "fedgt": lambda: record(
            FedGT(rounds=2, layers=1, hidden=8, heads=1, feed_forward=8, global_nodes=2), example_graph()
        ),
        "fedgcn": lambda: record(FedGCN(hops=1, rounds=2, optimizer="adam"), example_graph()),
        "nfedgnn": lambda: record(NFedGNN(rounds=2, hidden=4), user_graph(nodes=12, features=24)),
    }[protocol]()
    view = run.view(_OBSERVER)
    tried = registry.build("attack", attack, {})
    usual = tried.unsupported(view)
    public = dataclasses.replace(view.public, structure=view.public.structure.replace(Training, **changed))
    refused = tried.unsupported(dataclasses.replace(view, public=public))
    assert usual is None, usual
    assert refused is not None and next(iter(changed)) in refused
