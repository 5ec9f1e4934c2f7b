"""Every built-in defense at a strength towards nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from node_graphs import graph as task_graph
from user_graphs import GCN, user_graph

from fglaudit import registry
from fglaudit.defenses import DEFENSES
from fglaudit.defenses.stack import Stack
from fglaudit.errors import FglauditError
from fglaudit.facts import K_ARY, Additive, Clipped, DroppedEdges, KeptColumns, Merged, Randomised, Rounded, first
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.privacy.accounting import MAX_EPSILON, VANISHING_EPSILON
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.testing import example_graph

SUMS, GRAPH = FedGCN(hops=1, rounds=3), example_graph()
APPNP, TASK = GFLAPPNP(hidden=8, rounds=3), task_graph()
SETTINGS: dict[str, tuple[dict[str, Any], FederatedProtocol, FederatedGraph]] = {
    "clipped-noise": ({}, NFedGNN(**GCN), user_graph()),
    "merge-neighbors": ({"size": 4}, FedGAT(rounds=2), GRAPH),
    "fewer-features": ({}, FedGAT(rounds=2), GRAPH),
    "clipping": ({}, APPNP, TASK),
    "joint-noise": ({}, APPNP, TASK),
    "quantisation": ({}, APPNP, TASK),
    "clipped-laplace": ({}, FedGT(rounds=3, hidden=8, heads=2, feed_forward=8, global_nodes=3), GRAPH),
    "dp-sgd": ({"edges": "public", "sampling_rate": 0.5}, SUMS, GRAPH),
    "multi-bit": ({"sampled": 3}, SUMS, GRAPH),
    "k-ary-response": ({}, PrivateReports(rounds=2), GRAPH),
    "stack": ({"parts": ["drop-singletons", {"name": "gaussian"}]}, SUMS, GRAPH),
}
AS_STRONG = {"none", "drop-singletons", "homomorphic-encryption", "threshold-encryption", "secure-aggregation"}
FACTORS = (1.0, 0.5, 0.1, 1e-3, 1e-9)
every_defense = pytest.mark.parametrize("name", DEFENSES)


def setting(name: str) -> tuple[Defense, FederatedProtocol, FederatedGraph]:
    arguments, protocol, graph = SETTINGS.get(name, ({}, SUMS, GRAPH))
    return registry.build("defense", name, arguments), protocol, graph


def strength(defense: Defense, protocol: FederatedProtocol, graph: FederatedGraph) -> float:
    """Return a number that falls with the strength, in the defense's own units, read off its facts."""
    facts = defense.bind(protocol.context(graph)).facts()
    if (noise := first(facts, Additive)) is not None:
        return noise.scale
    if (reports := first(facts, Randomised)) is not None and reports.kind == K_ARY:
        return float(1 - reports.parameter("keep"))  # how often a report lies
    if reports is not None:
        return float(reports.parameter("std") * reports.parameter("factor"))  # of the unbiased estimate of an entry
    if (grid := first(facts, Rounded)) is not None and grid.levels is not None:
        return 1 / grid.levels
    if (kept := first(facts, KeptColumns)) is not None:
        return graph.num_features - len(kept.ids)
    if (merged := first(facts, Merged)) is not None:
        return merged.size
    if (dropped := first(facts, DroppedEdges)) is not None:
        return dropped.fewest
    clip = first(facts, Clipped)
    assert clip is not None
    return 1 / clip.bound


@every_defense
def test_strength_falls_with_the_factor_to_nothing_or_to_the_weakest_of_the_kind(name: str) -> None:
    defense, protocol, graph = setting(name)
    weaker = [defense.weakened(factor) for factor in FACTORS]
    assert all(type(each) is type(defense) for each in weaker)
    assert weaker[0] == defense
    if name in AS_STRONG:
        assert all(each is defense for each in weaker)
        return
    found = [strength(each, protocol, graph) for each in weaker]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(found)), found
    assert found[-1] < found[0]
    if name == "fewer-features":
        assert found[-1] == 0
    elif name in ("merge-neighbors", "minimum-neighborhood"):
        assert found[-1] == 2
    elif name in ("clipping", "clipped-laplace", "quantisation", "multi-bit"):
        assert found[-1] < 1e-3 * found[0]
    elif name in ("dp-fedavg", "dp-sgd"):
        assert weaker[-1].epsilon == VANISHING_EPSILON  # type: ignore[attr-defined]
        assert found[-1] < 1e-4 * found[0]
    else:  # the accountant's largest epsilon
        part = weaker[-1].parts[1] if isinstance(weaker[-1], Stack) else weaker[-1]
        assert part.epsilon == MAX_EPSILON  # type: ignore[attr-defined]
        assert found[-1] < 0.05 * found[0]


@every_defense
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5, float("nan")])
def test_a_factor_is_a_share(name: str, factor: float) -> None:
    with pytest.raises(FglauditError, match="share of its strength"):
        setting(name)[0].weakened(factor)


def test_a_clip_of_coordinates_widens_as_its_noise_falls() -> None:
    weak = registry.build("defense", "clipped-laplace", {"clip": 0.5, "scale": 2.0}).weakened(0.1)
    assert (weak.clip, weak.scale) == (pytest.approx(5.0), pytest.approx(0.2))
