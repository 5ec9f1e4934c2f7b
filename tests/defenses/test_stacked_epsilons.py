"""Epsilons of stacks of defenses: which one holds, which add up, and where none is justified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from stacked_defenses import (
    DP_SGD,
    GRAPH,
    HE,
    MATRICES,
    NOISE,
    SECRET_SUMS,
    SHARED,
    SUMS,
    USERS,
    Silent,
    SilentSession,
    stack,
)

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.facts import (
    EDGES,
    DroppedEdges,
    Fact,
    Field,
)
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.testing import record
from fglaudit.view import Observer

TRANSFORMER = FedGT(rounds=3, hidden=8, heads=2, feed_forward=8, global_nodes=3)


def guarantee(
    *parts: dict[str, Any] | str | Defense, protocol: FederatedProtocol = SUMS, graph: FederatedGraph = GRAPH
) -> Guarantee:
    return record(protocol, graph, stack(*parts)).session.guarantee()


@dataclass(frozen=True)
class Shuffled(Fact):
    """Of a plugin's own."""


class _Shuffling(SilentSession):
    def facts(self) -> tuple[Fact, ...]:
        return (Shuffled(Field("NeighborSums", direction="up")),)


@dataclass(frozen=True)
class Shuffling(Silent):
    """States something that nobody knows."""

    name: ClassVar[str] = "shuffling"

    def bind(self, context: Context) -> DefenseSession:
        return _Shuffling()


def test_one_epsilon_survives_what_comes_after_it() -> None:
    alone = record(SUMS, GRAPH, Gaussian(epsilon=4.0, clip=2.0)).session.guarantee()
    assert alone.epsilon_accounted is not None
    sealed = guarantee(NOISE, HE)
    assert sealed.epsilon_accounted == alone.epsilon_accounted and sealed.key_custody
    trained = guarantee(NOISE, DP_SGD, HE)
    kept = ("epsilon_accounted", "epsilon_claimed", "delta", "unit", "relation", "adjacency", "releases")
    assert all(getattr(trained, name) == getattr(alone, name) for name in kept)
    assert "the epsilon is that of gaussian" in trained.mechanism and "dp-sgd" in trained.mechanism
    assert "in the clear" not in trained.mechanism
    rows = guarantee({"name": "local-features", "epsilon": 3.0}, "drop-singletons", SECRET_SUMS)
    assert rows.epsilon_accounted == pytest.approx(3.0)


def test_of_two_that_cover_everything_the_one_that_holds_against_the_server_is_stated() -> None:
    trusted, local = {"name": "gaussian", "on": "MaskedMatrices"}, {"name": "gaussian", "on": "RawFeatures"}
    alone = record(MATRICES, GRAPH, Gaussian(on="MaskedMatrices")).session.guarantee()
    assert alone.server_trusted
    both = guarantee(local, trusted, protocol=MATRICES)
    assert not both.server_trusted and both.covers(Observer(parties=(SERVER,)))
    assert (
        both.epsilon_accounted
        == record(MATRICES, GRAPH, Gaussian(on="RawFeatures")).session.guarantee().epsilon_accounted
    )


def test_epsilons_of_parts_that_share_the_payloads_add_up() -> None:
    latents, models = (
        {"name": "joint-noise", "on": [name], "clip": [1.0], "epsilon": epsilon, "delta": delta}
        for name, epsilon, delta in (("Latents", 4.0, 1e-5), ("ModelUpdate", 3.0, 2e-5))
    )
    alone = record(
        SHARED, USERS, registry.build("defense", "joint-noise", {k: v for k, v in latents.items() if k != "name"})
    )
    assert alone.session.guarantee().epsilon_accounted is None  # models go out in the clear
    both = guarantee(latents, models, protocol=SHARED, graph=USERS)
    assert both.epsilon_accounted == pytest.approx(7.0, rel=1e-3)
    assert both.delta == pytest.approx(3e-5) and both.releases == 2 * SHARED.num_rounds
    parts = [{"name": "clipped-laplace", "norm": "l1", "on": [name]} for name in ("GlobalNodes", "ModelUpdate")]
    together = registry.build("defense", "clipped-laplace", {"norm": "l1", "on": ["GlobalNodes", "ModelUpdate"]})
    one = record(TRANSFORMER, GRAPH, together).session.guarantee().epsilon_accounted
    assert guarantee(*parts, protocol=TRANSFORMER).epsilon_accounted == pytest.approx(one)
    both = guarantee("clipped-laplace", OTHER_MODELS, protocol=TRANSFORMER)  # of all of a client's nodes, both
    assert both.epsilon_accounted == pytest.approx(296.0) and "client" in both.unit


OTHER_MODELS = {"name": "joint-noise", "unit": "client", "on": ["ModelUpdate"], "clip": [1.0]}
DROPOUTS = {"name": "secure-aggregation", "dropouts": 0.4, "threshold": 0.51}
ON_MASKS = {"name": "gaussian", "on": "MaskedMatrices"}


@pytest.mark.parametrize(
    ("protocol", "parts", "words"),
    [
        # The masks' sensitivity was derived for neighbourhoods of single rows, and of these edges.
        (MATRICES, ("merge-neighbors", ON_MASKS), "before merge-neighbors"),
        (MATRICES, ("drop-singletons", ON_MASKS), "before drop-singletons"),
        (SUMS, (Shuffling(), NOISE), "no known effect"),
        # The features of a client's nodes in one, all that it trains on in the other: there is nothing to add up.
        (TRANSFORMER, ("clipped-laplace", {"name": "dp-fedavg", "trust": "local"}), "do not compose"),
        (SUMS, ({"name": "dp-fedavg", "trust": "server"}, DROPOUTS), "leaves out"),
    ],
)
def test_no_epsilon_where_composition_is_not_justified(
    protocol: FederatedProtocol, parts: tuple[Any, ...], words: str
) -> None:
    promise = guarantee(*parts, protocol=protocol)
    assert promise.epsilon_accounted is None and promise.epsilon_claimed is None
    assert words in promise.mechanism and "no epsilon is stated" in promise.mechanism


def test_edges_may_be_dropped_where_the_bound_is_one_for_every_subgraph() -> None:
    assert guarantee("drop-singletons", NOISE).epsilon_accounted == pytest.approx(4.0, rel=1e-3)


def test_private_edges_and_another_rule_on_edges_give_no_epsilon() -> None:
    """Training on own edges alone: dp-sgd covers everything, and promises edges by its own rule."""
    protocol = FedGCN(hops=0, rounds=2)
    weights = {"name": "secure-aggregation", "on": ["ModelUpdate"], "range": 1e4}
    assert guarantee("dp-sgd", weights, protocol=protocol).epsilon_accounted == pytest.approx(8.0, rel=1e-3)
    promise = guarantee("dp-sgd", Dropping(), protocol=protocol)
    assert promise.epsilon_accounted is None and "protects edges" in promise.mechanism


class _Dropping(DefenseSession):
    def facts(self) -> tuple[Fact, ...]:
        return (DroppedEdges(EDGES, 1),)


@dataclass(frozen=True)
class Dropping(Silent):
    """Drops edges by a rule that drops none here."""

    name: ClassVar[str] = "dropping"

    def bind(self, context: Context) -> DefenseSession:
        return _Dropping()
