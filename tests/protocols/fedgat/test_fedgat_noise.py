"""Noise on FedGAT's masked messages: the stated sensitivity against brute force, who adds it, and training on what
arrives."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fedgat_runs import CPU, SMALL, VARIANTS, mixed_graph, train
from torch import Tensor

from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.facts import Additive, Fact, Field, first
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, MessageBatch, Payload
from fglaudit.protocols.fedgat import masking
from fglaudit.protocols.fedgat.fedgat import FedGAT, Remote, Variant
from fglaudit.protocols.fedgat.masked_sensitivity import dependent_fields, joint_gain, squared_changes
from fglaudit.protocols.fedgat.masking import Masked, draw_units, masked_matrices, masked_vectors
from fglaudit.rng import derive
from fglaudit.testing import check_defense, record
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.transcript import Transcript

pytestmark = pytest.mark.filterwarnings("ignore:.*because of the noise on the messages:UserWarning")


def star(leaves: int = 4) -> FederatedGraph:
    """Node 0 with ``leaves`` neighbours of which two are neighbours too; every node is a client."""
    edges = canonical_edges(torch.tensor([[0] * leaves + [1], [*range(1, leaves + 1), 2]]), leaves + 1)
    every = torch.ones(leaves + 1, dtype=torch.bool)
    x = torch.randn(leaves + 1, 3, generator=derive(0, "x"), dtype=torch.float64)
    clients = [torch.tensor([k]) for k in range(leaves + 1)]
    return federate(Graph(x, torch.arange(leaves + 1) % 2, edges, "star"), clients, every, every, every)


def sent(graph: FederatedGraph, x: Tensor, variant: type[Masked], seed: int) -> list[dict[str, Tensor]]:
    """Fields of every node's message, masks drawn from ``seed``."""
    messages = []
    for node in range(graph.num_nodes):
        members = torch.cat([torch.tensor([node]), graph.edge_index[1][graph.edge_index[0] == node]])
        rows, rng = (torch.tensor([node]), x[[node]], x[members].unsqueeze(0)), derive(seed, "masks", node)
        if variant is MaskedMatrices:
            payload: Masked = masked_matrices(*rows, *draw_units(1, len(members), x, rng))
        else:
            payload = masked_vectors(*rows, rng)
        messages.append(payload.tensors())
    return messages


def moved(graph: FederatedGraph, node: int, variant: type[Masked], seed: int, receivers: Tensor) -> float:
    """Norm of the change of all messages, copies counted, when the row of ``node`` changes by norm 1."""
    step = torch.randn(3, generator=derive(seed, "step"), dtype=torch.float64)
    changed = graph.x.clone()
    changed[node] += step / step.norm()
    total = 0.0
    for i, (before, after) in enumerate(
        zip(sent(graph, graph.x, variant, seed), sent(graph, changed, variant, seed), strict=True)
    ):
        for name, value in before.items():
            difference = (after[name] - value).double().square().sum()
            assert name in dependent_fields(variant) or difference == 0
            total += float(difference) * int(receivers[i])
    return math.sqrt(total)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_row_moves_the_messages_further_than_stated(variant: type[Masked], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = star()
    edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
    for receivers in (torch.ones(5, dtype=torch.long), torch.tensor([5, 3, 1, 2, 4])):
        gain = joint_gain(edges, receivers, variant)
        reached = [moved(graph, node, variant, seed, receivers) for node in range(5) for seed in range(20)]
        assert 0.7 * gain < max(reached) <= gain * (1 + 1e-9)
        monkeypatch.setattr(
            torch, "rand", lambda *shape, **rest: torch.ones(*shape, dtype=torch.float64)
        )  # r at its largest
        if variant is MaskedMatrices:
            assert max(moved(graph, node, variant, 0, receivers) for node in range(5)) == pytest.approx(gain)
        monkeypatch.undo()
    assert max(moved(graph, node, MaskedVectors, 0, receivers) for node in range(5)) == pytest.approx(
        joint_gain(edges, receivers, MaskedVectors)
    )


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_the_protocol_states_this_gain(variant: Variant) -> None:
    graph = mixed_graph()
    largest = int(graph.degrees().max()) + 1
    own = FedGAT(variant=variant, **SMALL)
    release = own.releases(graph)[1]
    assert release.payload is own.masked and release.by_server and release.gain is not None
    assert release.gain == pytest.approx(math.sqrt(sum(squared_changes(own.masked)) * largest))
    copies = FedGAT(variant=variant, remote="matrices", **SMALL).releases(graph)[1].gain
    assert copies is not None and release.gain < copies <= release.gain * math.sqrt(graph.num_clients)


@dataclasses.dataclass
class AddedNoise(DefenseSession):
    """Adds noise of a chosen strength to what the server sends, and says so."""

    masked: type[Masked]
    std: float

    def changes(self, payload: type[Payload]) -> bool:
        return payload is self.masked

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not isinstance(batch.payload, self.masked):
            return batch.payload
        assert bool((batch.senders == SERVER).all())
        tensors = batch.payload.tensors()
        for name in dependent_fields(self.masked):
            tensors[name] = tensors[name] + self.std * torch.randn(tensors[name].shape, generator=rng)
        return type(batch.payload).from_tensors(tensors)

    def facts(self) -> tuple[Fact, ...]:
        names = dependent_fields(self.masked)
        return tuple(Additive(Field(self.masked.__name__, name, "down"), "gaussian", self.std) for name in names)


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
def test_vanishing_noise_changes_nothing_and_strong_noise_stays_finite(variant: Variant, remote: Remote) -> None:
    graph = mixed_graph()
    protocol = FedGAT(variant=variant, remote=remote, **SMALL)
    exact = train(protocol, graph)
    for std in (1e-12, 1e3):
        channel = RecordingChannel(AddedNoise(protocol.masked, std), graph.num_clients, derive(0, "defense"))
        noisy = train(protocol, graph, channel)
        same = all(torch.allclose(w, noisy.weights[name], atol=1e-6) for name, w in exact.weights.items())
        assert same is (std < 1)
        assert all(bool(torch.isfinite(w).all()) for w in noisy.weights.values())


def test_the_server_adds_noise_to_what_depends_on_features() -> None:
    graph = mixed_graph(torch.float32)
    for variant in ("matrix", "vector"):
        protocol = FedGAT(variant=variant, **SMALL | {"rounds": 1})
        plain = record(protocol, graph)
        noisy = record(protocol, graph, Gaussian(epsilon=8.0, on=protocol.masked.__name__))
        clean = record(protocol, graph, Gaussian(epsilon=8.0, on="RawFeatures"))
        noises = [f for f in noisy.session.facts() if isinstance(f, Additive) and isinstance(f.target, Field)]
        fields = [f.target.name for f in noises if isinstance(f.target, Field)]
        assert isinstance(noisy.session, NoiseSession)
        mechanism = noisy.session.noised[protocol.masked][1]
        release = protocol.releases(graph)[1]
        assert release.gain is not None
        assert mechanism.sensitivity == pytest.approx(release.gain)
        everyone = Observer(wire=True)
        pairs = zip(*(run.transcript.seen_by(everyone).of(protocol.masked) for run in (plain, noisy)), strict=True)
        differences: list[Tensor] = []
        for before, after in pairs:
            for name, value in before.payload.tensors().items():
                changed = (after.payload.tensors()[name] - value).abs()
                if name in fields:
                    differences.append(changed.flatten())
                else:
                    assert bool((changed == 0).all())
        spread = torch.cat(differences).square().mean().sqrt()
        assert spread == pytest.approx(noises[0].std, rel=0.05)
        assert first(clean.session.facts(), Additive, protocol.masked) is None


@pytest.mark.parametrize("payload", [MaskedMatrices, MaskedVectors])
def test_conformance(payload: type[Payload]) -> None:
    variant: Variant = "matrix" if payload is MaskedMatrices else "vector"
    check_defense(
        Gaussian(epsilon=8.0, on=payload.__name__),
        FedGAT(variant=variant, **SMALL),
        mixed_graph(torch.float32),
        quick=True,
    )


def test_noise_on_matrices_promises_nothing_against_the_server() -> None:
    run = record(FedGAT(**SMALL), mixed_graph(torch.float32), Gaussian(epsilon=8.0, on="MaskedMatrices"))
    promise = run.session.guarantee()
    assert promise.epsilon_accounted == pytest.approx(8.0, rel=1e-2)
    assert promise.covers(Observer((0,))) and promise.covers(Observer((0, 1)))
    assert not promise.covers(Observer((SERVER,))) and not promise.covers(Observer(wire=True))
    everywhere = record(FedGAT(**SMALL), mixed_graph(torch.float32), Gaussian(epsilon=8.0, on="RawFeatures"))
    assert everywhere.session.guarantee().covers(Observer((SERVER,)))


def test_training_reads_nothing_but_the_noisy_messages() -> None:
    """The server's rows could be anything once the messages are fixed."""
    graph = mixed_graph()
    protocol = FedGAT(**SMALL)

    class Fixed(AddedNoise):
        def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
            if not isinstance(batch.payload, self.masked):
                return batch.payload
            tensors = batch.payload.tensors()
            for name in dependent_fields(self.masked):
                tensors[name] = torch.randn(tensors[name].shape, generator=derive(0, name), dtype=tensors[name].dtype)
            return type(batch.payload).from_tensors(tensors)

    found = []
    for x in (graph.x, torch.rand(graph.x.shape, generator=derive(5, "x"), dtype=graph.x.dtype)):
        channel = RecordingChannel(Fixed(protocol.masked, 1.0), graph.num_clients, derive(0, "defense"), Transcript())
        other = dataclasses.replace(graph, x=x)
        found.append(protocol.train(other, channel, rng=derive(0, "train"), device=CPU).weights)
    assert all(torch.equal(weight, found[1][name]) for name, weight in found[0].items())


def test_batches_are_bounded_and_cut_by_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mixed_graph(torch.float32)
    protocol = FedGAT(remote="matrices", **SMALL)
    whole = record(protocol, graph)
    largest = masking.node_bytes(int(graph.degrees().max()) + 1, graph.num_features, MaskedMatrices)
    monkeypatch.setattr(masking, "BATCH_BYTES", 3 * largest)
    monkeypatch.setattr(masking, "JOIN_BYTES", largest)
    cut = record(protocol, graph)
    sizes = []
    for batch in cut.transcript.seen_by(Observer(wire=True)).of(MaskedMatrices):
        sizes.append(int(batch.bytes_per_message().sum()))
        assert len(set(batch.receivers.tolist())) == 1 or sizes[-1] <= largest
    assert max(sizes) <= 3 * largest and len(sizes) > 20
    assert torch.equal(whole.channel.bytes_down, cut.channel.bytes_down)
    for name, weight in whole.trained.weights.items():
        torch.testing.assert_close(weight, cut.trained.weights[name], atol=2e-4, rtol=1e-3)
