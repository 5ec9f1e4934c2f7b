"""A defense of clients' graphs changes what is sent or trained on, or refuses: every protocol, every such defense."""

from __future__ import annotations

import pytest
from recordings import SETUPS, recorded

from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.graph.fewer_features import FewerFeatures
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.defenses.graph.minimum_neighborhood import MinimumNeighborhood
from fglaudit.defenses.noise.local_features import LocalFeatures
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.facts import EDGES
from fglaudit.interfaces import Defense
from fglaudit.protocols.private.label_propagation import LabelPropagation
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.testing import record, same_messages

PLAIN = [where for where, setup in SETUPS.items() if setup.defense is None and setup.behaviour is None]
DEFENSES: tuple[Defense, ...] = (
    DropSingletons(),
    MinimumNeighborhood(fewest=1000),
    MergeNeighbors(size=2),
    FewerFeatures(share=0.25),
    LocalFeatures(),
    MultiBit(),
)
OF_EDGES = DEFENSES[:2]


@pytest.mark.parametrize("where", PLAIN)
def test_what_changes_graphs_changes_messages_or_models(where: str) -> None:
    setup, plain = SETUPS[where], recorded(where)
    protocol, graph = setup.build(), setup.graph()
    context = protocol.context(graph)
    for defense in DEFENSES:
        if defense.unsupported(context) is not None:
            continue
        run = record(protocol, graph, defense)
        same = all(
            bool((run.trained.weights[name] == plain.trained.weights[name]).all()) for name in run.trained.weights
        )
        assert not (same and same_messages(run, plain)), f"{type(defense).name} changes nothing of {where}"
        assert not [unstated for unstated in run.truth.unstated if unstated.target == EDGES]


def test_rows_are_made_random_only_where_they_enter_something() -> None:
    for protocol in (LabelPropagation(rounds=2), StructureOnly(hops=(1,), features_at_home="none")):
        for defense in DEFENSES[-2:]:
            why = defense.unsupported(protocol.context(recorded("fedgcn-1").graph))
            assert why is not None and "feature rows enter nothing" in why


def test_edges_are_dropped_where_they_enter_something_and_nowhere_else() -> None:
    served = {
        setup.protocol
        for where, setup in SETUPS.items()
        if where in PLAIN and OF_EDGES[0].unsupported(setup.build().context(setup.graph())) is None
    }
    assert served == {
        "fedgcn", "fedgat", "gap", "progap", "private-reports", "lpgnn", "fedsage", "distributed-gcn", "bds-gcn",
    }  # fmt: skip
    for name in ("nfedgnn-gcn", "gfl-appnp", "fedavg-sage"):
        why = OF_EDGES[1].unsupported(SETUPS[name].build().context(SETUPS[name].graph()))
        assert why is not None and "dropping them would change nothing" in why
