"""What one record moves beside what its protocol states, in first rounds and in later ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from bench.redteam.cases import FAMILIES
from bench.redteam.protocol_faults import PROTOCOLS
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.empirical.adjacency import Statements
from fglaudit.empirical.fields.examined import Examined, examined, sensitivity_audit
from fglaudit.empirical.fields.forced_replay import Trace, told_apart
from fglaudit.empirical.fields.one_record import changed_losses
from fglaudit.empirical.replays.replaced import far_reaching, reached_within
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Outcome
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.privacy.from_facts import account
from fglaudit.protocols.baselines import update_clusters
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.testing import CPU, example_graph, record


def replayed(family: str, change: Callable[[FederatedProtocol], FederatedProtocol] = lambda honest: honest) -> Examined:
    honest, defense = FAMILIES[family].build()
    protocol, graph = change(honest), FAMILIES[family].graph()
    context = protocol.context(graph)
    run = record(protocol, graph, defense)
    stated, counted = Statements.by(run.session), run.channel.counted
    accounted = account(context, *stated, counted)
    return examined(protocol, graph, defense, context, stated, accounted, counted=counted, seed=0, device=CPU)


@pytest.mark.parametrize(
    ("fault", "family", "words"),
    [
        ("LaterSumsLarger", "sums-often", "moves NeighborSums by 10, further than the sensitivity 1"),
        ("ReportsOfNeighbours", "class-reports", "messages of ClassReports of one round, and the protocol states"),
        ("FewerHops", "subgraph-gradients", "changes the gradients of 2 losses of one step, 1 are accounted"),
    ],
)
def test_a_record_that_enters_more_than_stated_is_refuted(fault: str, family: str, words: str) -> None:
    audit = sensitivity_audit(replayed(family, PROTOCOLS[fault]))
    assert audit.outcome is Outcome.REFUTED and words in audit.detail


@pytest.mark.parametrize("family", ["sums-often", "class-reports", "subgraph-gradients", "latents", "jacobians"])
def test_a_record_that_enters_what_is_stated_is_not(family: str) -> None:
    seen = replayed(family)
    assert sensitivity_audit(seen).outcome is Outcome.PASSED and not seen.moved


def test_the_shape_of_gradients_is_that_of_the_run() -> None:
    protocol, _ = FAMILIES["gradients"].build()
    graph = FAMILIES["gradients"].graph()
    shape = replayed("gradients").trace.gradients()
    assert shape is not None
    assert shape[:2] == (max(int(train.sum()) for train in graph.train), graph.num_clients)
    assert shape[2] == sum(w.numel() for w in record(protocol, graph).trained.weights.values())
    assert Trace().gradients() is None


def test_models_that_carry_rows_in_later_rounds_are_seen() -> None:
    seen = replayed("gradients-long", PROTOCOLS["LaterModelsBare"])
    assert ("ModelUpdate", False, "vector") in seen.moved
    assert not seen.more, "losses of models that already carry a row are no evidence of their own"


@pytest.mark.parametrize(("fault", "field"), [("TunedByLabels", "vector"), ("StopsByLabels", "presence")])
def test_what_is_chosen_by_validation_labels_moves_with_them(fault: str, field: str) -> None:
    seen = replayed("gradients", PROTOCOLS[fault])
    assert seen.moved["ModelUpdate", False, field] == "other labels of validation nodes"
    assert sensitivity_audit(seen).outcome is Outcome.PASSED, "many labels at once are no step of one record"


@dataclass(frozen=True)
class _PartsByArrived(GCFLSage):
    """GCFL+ in a class of another author, so that all its rounds are replayed."""


@dataclass(frozen=True)
class _PartsByTrue(GCFLSage):
    """The server gets changes that are as long as those without noise."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, _Lengths(channel), rng=rng, device=device)


class _Lengths:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, batch: MessageBatch) -> Payload:
        arrived = self._channel.send(batch)
        if not isinstance(batch.payload, ModelUpdate) or bool((batch.senders == SERVER).all()):
            return arrived
        assert isinstance(arrived, ModelUpdate)
        length = batch.payload.vector.norm(dim=1, keepdim=True)
        return ModelUpdate(arrived.vector / arrived.vector.norm(dim=1, keepdim=True) * length)


@pytest.mark.parametrize("kind", [_PartsByArrived, _PartsByTrue])
def test_clusters_are_made_of_noisy_changes(kind: type[GCFLSage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_clusters, "WARM_UP", 1)
    protocol = kind(rounds=6, hidden=4, sequence=2, largest_mean=1e3, smallest_norm=0.0)
    graph = example_graph(nodes=60, features=12, clients=4)
    defense = ClippedNoise(epsilon=50.0, on="ModelUpdate", unit="client")
    run, context = record(protocol, graph, defense), protocol.context(graph)
    assert any("clusters of clients after round" in note for note in run.trained.notes)
    stated, counted = Statements.by(run.session), run.channel.counted
    accounted = account(context, *stated, counted)
    seen = examined(protocol, graph, defense, context, stated, accounted, counted=counted, seed=0, device=CPU)
    assert set(seen.moved) == (set() if kind is _PartsByArrived else {("ModelUpdate", True, "vector")})


def test_losses_are_told_apart_beyond_roundoff() -> None:
    gradients = torch.randn(5, 2, 30, generator=torch.Generator().manual_seed(0))
    other = gradients.clone()
    other[3, 1] += 0.1
    one, two = (Trace(losses=[told_apart(each)]) for each in (gradients, other))
    assert changed_losses(one, two) == 1
    assert changed_losses(one, Trace(losses=[told_apart(gradients * (1 + 1e-7))])) == 0


def test_nodes_that_reach_most_losses_are_replaced() -> None:
    row, column = torch.tensor([0, 1, 1, 2, 3]), torch.tensor([1, 0, 2, 1, 3])  # a path 0-1-2, and 3 by itself
    near = reached_within(4, row, column, torch.tensor([True, False, True, False]), 2)
    assert near.tolist() == [[1, 0, 1, 0], [1, 2, 1, 0], [2, 2, 2, 0]]
    graph = example_graph()
    pairs = far_reaching(graph, torch.Generator().manual_seed(0))
    assert pairs and all(int((pair.graph.x != graph.x).any(1).sum()) == 1 for pair in pairs)
