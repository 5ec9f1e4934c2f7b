"""Protocols on ckks ciphertexts: rows that servers multiply by public numbers, whole trainings, cost, refusals, attacks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from fedgat_runs import mixed_graph
from test_gfl_appnp_defenses import graph as node_graph
from test_sealed_protocols import MATRICES, TINY_GT, few
from user_graphs import GCN, user_graph

from fglaudit.attacks.jacobian_reading import JacobianReading
from fglaudit.attacks.mask_flip import MaskFlip
from fglaudit.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.homomorphic_encryption import HomomorphicEncryption
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, federate
from fglaudit.he.ckks import PRODUCTS, SUMS
from fglaudit.he.row_sealer import Cost, RowSealer
from fglaudit.he.weighted_rows import RowScheme, WeightedRows
from fglaudit.interfaces import Aggregate, FederatedProtocol
from fglaudit.payloads import SERVER, Jacobians, MessageBatch, ModelUpdate, Payload, RawFeatures
from fglaudit.protocols.cnfgnn import CNFGNN
from fglaudit.protocols.fedgat import FedGAT
from fglaudit.protocols.fedgcn import FedGCN
from fglaudit.protocols.fedmlp import FedMLP
from fglaudit.protocols.gfl_appnp import GFLAPPNP
from fglaudit.sealing import SealedTensor, sealed_tensor
from fglaudit.testing import Run, check_defense, example_graph, record
from fglaudit.view import Observer

pytest.importorskip("tenseal")

EVERYONE = torch.arange(4)


def told(**changes: Any) -> Aggregate:
    fields: dict[str, Any] = {"summands": torch.full((4,), 4), "weighted": True, "weight": 4.0, "uploads": 4}
    return Aggregate(EVERYONE, EVERYONE, 5000, None, **(fields | changes))


def scheme(**changes: Any) -> RowScheme:
    return RowSealer(told(**changes), 256.0).scheme


def sealed(values: torch.Tensor, rows: RowScheme) -> SealedTensor:
    return sealed_tensor(rows.encrypted(values))


def opened(t: torch.Tensor) -> torch.Tensor:
    assert isinstance(t, SealedTensor) and isinstance(t.sealed, WeightedRows)
    return t.opened(t.sealed.opened())


ROWS = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0)) * 50
WEIGHTS = torch.tensor([[0.3, -1.2, 0.0, 0.7], [0.0, 0.0, 1e-4, 0.0], [0.0, 0.0, 0.0, 0.0]])


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest error relative to the bound on values."""
    assert found.shape == exact.shape
    return float((found.double() - exact.double()).abs().max()) / 256


def test_combinations_are_right_to_1e_5_of_the_bound() -> None:
    t, plain = sealed(ROWS, scheme()).double(), ROWS.double()
    cases = {
        "dense, sparse and empty rows": (WEIGHTS @ t, WEIGHTS.double() @ plain),
        "sum": (t.sum(0), plain.sum(0)),
        "picked and joined": (t[torch.tensor([3, 1, 1, 0])].view(2, 2, 5000), plain[[3, 1, 1, 0]].view(2, 2, 5000)),
        "sum of products and a row as it came": (
            torch.index_add(torch.zeros(4, 5000), 0, EVERYONE, t) + WEIGHTS[[0, 1, 2, 2]] @ t,
            plain + WEIGHTS[[0, 1, 2, 2]].double() @ plain,
        ),
        "axes": (
            (WEIGHTS[[0, 2, 1, 2]] @ t).view(2, 2, 5000).movedim(2, 1),
            (WEIGHTS[[0, 2, 1, 2]].double() @ plain).view(2, 2, 5000).movedim(2, 1),
        ),
    }
    for name, (found, exact) in cases.items():
        assert error(opened(found), exact) < 1e-9, name


def test_a_mean_multiplies_nothing() -> None:
    rows = scheme(weighted=False)
    mean = sealed(ROWS, rows).mean(0)
    assert isinstance(mean, SealedTensor) and isinstance(mean.sealed, WeightedRows)
    assert rows.codec.parameters is SUMS and not mean.sealed.rows[0].product
    assert error(opened(mean), ROWS.mean(0)) < 1e-9
    copies = mean.expand(3, -1)
    assert isinstance(copies, SealedTensor)
    assert torch.equal(opened(copies)[0], opened(copies)[2]), "who opens the same ciphertext reads the same numbers"
    twice = mean.reshape(1, -1) + sealed(ROWS[:1], rows)
    assert error(opened(twice), ROWS.mean(0, keepdim=True) + ROWS[:1]) < 1e-9
    with pytest.raises(FglauditError, match="no room for products"):
        opened(WEIGHTS @ sealed(ROWS, rows))


def test_impossible_results_are_refused() -> None:
    rows = scheme()
    for wrong in (256.1, float("nan"), float("inf")):
        with pytest.raises(FglauditError, match="absolute values up to 256"):
            rows.encrypted(torch.tensor([[wrong]]))
    t = sealed(ROWS, rows)
    with pytest.raises(FglauditError, match="add up to 4; got 4.1"):
        torch.tensor([[4.1, 0.0, 0.0, 0.0]]) @ t
    with pytest.raises(FglauditError, match="one product"):
        torch.tensor([[0.5]]) @ (WEIGHTS[:1] @ t)
    with pytest.raises(FglauditError, match="same payload"):
        t + sealed(ROWS, scheme())


def test_largest_values_at_the_largest_weights_do_not_overflow() -> None:
    extreme = torch.full((4, 5000), 256.0)
    extreme[:, ::2] = -256
    assert error(opened(torch.ones(1, 4) @ sealed(extreme, scheme())), extreme.sum(0, keepdim=True)) < 1e-9
    assert error(opened(sealed(extreme, scheme(weighted=False)).sum(0)), extreme.sum(0)) < 1e-9


def test_bytes_are_those_of_the_ciphertexts() -> None:
    t = sealed(ROWS, scheme())
    single = torch.arange(5)
    assert t.sealed.wire_bytes(single).tolist() == [2 * PRODUCTS.fresh_bytes] * 4, "5000 numbers take two"
    mixed = WEIGHTS @ t
    assert isinstance(mixed, SealedTensor)
    assert mixed.sealed.wire_bytes(torch.tensor([0, 1, 3])).tolist() == [2 * PRODUCTS.full_bytes] * 2, "an empty row takes none"


TRAININGS: dict[str, tuple[FederatedProtocol, FederatedGraph, tuple[str, ...]]] = {
    "fedgcn, weighted": (FedGCN(rounds=2, weighting="train-nodes"), example_graph(), ("ModelUpdate",)),
    "fedgat, rows": (dataclasses.replace(MATRICES, rounds=2), few(), ("RawFeatures", "ModelUpdate")),
    "gfl-appnp, everything": (GFLAPPNP(hidden=4, rounds=2, local_steps=2), node_graph(), ()),
    "fedmlp": (FedMLP(hidden=4, rounds=2), node_graph(), ()),
    "fedgt": (dataclasses.replace(TINY_GT, rounds=2), example_graph(), ()),
    "cnfgnn": (CNFGNN(**GCN | {"rounds": 2}), user_graph(), ()),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_training_equals_that_in_the_clear(name: str) -> None:
    protocol, graph, on = TRAININGS[name]
    plain = record(protocol, graph)
    hidden = record(protocol, graph, HomomorphicEncryption(scheme="ckks", on=on))
    for weight, expected in plain.trained.weights.items():
        torch.testing.assert_close(hidden.trained.weights[weight], expected, rtol=0, atol=1e-3)
    assert hidden.channel.bytes_sealed > 0
    sent = [protocol.aggregates(graph)[payload] for payload in hidden.session.sealers]  # type: ignore[attr-defined]
    costs = [Cost.of(aggregate) for aggregate in sent]
    total = sum(cost.gigabytes_up + cost.gigabytes_down for cost in costs)
    assert hidden.channel.bytes_sealed == pytest.approx(total * 1e9), "the bytes stated before the run are those of the run"
