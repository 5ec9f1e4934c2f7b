"""Differentially private gradient descent: what it promises for which protocol, what it does to gradients, and canaries
in it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import pytest
import torch
from dp_runs import BY_EXAMPLES, GRAPH, SILENT, Sums, change_noise, per_node, train
from torch import Tensor
from torch.nn import functional
from wrapped_defense import Wrapped

from fglaudit.defenses.none import NoDefense
from fglaudit.defenses.training.dp_sgd import DpSgd, _Session
from fglaudit.empirical.estimates.gdp import gdp
from fglaudit.errors import FglauditError
from fglaudit.facts import Fact
from fglaudit.graph import ClientGraph, FederatedGraph, Graph, canonical_edges, federate
from fglaudit.guarantees import Verdict, Word
from fglaudit.interfaces import DefenseSession, FederatedProtocol, Guarantee
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.graphsage import GraphSAGE
from fglaudit.protocols.baselines.local_gcn import LocalGCN
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.recording import record_training
from fglaudit.rng import derive
from fglaudit.testing import check_defense, example_graph, record

LOCAL = FedGCN(hops=0, rounds=2)


def bound(defense: DpSgd, protocol: FederatedProtocol = LOCAL, graph: FederatedGraph = GRAPH) -> _Session:
    session = defense.bind(protocol.context(graph))
    assert isinstance(session, _Session)
    return session


@pytest.mark.parametrize(("protocol", "graph"), BY_EXAMPLES, ids=lambda v: getattr(v, "name", ""))
def test_training_by_examples_is_training(protocol: FederatedProtocol, graph: FederatedGraph) -> None:
    session = Sums().bind(protocol.context(graph))
    each = train(protocol, graph, session)
    plain = train(protocol, graph, NoDefense().bind(protocol.context(graph)))
    assert session.asked > 0  # type: ignore[attr-defined]
    for name, weight in plain.weights.items():
        torch.testing.assert_close(each.weights[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("protocol", "graph"), BY_EXAMPLES[::2], ids=lambda v: getattr(v, "name", ""))
def test_promises_are_kept(protocol: FederatedProtocol, graph: FederatedGraph) -> None:
    check_defense(DpSgd(degree_bound=2, edges="public"), protocol, graph, quick=True)


REFUSED = [
    (FedGT(), "global nodes"),
    (LocalGT(), "global nodes"),
    (FedGAT(), "in the clear"),
    (GFLAPPNP(), "Jacobians"),
    (NFedGNN(), "no losses"),
    (APPNP(), "all nodes"),
    (GraphSAGE(), "one mean"),
]


@pytest.mark.parametrize(("protocol", "why"), REFUSED, ids=lambda v: getattr(v, "name", ""))
def test_where_no_unit_can_be_stated_there_is_a_reason(protocol: FederatedProtocol, why: str) -> None:
    reason = DpSgd().unsupported(protocol.context(GRAPH))
    assert reason is not None and why in reason and type(protocol).name in reason
    with pytest.raises(FglauditError, match="dp-sgd does not apply"):
        DpSgd().bind(protocol.context(GRAPH))


def test_epsilon_is_accounted_only_where_gradients_are_all_that_depends_on_a_node() -> None:
    local = bound(DpSgd(epsilon=4, edges="public")).guarantee()
    assert local.epsilon_accounted is not None and 3.99 < local.epsilon_accounted <= 4
    assert (local.unit, local.delta, local.releases) == ("node", 1e-5, LOCAL.rounds * LOCAL.local_steps)
    assert "features and label replaced" in local.adjacency
    private = bound(DpSgd(epsilon=4, degree_bound=3)).guarantee()
    assert private.epsilon_accounted is not None and "at most 3 edges within its client taken away" in private.adjacency
    sums = bound(DpSgd(epsilon=4, edges="public"), FedGCN(hops=1)).guarantee()
    assert sums.epsilon_accounted is None and "NeighborSums in the clear" in sums.mechanism


def test_private_edges_are_refused_where_other_clients_see_them() -> None:
    reason = DpSgd().unsupported(FedGCN(hops=1).context(GRAPH))
    assert reason is not None and "edges: public" in reason
    assert DpSgd().unsupported(GCN().context(GRAPH)) is None
    assert DpSgd(edges="public").unsupported(FedGCN(hops=1).context(GRAPH)) is None
    codes = StructureOnly(hops=(1, 2), width=8).context(GRAPH)  # propagated over edges, in messages and in inputs
    assert "structure-only sends" in str(DpSgd().unsupported(codes))
    assert DpSgd(edges="public").unsupported(codes) is None
    sage = FedAvgSage(neighbors=2, candidates=4).context(GRAPH)
    wide = DpSgd(degree_bound=5).unsupported(sage)
    assert wide is not None and "degree_bound: 4 or less" in wide
    assert DpSgd(degree_bound=4).unsupported(sage) is None


def test_noise_follows_from_losses_clip_and_budget() -> None:
    one = bound(DpSgd(clip=0.5), FedMLP(rounds=3, local_steps=2), per_node(GRAPH))
    assert (one.losses, one.mechanism.sensitivity, one.passes) == (1, 1.0, 6)
    ten = bound(DpSgd(clip=0.5))
    assert ten.losses == max(int(part.sum().item()) for part in GRAPH.train)
    assert ten.mechanism.scale == pytest.approx(one.mechanism.scale * ten.losses)  # the same number of passes
    assert bound(DpSgd(degree_bound=1, edges="public")).losses == 1 + 1
    assert bound(DpSgd(epsilon=1)).mechanism.scale > bound(DpSgd(epsilon=8)).mechanism.scale


def test_gradients_are_clipped_and_get_the_stated_noise() -> None:
    session = bound(DpSgd(clip=0.5, epsilon=5))
    rng = torch.Generator().manual_seed(0)
    gradients = torch.randn(7, 2, 4000, generator=rng)
    gradients[0] *= 1e-3
    stated = session.mechanism
    change_noise(session, SILENT)
    norm = gradients.norm(dim=2, keepdim=True)
    expected = (gradients * (0.5 / norm).clamp(max=1)).sum(0)
    torch.testing.assert_close(session.local_update(gradients, rng), expected)
    session.mechanism = stated
    noise = session.local_update(gradients, rng) - expected
    assert float(noise.std().item()) == pytest.approx(stated.scale, rel=0.05)


def test_a_gradient_that_is_not_finite_counts_as_none() -> None:
    session = bound(DpSgd())
    change_noise(session, SILENT)
    gradients = torch.ones(3, 1, 4) / 10
    gradients[1, 0, 0], gradients[2, 0, 1] = math.nan, math.inf
    torch.testing.assert_close(session.local_update(gradients, torch.Generator()), gradients[0])


def test_a_sample_is_unbiased_and_its_noise_calibrated_for_it() -> None:
    session = bound(DpSgd(sampling_rate=0.25, edges="public", degree_bound=2))
    assert session.mechanism.multiplier < bound(DpSgd(edges="public", degree_bound=2)).mechanism.multiplier
    promised = session.guarantee()
    assert promised.epsilon_accounted is not None and 7.9 < promised.epsilon_accounted <= 8
    change_noise(session, SILENT)
    rng = torch.Generator().manual_seed(1)
    gradients = torch.full((2000, 1, 3), 0.01)
    found = session.local_update(gradients, rng)
    torch.testing.assert_close(found, gradients.sum(0), rtol=0.15, atol=0)
    assert not torch.equal(found, session.local_update(gradients, rng))


def test_equal_seeds_train_equal_models_and_noise_shows() -> None:
    first, again = (record(LOCAL, defense=DpSgd(), seed=0).trained.weights for _ in range(2))
    other = record(LOCAL, defense=DpSgd(), seed=1).trained.weights
    plain = record(LOCAL, seed=0).trained.weights
    for name, weight in first.items():
        assert torch.equal(weight, again[name])
        assert not torch.equal(weight, other[name]) and not torch.equal(weight, plain[name])


def stars(row: Tensor, copies: int, leaves: int = 4) -> FederatedGraph:
    """Return clients whose first node has ``leaves`` neighbours and the features ``row``; all train, on class 0 of
    two."""
    size, count = leaves + 1, copies * (leaves + 1)
    x = torch.zeros(copies, size, len(row))
    x[:, 0] = row
    centers = torch.arange(0, count, size).repeat_interleave(leaves)
    edges = torch.stack([centers, centers + torch.arange(1, size).repeat(copies)])
    every = torch.ones(count, dtype=torch.bool)
    graph = Graph(x.flatten(0, 1), torch.zeros(count, dtype=torch.long), canonical_edges(edges, count), "stars")
    clients = torch.split(torch.arange(count), size)
    return dataclasses.replace(federate(graph, clients, every, ~every, every), num_classes=2)


@pytest.mark.parametrize("divided", [1, 10])
def test_canaries_reach_the_accounted_epsilon_only_if_noise_is_missing(divided: int) -> None:
    """One node's features in the losses of its whole neighbourhood, through training as it is; then with a tenth of the
    noise.

    Both rows make the first model choose the wrong class, so that every gradient is clipped, and otherwise are
    opposite: the clipped gradients then differ by nearly twice the clip. Clients that train alone are so many
    independent runs.
    """
    protocol = LocalGCN(layers=1, rounds=1, local_steps=1, learning_rate=1.0, weight_decay=0.0, dropout=0.0)
    still, empty = dataclasses.replace(protocol, learning_rate=0.0), stars(torch.zeros(8), 1)
    first = train(still, empty, NoDefense().bind(still.context(empty))).weights["layers.0.weight"][0]
    wrong = functional.normalize(first[:, 1] - first[:, 0], dim=0)
    across = functional.normalize(torch.eye(8)[0] - wrong[0] * wrong, dim=0)
    rows = torch.stack([100 * across, -100 * across]) + 20 * wrong
    session = bound(DpSgd(epsilon=2, degree_bound=4, edges="public"), protocol, empty)
    assert session.losses == 5
    stated = session.mechanism

    def models(row: Tensor, noise: float, copies: int, seeds: range) -> Tensor:
        session.mechanism = stated
        change_noise(session, noise)
        graph = stars(row, copies)
        runs = [train(protocol, graph, session, seed=seed).weights["layers.0.weight"].flatten(1) for seed in seeds]
        return torch.cat(runs)

    direction = models(rows[0], SILENT, 1, range(1))[0] - models(rows[1], SILENT, 1, range(1))[0]
    assert float(direction.norm().item()) * 5 > 0.9 * stated.sensitivity  # the mean of 5 was applied
    scores = [
        models(row, 1 / divided, 100, range(8 * world, 8 * world + 8)) @ direction for world, row in enumerate(rows)
    ]
    shown = gdp(scores[0], scores[1], delta=1e-5, confidence=0.99, rng=derive(0, "split")).epsilon
    assert (shown > 2) is (divided > 1), shown
    assert shown > 0.2


class _Wrong(DefenseSession):
    """dp-sgd with a fault."""

    def __init__(self, honest: _Session, fault: str) -> None:
        self.honest, self.fault = honest, fault

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return client if self.fault == "all edges" else self.honest.prepare(client, rng)

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        stated = self.honest.mechanism
        change_noise(
            self.honest, {"a tenth": 0.1, "a hundredth": 0.01, "one loss": 1 / self.honest.losses}.get(self.fault, 1.0)
        )
        updated = self.honest.local_update(gradients, rng)
        self.honest.mechanism = stated
        return updated

    def facts(self) -> tuple[Fact, ...]:
        return self.honest.facts()

    def guarantee(self) -> Guarantee:
        return self.honest.guarantee()


def judged(fault: str, protocol: FederatedProtocol, graph: FederatedGraph, **settings: Any) -> Verdict:
    honest = DpSgd(degree_bound=2, edges="public", **settings)
    wrong = Wrapped(honest, lambda session: _Wrong(cast(_Session, session), fault))
    return record_training(graph, protocol, wrong, empirical=True)[0].verdict


@pytest.mark.parametrize("fault", ["none", "a tenth", "one loss", "all edges"])
def test_the_audit_of_a_cell_finds_what_is_wrong_and_nothing_else(fault: str) -> None:
    verdict = judged(fault, FedGCN(hops=0, rounds=4), example_graph(nodes=150, clients=1), epsilon=4)
    assert (verdict.word is Word.REFUTED) is (fault != "none"), verdict.reason
    assert verdict.measured is not None and verdict.measured.epsilon > 1
    assert fault != "none" or verdict.measured.epsilon < 4


@pytest.mark.parametrize("fault", ["none", "a hundredth"])
def test_samples_are_audited_without_taking_them_for_gaussian(fault: str) -> None:
    verdict = judged(fault, FedGCN(hops=0, rounds=2), GRAPH, epsilon=1.0, sampling_rate=0.5)
    assert (verdict.word is Word.REFUTED) is (fault != "none"), verdict.reason
    assert verdict.mu is None and verdict.measured is not None
    assert (verdict.measured.epsilon > 1) is (fault != "none")


BAD = [
    ({"epsilon": 0.0}, "epsilon must be positive"),
    ({"epsilon": math.inf}, "'epsilon' must be a number; got inf"),
    ({"delta": 0.0}, "delta must lie strictly"),
    ({"delta": 1.0}, "delta must lie strictly"),
    ({"clip": 0.0}, "clip must be positive; got 0"),
    ({"clip": math.nan}, "'clip' must be a number; got nan"),
    ({"degree_bound": 0}, "degree_bound must be at least 1; got 0"),
    ({"sampling_rate": 0.0}, "sampling_rate is a probability"),
    ({"sampling_rate": 1.5}, "sampling_rate is a probability"),
    ({"edges": "hidden"}, "private"),
    ({"unit": "edge"}, "node"),
]


@pytest.mark.parametrize(("settings", "words"), BAD, ids=str)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float | str], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        dataclasses.replace(DpSgd(), **settings)  # type: ignore[arg-type]
