"""Protocols on ckks ciphertexts: rows that servers multiply by public numbers, whole trainings, cost, refusals,
attacks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from node_graphs import graph as node_graph
from scored_runs import finding_of, game_of
from small_protocols import MATRICES, TINY_GT
from user_graphs import GCN, user_graph

from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.attacks.jacobians.mask_flip import MaskFlip
from fglaudit.context import Aggregate
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.errors import FglauditError
from fglaudit.finding import Status
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.he.ckks import PRODUCTS, SUMS
from fglaudit.he.row_sealer import Cost, RowSealer
from fglaudit.he.weighted_rows import RowScheme, WeightedRows
from fglaudit.interfaces import Attack, FederatedProtocol, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, Jacobians, ModelUpdate, RawFeatures
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.quantities.rows.claims import check_claims
from fglaudit.rng import derive
from fglaudit.sealing import SealedTensor, sealed_tensor
from fglaudit.testing import CPU, Run, check_defense, example_graph, record
from fglaudit.view import Observer

pytest.importorskip("tenseal")

EVERYONE = torch.arange(4)


def told(**changes: Any) -> Aggregate:
    fields: dict[str, Any] = {"summands": torch.full((4,), 4), "weighted": True, "weight": 4.0, "uploads": 4}
    return Aggregate(EVERYONE, EVERYONE, 5000, None, **(fields | changes))


def scheme(**changes: Any) -> RowScheme:
    return RowSealer(told(**changes), 256.0).scheme


def sealed(values: torch.Tensor, rows: RowScheme) -> SealedTensor:
    return sealed_tensor(rows.encrypted(values), dtype=torch.double)


def opened(t: torch.Tensor) -> torch.Tensor:
    assert isinstance(t, SealedTensor) and isinstance(t.sealed, WeightedRows)
    return t.opened(t.sealed.opened())


ROWS = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 50
WEIGHTS = torch.tensor([[0.3, -1.2, 0.0, 0.7], [0.0, 0.0, 1e-4, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.double)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest error relative to the bound on values; 1e-5 is asked for."""
    assert found.shape == exact.shape
    return float((found - exact).abs().max()) / 256


def test_combinations_are_right() -> None:
    t, plain = sealed(ROWS, scheme()), ROWS
    cases = {
        "dense, sparse and empty rows": (WEIGHTS @ t, WEIGHTS @ plain),
        "sum": (t.sum(0), plain.sum(0)),
        "picked and joined": (t[torch.tensor([3, 1, 1, 0])].view(2, 2, 5000), plain[[3, 1, 1, 0]].view(2, 2, 5000)),
        "sum of products and a row as it came": (
            torch.index_add(torch.zeros(4, 5000), 0, EVERYONE, t) + WEIGHTS[[0, 1, 2, 2]] @ t,
            plain + WEIGHTS[[0, 1, 2, 2]] @ plain,
        ),
        "axes": (
            (WEIGHTS[[0, 2, 1, 2]] @ t).view(2, 2, 5000).movedim(2, 1),
            (WEIGHTS[[0, 2, 1, 2]] @ plain).view(2, 2, 5000).movedim(2, 1),
        ),
    }
    for name, (found, exact) in cases.items():
        assert error(opened(found), exact) < 1e-9, name


def test_a_mean_multiplies_nothing() -> None:
    rows = scheme(weighted=False, summands=torch.full((4,), 8))
    mean = sealed(ROWS, rows).mean(0)
    assert isinstance(mean, SealedTensor) and isinstance(mean.sealed, WeightedRows)
    assert rows.codec.parameters is SUMS and not mean.sealed.rows[0].product
    assert error(opened(mean), ROWS.mean(0)) < 1e-9
    copies = mean.expand(3, -1)
    assert isinstance(copies, SealedTensor)
    first, _, last = opened(copies)
    assert torch.equal(first, last), "who opens the same ciphertext reads the same numbers"
    twice = mean.reshape(1, -1) + sealed(ROWS, rows).sum(0).reshape(1, -1) / 4
    assert error(opened(twice), 2 * ROWS.mean(0, keepdim=True)) < 1e-9
    with pytest.raises(FglauditError, match="no room for products"):
        opened(WEIGHTS @ sealed(ROWS, rows))


def test_impossible_results_are_refused() -> None:
    rows = scheme()
    for wrong in (256.1, float("nan"), float("inf")):
        with pytest.raises(FglauditError, match="absolute values up to 256"):
            rows.encrypted(torch.tensor([[wrong]]))
    t = sealed(ROWS, rows)
    with pytest.raises(FglauditError, match=r"add up to 4; got 4\.1"):
        opened(torch.tensor([[4.1, 0.0, 0.0, 0.0]]) @ t)
    with pytest.raises(FglauditError, match="one product"):
        opened(torch.tensor([[0.5]]) @ (WEIGHTS[:1] @ t))
    with pytest.raises(FglauditError, match="same payload"):
        opened(t + sealed(ROWS, scheme()))


def test_largest_values_at_the_largest_weights_do_not_overflow() -> None:
    extreme = torch.full((4, 5000), 256.0, dtype=torch.double)
    extreme[:, ::2] = -256
    assert error(opened(torch.ones(1, 4) @ sealed(extreme, scheme())), extreme.sum(0, keepdim=True)) < 1e-9
    assert error(opened(sealed(extreme, scheme(weighted=False)).sum(0)), extreme.sum(0)) < 1e-9


def test_bytes_are_those_of_the_ciphertexts() -> None:
    t = sealed(ROWS, scheme())
    single = torch.arange(5)
    assert t.sealed.wire_bytes(single).tolist() == [2 * PRODUCTS.fresh_bytes] * 4, "5000 numbers take two"
    mixed = WEIGHTS @ t
    assert isinstance(mixed, SealedTensor)
    assert mixed.sealed.wire_bytes(torch.tensor([0, 1, 3])).tolist() == [2 * PRODUCTS.full_bytes] * 2, (
        "an empty row takes none"
    )


def tiny_task(nodes: int) -> FederatedGraph:
    drawn = draw_task("csbm-dnc", CsbmTask(nodes=nodes, degree=6.0, dimensions=20))
    assert drawn.train is not None and drawn.val is not None and drawn.test is not None
    return federate(drawn, list(torch.arange(nodes).unsqueeze(1)), drawn.train, drawn.val, drawn.test)


def ring() -> FederatedGraph:
    """Six nodes in a ring at two clients, so that matrices stay small: every neighbourhood has three nodes."""
    nodes = torch.arange(6)
    edges = canonical_edges(torch.stack([nodes, (nodes + 1) % 6]), 6)
    x = torch.rand(6, 5, generator=torch.Generator().manual_seed(1))
    train, test = nodes % 2 == 0, nodes % 2 == 1
    return federate(Graph(x, nodes // 3, edges, "ring"), [nodes[:3], nodes[3:]], train, test, test)


TRAININGS: dict[str, tuple[FederatedProtocol, FederatedGraph, tuple[str, ...]]] = {
    "fedgcn, weighted": (FedGCN(rounds=2, weighting="train-nodes"), example_graph(), ("ModelUpdate",)),
    "fedgat, rows": (dataclasses.replace(MATRICES, rounds=2), ring(), ("RawFeatures", "ModelUpdate")),
    "gfl-appnp, everything": (GFLAPPNP(hidden=4, rounds=2, local_steps=2), tiny_task(16), ()),
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
    assert hidden.channel.bytes_sealed == pytest.approx(total * 1e9), (
        "the bytes stated before the run are those of the run"
    )


def test_costs_of_the_paper_sizes_are_told_before_the_run() -> None:
    """By hand: GFL-APPNP with 30 nodes, a Jacobian of 2 x (12 x 64 + 64 x 2) numbers; FedGAT's ring with b = 3 and
    width 6."""
    jacobians = Cost.of(GFLAPPNP(rounds=7).aggregates(node_graph())[Jacobians])
    assert (jacobians.ciphertexts_up, jacobians.ciphertexts_down, jacobians.products) == (30, 30, 30 * 29)
    assert jacobians.gigabytes_up == pytest.approx(7 * 30 * 196_900 / 1e9)
    matrices = Cost.of(FedGAT().aggregates(ring())[RawFeatures])
    assert (matrices.ciphertexts_up, matrices.ciphertexts_down) == (6, 6 * (2 * 36 + 6))
    models = Cost.of(FedGCN(rounds=300).aggregates(example_graph())[ModelUpdate])
    assert (models.parameters, models.ciphertexts_up, models.ciphertexts_down) == (SUMS, 3, 3)


def reason(protocol: FederatedProtocol, graph: FederatedGraph, **fields: Any) -> str:
    return HomomorphicEncryption(**fields).unsupported(protocol.context(graph)) or ""


def test_refusals_say_what_and_why() -> None:
    graph, nodes = example_graph(), node_graph()
    too_large = reason(GFLAPPNP(), nodes, scheme="ckks", on=("Jacobians",), most_gigabytes=1)
    assert all(
        word in too_large for word in ("5.31 GB", "1.77 up", "3.54 down", "18000 ciphertexts", "most_gigabytes: 1")
    )
    assert "use scheme: ckks" in reason(GFLAPPNP(rounds=1), nodes)
    assert "use variant: matrix" in reason(FedGAT(variant="vector"), graph, scheme="ckks", on=("RawFeatures",))
    assert "padded" in reason(GFLAPPNP(rounds=1), nodes, scheme="ckks", padded=True)
    assert "sends no Latents" in reason(FedMLP(), nodes, scheme="ckks", on=("Latents",))
    assert "nothing that it computes with" in reason(FedMLP(federated=False), nodes)
    with pytest.raises(FglauditError, match="largest must be positive"):
        HomomorphicEncryption(largest=0.0)
    with pytest.raises(FglauditError, match=r"most_gigabytes. must be .*finite"):
        HomomorphicEncryption(most_gigabytes=float("nan"))
    short = HomomorphicEncryption(scheme="ckks", on=("ModelUpdate",), largest=0.01)
    with pytest.raises(FglauditError, match=r"absolute values up to 0\.01"):
        record(FedGCN(rounds=1), graph, short)


def test_conformance() -> None:
    check_defense(HomomorphicEncryption(scheme="ckks", on=("ModelUpdate",)), FedGCN(rounds=1), quick=True)


# --- attacks on what is left
# --------------------------------------------------------------------------------------------------

CLIENT = Observer(parties=(3,), topology=True)
BOTH = Observer(parties=(SERVER, 3))


@pytest.fixture(scope="module")
def encrypted() -> Run:
    defense = HomomorphicEncryption(scheme="ckks", on=("Jacobians",))
    return record(GFLAPPNP(hidden=24, rounds=10), tiny_task(20), defense)


@pytest.mark.parametrize(("attack", "observer"), [(MaskFlip(), CLIENT), (JacobianReading(), BOTH)])
def test_who_holds_the_key_reads_features_all_the_same(encrypted: Run, attack: Attack, observer: Observer) -> None:
    result = attack.run(encrypted.view(observer), rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    counted = check_claims(result, game_of(encrypted, observer), encrypted.view(observer))
    assert counted is not None and counted.false == 0
    assert int(counted.found.sum()) == len(counted.found) == 19


def test_the_server_alone_has_ciphertexts(encrypted: Run) -> None:
    found = finding_of(encrypted, JacobianReading(), ObserverSpec(("server",)))
    assert found.status is Status.NOT_APPLICABLE
    assert found.reason == "server sees ciphertexts only of Jacobians, and holds no key"
