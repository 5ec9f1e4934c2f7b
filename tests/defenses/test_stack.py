"""Stacks of defenses: order, facts, hooks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from stacked_defenses import DP_SGD, GRAPH, HE, MATRICES, NOISE, SECRET_SUMS, SHARED, SUMS, USERS, Silent, stack
from torch import Tensor

from fglaudit import registry
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.noise.clipping import Clipping
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.stack import Stack
from fglaudit.defenses.stacking.sizes import REACH
from fglaudit.errors import FglauditError
from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    ROWS,
    Additive,
    Clipped,
    DegreeBound,
    Field,
    Sealed,
    first,
    on,
)
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.privacy.mechanism import draw
from fglaudit.rng import derive
from fglaudit.testing import check_defense, record
from fglaudit.view import Observer

EVERYBODY = Observer(parties=(0, 1, 2))


@pytest.mark.parametrize(
    ("protocol", "graph", "parts"),
    [
        (SUMS, GRAPH, (NOISE, DP_SGD, HE)),
        (SUMS, GRAPH, (NOISE, {"name": "homomorphic-encryption"})),
        (SUMS, GRAPH, ("drop-singletons", {"name": "local-features"}, SECRET_SUMS)),
        (SUMS, GRAPH, ({"name": "dp-fedavg", "trust": "distributed"}, SECRET_SUMS)),
        (SUMS, GRAPH, ({"name": "dp-fedavg", "trust": "server"}, SECRET_SUMS)),
        (SUMS, GRAPH, ({"name": "dp-fedavg", "trust": "local"}, HE)),
        (MATRICES, GRAPH, ({"name": "gaussian", "on": "RawFeatures"}, "merge-neighbors")),
        (SHARED, USERS, ("clipped-noise", {"name": "quantisation", "on": ["Latents"]})),
    ],
)
def test_stacks_keep_their_promises_and_nothing_of_them_is_unstated(
    protocol: FederatedProtocol, graph: FederatedGraph, parts: tuple[Any, ...]
) -> None:
    check_defense(stack(*parts), protocol, graph, quick=True)
    assert record(protocol, graph, stack(*parts)).channel.unstated == ()


def test_facts_are_those_of_the_parts_rows_and_edges_first() -> None:
    session = stack(NOISE, DP_SGD, HE).bind(SUMS.context(GRAPH))
    facts = session.facts()
    targets = [f.target for f in facts]
    assert targets[:2] == [ROWS, EDGES] and isinstance(facts[0], Clipped) and isinstance(facts[1], DegreeBound)
    assert [type(f) for f in facts if f.target == GRADIENTS] == [Clipped, Additive]
    assert [type(f) for f in on(facts, NeighborSums, direction="up")] == [Additive, Sealed]
    alone = Gaussian(epsilon=4.0, clip=2.0).bind(SUMS.context(GRAPH)).facts()
    assert set(alone) <= set(facts)


def test_hooks_are_chained_in_order() -> None:
    """Clip, then noise: what leaves is near a clipped message; with the clips in turn, the smaller one is left."""
    context = SHARED.context(USERS)
    clips = stack(Clipping(clip=(3.0,), on=("Latents",)), Clipping(clip=(0.5,), on=("Latents",)))
    batch = batch_of(SHARED, "Latents")
    (sent,) = clips.bind(context).release(batch, derive(0)).tensors().values()
    assert float(sent.flatten(1).norm(dim=1).max()) == pytest.approx(0.5)
    parts = ({"name": "clipping", "clip": [0.5], "on": ["Latents"]}, {"name": "clipped-noise", "epsilon": 1000.0})
    session = stack(*parts).bind(context)
    noise = first(session.facts(), Additive)
    assert noise is not None
    (noisy,) = session.release(batch, derive(0)).tensors().values()
    (before,) = batch.payload.tensors().values()
    clipped = before * (0.5 / before.norm(dim=1, keepdim=True)).clamp(max=1)
    drawn = noise.scale * draw("gaussian", before.shape, derive(0))
    assert torch.allclose(noisy.double(), clipped.double() + drawn, atol=1e-5)


def batch_of(protocol: FederatedProtocol, payload: str) -> MessageBatch:
    """Return long messages of clients, in the shapes that the protocol sends."""
    seen = record(protocol, USERS).view(Observer(parties=(SERVER,))).messages.of(Payload.registry[payload])
    entry = next(b for b in seen if bool((b.senders != SERVER).all()))
    tensors = {name: 50 * value for name, value in entry.payload.tensors().items()}
    return dataclasses.replace(entry, payload=type(entry.payload).from_tensors(tensors))


def test_the_same_numbers_as_one_part_after_another() -> None:
    """Rows that are randomised, then sums that are encrypted: exactly what the randomiser alone makes."""
    rows = record(SUMS, GRAPH, registry.build("defense", "local-features", {"epsilon": 50.0}))
    both = record(SUMS, GRAPH, stack({"name": "local-features", "epsilon": 50.0}, HE))
    for k in range(GRAPH.num_clients):
        assert torch.equal(rows.channel.inputs[k], both.channel.inputs[k])
    assert both.session.seals(NeighborSums) and not rows.session.seals(NeighborSums)
    server = both.view(Observer(parties=(SERVER,)))
    assert "NeighborSums" in server.public.sealed
    assert next(iter(server.messages.of(NeighborSums)), None) is None
    client = both.view(Observer(parties=(0,)))
    assert next(iter(client.messages.of(NeighborSums)), None) is not None


@pytest.mark.parametrize(
    ("protocol", "graph", "parts", "words"),
    [
        (SUMS, GRAPH, (HE, NOISE), ["seals NeighborSums before gaussian", "list homomorphic-encryption last"]),
        (SUMS, GRAPH, (HE, SECRET_SUMS), ["both seal", "keep one"]),
        (SUMS, GRAPH, ("local-features", "multi-bit"), ["both randomise rows"]),
        (SUMS, GRAPH, (NOISE, "local-features"), ["rows that it clips", "list local-features first"]),
        (SUMS, GRAPH, (DP_SGD, {**DP_SGD, "clip": 2.0}), ["both change gradients"]),
        (SUMS, GRAPH, (NOISE, {**NOISE, "epsilon": 1.0}), ["both add noise to NeighborSums"]),
        (SUMS, GRAPH, ({"name": "dp-fedavg"}, HE), ["server add noise to ModelUpdate", "hides from it"]),
        (SUMS, GRAPH, (HE, {"name": "dp-fedavg"}), ["homomorphic-encryption"]),
        (MATRICES, GRAPH, ({"name": "gaussian", "on": "MaskedMatrices"}, "merge-neighbors"), ["list merge-neigh"]),
        (MATRICES, GRAPH, ("merge-neighbors", {"name": "merge-neighbors", "size": 3}), ["both merge"]),
        (SHARED, USERS, ("clipped-noise", {"name": "clipping", "on": ["Latents"], "clip": [1.0]}), ["clip the noise"]),
        (
            SHARED,
            USERS,
            (
                {"name": "dp-fedavg", "trust": "server"},
                {"name": "joint-noise", "on": ["ModelUpdate"], "clip": [1.0]},
            ),
            ["both clip changes of ModelUpdate"],
        ),
        (SUMS, GRAPH, ("local-features", "homomorphic-encryption"), ["homomorphic-encryption:", "scheme: ckks"]),
        (SUMS, GRAPH, ("drop-singletons", "clipped-noise"), ["clipped-noise: fedgcn sends no Latents"]),
    ],
)
def test_what_has_no_order_is_refused_with_the_reason(
    protocol: FederatedProtocol, graph: FederatedGraph, parts: tuple[Any, ...], words: list[str]
) -> None:
    reason = stack(*parts).unsupported(protocol.context(graph))
    assert reason is not None
    for word in words:
        assert word in reason
    with pytest.raises(FglauditError):
        stack(*parts).bind(protocol.context(graph))


def test_a_part_that_states_nothing_has_no_place_in_an_order() -> None:
    reason = stack(Silent(), NOISE).unsupported(SUMS.context(GRAPH))
    assert reason is not None and "silent does something in release and states no facts" in reason


@pytest.mark.parametrize("parts", [(), (DropSingletons(),), (DropSingletons(), Stack((DropSingletons(), Clipping())))])
def test_a_stack_is_two_defenses_or_more_and_flat(parts: tuple[Defense, ...]) -> None:
    with pytest.raises(FglauditError, match="stack"):
        Stack(parts)


def test_a_seal_after_noise_has_room_for_it() -> None:
    """Sums with noise exceed the bound on sums without: the seal is bound to what the noise leaves."""
    noisy = {"name": "gaussian", "epsilon": 0.2, "clip": 1.0}
    run = record(SUMS, GRAPH, stack(noisy, {"name": "homomorphic-encryption"}))
    largest = SUMS.context(GRAPH).aggregates[NeighborSums].largest
    received = [b for b in run.view(EVERYBODY).messages.of(NeighborSums) if bool((b.receivers != SERVER).all())]
    assert largest is not None and received
    sums = torch.cat([b.payload.tensors()["sums"] for b in received])
    assert float(sums.abs().max()) > float(largest.max())
    assert run.session.facts()[-1].rounding < 0.1  # type: ignore[attr-defined]


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_no_draw_exceeds_the_reach_of_its_distribution(distribution: str) -> None:
    values = draw(distribution, torch.Size([200_000]), derive(0))
    assert float(values.abs().max()) < REACH[distribution]


def test_noise_on_models_starts_from_what_was_received_through_a_seal() -> None:
    """Clients' changes are clipped around the model of the last round, which they decrypted, not the first one."""
    defense = stack({"name": "dp-fedavg", "trust": "local", "epsilon": 1e4, "clip": 1e-3}, HE)
    run = record(SUMS, GRAPH, defense)
    clear = record(
        SUMS, GRAPH, registry.build("defense", "dp-fedavg", {"trust": "local", "epsilon": 1e4, "clip": 1e-3})
    )

    def last(recorded: Any) -> Tensor:
        seen = recorded.view(EVERYBODY).messages.of(ModelUpdate)
        sent = [b.payload.tensors()["vector"] for b in seen if bool((b.receivers != SERVER).all())]
        assert len(sent) > 2
        model: Tensor = sent[-1][0]
        return model.float()

    assert torch.allclose(last(run), last(clear), atol=1e-4)


def test_facts_are_those_of_all_parts() -> None:
    facts = stack(NOISE, DP_SGD, HE).bind(SUMS.context(GRAPH)).facts()
    bound, clip = first(facts, DegreeBound, EDGES), first(facts, Clipped, ROWS)
    assert bound is not None and bound.bound == 5 and clip is not None and clip.bound == 2.0
    noisy = [fact.target for fact in facts if isinstance(fact, Additive)]
    assert len(noisy) == 2 and GRADIENTS in noisy and any(t == Field("NeighborSums", direction="up") for t in noisy)


def test_weakened_parts() -> None:
    weak = stack(NOISE, HE).weakened(0.5)
    assert weak.parts[0] == Gaussian(epsilon=8.0, clip=2.0) and weak.parts[1] == stack(NOISE, HE).parts[1]
