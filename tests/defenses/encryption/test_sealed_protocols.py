"""Servers of all protocols on sealed values, with a scheme that hides nothing: training equals that in the clear."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from fedgat_runs import SMALL, mixed_graph
from node_graphs import graph as node_graph
from pretended_seals import OpenRows, Pretend
from small_protocols import MATRICES, TINY_GT
from user_graphs import GCN, user_graph

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.payloads import (
    SERVER,
    Ciphertexts,
    Embeddings,
    GlobalNodes,
    HiddenRepresentations,
    Jacobians,
    LabelDistributions,
    LatentGradients,
    Latents,
    MaskedMatrices,
    MaskedVectors,
    MessageBatch,
    ModelUpdate,
    NeighborSums,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
    RawFeatures,
)
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgat.masking import node_bytes
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.sealing import SealedTensor
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

MODEL = (ModelUpdate,)
SHARED = (HiddenRepresentations, Jacobians)


class Case(NamedTuple):
    protocol: FederatedProtocol
    on: tuple[type[Payload], ...]
    graph: FederatedGraph


def few() -> FederatedGraph:
    """Few nodes, real features some of which are longer than 1: FedGAT must scale them."""
    graph = mixed_graph(torch.float32)
    return dataclasses.replace(graph, x=graph.x * 0.7)


CASES = {
    "fedgcn": Case(FedGCN(rounds=3, hops=1), MODEL, example_graph()),
    "fedgcn, sums": Case(FedGCN(rounds=1, hops=2), (NeighborSums,), example_graph()),
    "fedgcn, weighted and sampled": Case(
        FedGCN(rounds=3, weighting="train-nodes", participation=0.7), MODEL, example_graph()
    ),
    "fedgat": Case(MATRICES, MODEL, few()),
    "fedgat, best round": Case(dataclasses.replace(MATRICES, choice="validation", bounds="scores"), MODEL, few()),
    "fedgat, rows": Case(MATRICES, (RawFeatures,), few()),
    "fedgat, rows and models": Case(
        dataclasses.replace(MATRICES, remote="matrices"), (RawFeatures, ModelUpdate), few()
    ),
    "dist-gat": Case(DistGAT(**SMALL), MODEL, few()),
    "gfl-appnp": Case(GFLAPPNP(hidden=4, rounds=3, local_steps=2), SHARED, node_graph()),
    "gfl-appnp, noise and all models": Case(
        GFLAPPNP(variant="v1", averaging="all", hidden=4, rounds=3, local_steps=2), (*SHARED, ModelUpdate), node_graph()
    ),
    "fedmlp": Case(FedMLP(hidden=4, rounds=3), MODEL, node_graph()),
    "fedavg-sage": Case(FedAvgSage(rounds=2, hidden=8), MODEL, example_graph()),
    "fedavg-gophormer": Case(
        FedAvgGophormer(
            rounds=2, hidden=8, heads=2, feed_forward=8, neighbors=2, samples=2, test_samples=2, dropout=0.0
        ),
        MODEL,
        example_graph(),
    ),
    "fedavg-graphgps": Case(
        FedAvgGraphGPS(rounds=2, hidden=8, heads=2, feed_forward=8, encoding=2, random_features=8, dropout=0.0),
        MODEL,
        example_graph(),
    ),
    "fedgt": Case(TINY_GT, MODEL, example_graph()),
    "fedgt, received": Case(dataclasses.replace(TINY_GT, tested="received"), MODEL, example_graph()),
    "cnfgnn": Case(CNFGNN(**GCN), MODEL, user_graph()),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_training_on_sealed_values_equals_training_in_the_clear(case: Case) -> None:
    plain, sealed = record(case.protocol, case.graph), record(case.protocol, case.graph, Pretend(on=case.on))
    assert torch.equal(plain.trained.accuracy_global, sealed.trained.accuracy_global)
    for name, weight in plain.trained.weights.items():
        torch.testing.assert_close(sealed.trained.weights[name], weight, rtol=1e-3, atol=1e-5)


def test_what_a_defense_is_told_is_what_travels(case: Case) -> None:
    """Counts and widths of rows up and down, summands, bounds and releases."""
    seen: list[MessageBatch] = []

    class Watching(Pretend):
        def bind(self, context: object) -> DefenseSession:
            session = super().bind(context)  # type: ignore[arg-type]
            unseal = session.unseal

            def watched(batch: MessageBatch) -> MessageBatch:
                seen.append(batch)
                return unseal(batch)

            session.unseal = watched  # type: ignore[method-assign]
            return session

    record(case.protocol, case.graph, Watching(on=case.on))
    for sent in case.on:
        told = case.protocol.aggregates(case.graph)[sent]
        up = [batch for batch in seen if type(batch.payload) is sent and bool((batch.receivers == SERVER).all())]
        down = [b for b in seen if type(b.payload) is (told.returned or sent) and bool((b.senders == SERVER).all())]
        assert len({batch.round for batch in up}) == told.releases
        uploads = 0
        for batch in up:
            (value,) = batch.payload.sealed_fields().values()
            assert value.sealed.shape[1] == told.columns
            uploads += len(value)
        expected = int(told.summands.sum().item()) if told.uploads is None else told.uploads
        assert uploads == expected * told.releases
        parts = torch.ones_like(told.rows) if told.parts is None else told.parts
        entries = 0
        for batch in down:
            for value in batch.payload.sealed_fields().values():
                assert isinstance(value.sealed, OpenRows)
                entries += value.sealed.x.numel()
                if told.largest is not None:
                    named = batch.payload.tensors()
                    bound = told.largest[named["node"] if "node" in named else named["nodes"]].unsqueeze(1)
                    assert bool((value.sealed.x.abs() <= bound * (1 + 1e-6)).all())
        assert entries == int(parts.sum().item()) * told.columns * told.releases


@pytest.mark.parametrize(
    ("protocol", "payload", "reason"),
    [
        (FedGCN(hops=0), NeighborSums, "sends no NeighborSums"),
        (FedGAT(variant="vector"), RawFeatures, "adds masks of its own"),
        (FedGAT(variant="vector"), MaskedVectors, "of rows that it reads"),
        (FedGAT(), MaskedMatrices, "makes MaskedMatrices of RawFeatures"),
        (FedGAT(), Embeddings, "clients send them to each other"),
        (FedGT(), GlobalNodes, "Hungarian"),
        (FedGT(), ModelUpdate, "averages those again"),
        (FedGT(similarity="local-updates"), ModelUpdate, "cosines"),
        (FedGT(similarity="label-distributions"), LabelDistributions, "cosines"),
    ],
)
def test_what_must_stay_readable_has_a_reason(protocol: FederatedProtocol, payload: type[Payload], reason: str) -> None:
    assert reason in (protocol.context(example_graph()).unsealable(payload) or "")


@pytest.mark.parametrize("protocol", [NFedGNN(), CNFGNN()])
def test_split_learning_needs_a_server_that_reads(protocol: FederatedProtocol) -> None:
    context = protocol.context(user_graph())
    assert "trains its layers" in (context.unsealable(Latents) or "")
    assert "server itself computes" in (context.unsealable(LatentGradients) or "")
    assert (context.unsealable(ModelUpdate) is None) is isinstance(protocol, CNFGNN)


def test_every_payload_is_sealable_or_has_a_reason() -> None:
    for case in CASES.values():
        context = case.protocol.context(case.graph)
        for payload in type(case.protocol).emits:
            reason = context.unsealable(payload)
            assert (reason is None) is (payload in context.aggregates)
            told = payload in context.readers or "server makes" in str(reason) or "with these settings" in str(reason)
            assert reason is None or told, (case.protocol, payload)


def of(run: Run, observer: Observer, payload: type[Payload]) -> list[MessageBatch]:
    return list(run.view(observer).messages.of(payload))


def test_the_server_is_blind_to_what_it_makes_of_sealed_values() -> None:
    run = record(CASES["gfl-appnp"].protocol, node_graph(), Pretend(on=(Jacobians,)))
    server, client, both = (Observer(parties=parties) for parties in ((SERVER,), (3,), (SERVER, 3)))
    assert run.view(server).public.sealed == ("Jacobians", "PropagatedJacobians")
    for payload in (Jacobians, PropagatedJacobians):
        assert not of(run, server, payload) and not of(run, Observer(wire=True), payload)
        assert len(of(run, both, payload)) == 3
    assert len(of(run, client, PropagatedJacobians)) == 3
    assert of(run, server, HiddenRepresentations) and of(run, server, PropagatedRepresentations), (
        "the other one is not sealed"
    )
    assert len(of(run, server, Ciphertexts)) == 6


def test_fedgat_scales_rows_at_the_clients_where_the_server_cannot() -> None:
    graph = few()
    sealed = record(MATRICES, graph, Pretend(on=(RawFeatures,)))
    (batch,) = of(sealed, Observer(parties=(SERVER, 0)), RawFeatures)
    assert isinstance(batch.payload, RawFeatures)
    rows, norms = graph.x[batch.payload.nodes], graph.x[batch.payload.nodes].norm(dim=1, keepdim=True)
    assert bool((norms > 1).any()) and bool((norms < 1).any())
    torch.testing.assert_close(batch.payload.x, rows / norms.clamp(min=1))
    assert not of(sealed, Observer(parties=(SERVER,)), MaskedMatrices)


def test_ciphertexts_of_fedgat_are_a_row_for_every_entry_of_its_matrices() -> None:
    graph = few()
    told = MATRICES.aggregates(graph)[RawFeatures]
    assert told.parts is not None
    width = 2 * (graph.degrees() + 1)
    assert torch.equal(told.parts, (2 * width**2 + width)[told.rows])
    plain = sum(node_bytes(int(w) // 2, graph.num_features, MaskedMatrices) - 8 - 4 * int(w) for w in width[told.rows])
    assert int(told.parts.sum()) * graph.num_features * 4 == plain


def test_a_server_that_asks_for_more_is_stopped() -> None:
    """What the server of FedGT does with global nodes is refused by name when it is tried all the same."""
    with pytest.raises(Exception, match="sealed values can be added, picked and multiplied by public numbers"):
        record(TINY_GT, example_graph(), Pretend(on=(GlobalNodes,)))
    with pytest.raises(Exception, match="sealed values can be added"):
        record(NFedGNN(**GCN), user_graph(), Pretend(on=(Latents,)))


def test_no_sealed_value_reaches_a_client() -> None:
    for case in CASES.values():
        for _, value in record(case.protocol, case.graph, Pretend(on=case.on)).trained.weights.items():
            assert not isinstance(value, SealedTensor)
