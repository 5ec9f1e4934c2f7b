"""Servers of all protocols on sealed values, with a scheme that hides nothing: training equals that in the clear."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from fedgat_runs import SMALL, mixed_graph
from pretended_seals import OpenRows, Pretend
from test_gfl_appnp_defenses import graph as node_graph
from user_graphs import GCN, user_graph

from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.nn.masking import node_bytes
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
from fglaudit.protocols.cnfgnn import CNFGNN
from fglaudit.protocols.dist_gat import DistGAT
from fglaudit.protocols.fedavg_sage import FedAvgSage
from fglaudit.protocols.fedgat import FedGAT
from fglaudit.protocols.fedgcn import FedGCN
from fglaudit.protocols.fedgt import FedGT
from fglaudit.protocols.fedmlp import FedMLP
from fglaudit.protocols.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn import NFedGNN
from fglaudit.sealing import SealedTensor
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

MODEL = (ModelUpdate,)
SHARED = (HiddenRepresentations, Jacobians)
MATRICES = FedGAT(**{**SMALL, "path": "matrices"})
TINY_GT = FedGT(
    similarity="fedavg", hidden=8, heads=2, feed_forward=8, neighbors=3, global_nodes=2, encoding=2, candidates=8, rounds=3, dropout=0.0
)


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
    "fedgcn, weighted and sampled": Case(FedGCN(rounds=3, weighting="train-nodes", participation=0.7), MODEL, example_graph()),
    "fedgat": Case(MATRICES, MODEL, few()),
    "fedgat, best round": Case(dataclasses.replace(MATRICES, choice="validation", bounds="scores"), MODEL, few()),
    "fedgat, rows": Case(MATRICES, (RawFeatures,), few()),
    "fedgat, rows and models": Case(dataclasses.replace(MATRICES, remote="matrices"), (RawFeatures, ModelUpdate), few()),
    "dist-gat": Case(DistGAT(**SMALL), MODEL, few()),
    "gfl-appnp": Case(GFLAPPNP(hidden=4, rounds=3, local_steps=2), SHARED, node_graph()),
    "gfl-appnp, noise and all models": Case(
        GFLAPPNP(variant="v1", averaging="all", hidden=4, rounds=3, local_steps=2), (*SHARED, ModelUpdate), node_graph()
    ),
    "fedmlp": Case(FedMLP(hidden=4, rounds=3), MODEL, node_graph()),
    "fedavg-sage": Case(FedAvgSage(rounds=2, hidden=8), MODEL, example_graph()),
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
                    bound = told.largest[getattr(batch.payload, "node")].unsqueeze(1)
                    assert bool((value.sealed.x.abs() <= bound).all())
        assert entries == int(parts.sum().item()) * told.columns * told.releases
