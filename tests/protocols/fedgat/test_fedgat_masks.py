"""FedGAT's series, matrices and vectors against brute force on four nodes."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fedgat_runs import CPU, SMALL, VARIANTS, four_nodes, mixed_graph, quiet
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.nn.chebyshev import LEAST_SMOOTH, Series, attention_function, attention_series, smooth_function
from fglaudit.nn.gat import layer_weights
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, MessageBatch, Payload
from fglaudit.protocols.fedgat.fedgat import FedGAT, Source, Variant
from fglaudit.protocols.fedgat.masking import Masked, mask_parts, masked_vectors, node_bytes
from fglaudit.protocols.fedgat.message_basis import basis_of, paired, spanned
from fglaudit.protocols.fedgat.received import Batch
from fglaudit.rng import derive
from fglaudit.testing import record


def messages_of(
    edges: KeptEdges, x: Tensor, nodes: Tensor, size: int, variant: type[Masked], seed: int = 0
) -> MaskedMatrices | MaskedVectors:
    """Return the messages about ``nodes``, in one part."""
    (payload,) = mask_parts(edges, x, nodes, [torch.arange(len(nodes))], size, variant, derive(seed, "masks"))
    return payload


@pytest.mark.parametrize("degree", [8, 16, 32])
@pytest.mark.parametrize("domain", [1.0, 2.0])
def test_series_error_falls_like_the_inverse_degree(degree: int, domain: float) -> None:
    x = torch.linspace(-domain, domain, 20001, dtype=torch.float64)
    error = (attention_series(degree, domain)(x) - attention_function(x)).abs().max()
    # The jump of the derivative at 0 is 1 - 0.2; the series of |t| errs by 2 / (pi p) at its kink.
    leading = 0.8 / 2 * domain * 2 / (math.pi * degree)
    assert 0.5 * leading < error < 1.5 * leading


def test_series_of_a_polynomial_is_exact_on_numbers_and_matrices() -> None:
    series = Series.of(lambda x: 2 * x**3 - x + 0.5, 5, 1.5)
    x = torch.linspace(-1.5, 1.5, 7, dtype=torch.float64)
    torch.testing.assert_close(series(x), 2 * x**3 - x + 0.5)
    assert series.at_zero == pytest.approx(0.5)
    matrix = torch.randn(3, 4, 4, generator=derive(0, "m"), dtype=torch.float64)
    row = torch.randn(3, 4, generator=derive(0, "r"), dtype=torch.float64)
    value = 2 * matrix @ matrix @ matrix - matrix + 0.5 * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(series.row_times(row, matrix), (row.unsqueeze(1) @ value).squeeze(1))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("power", range(6))
def test_moments_against_brute_force(variant: type[MaskedMatrices | MaskedVectors], power: int) -> None:
    """``E^(n) = sum_j x_ij^n h_j`` and ``F^(n) = sum_j x_ij^n``, equation (8), over the closed neighbourhood."""
    edges, x = four_nodes()
    own, neighbor = torch.randn(2, 1, 2, 3, generator=derive(1, "b"), dtype=torch.float64)
    series = Series.of(lambda t: t**power, max(power, 1), 2.0)
    for node in range(4):
        nodes = torch.tensor([node])
        members = edges.source[edges.start[node] : edges.start[node + 1]].long()
        assert node in members
        payload = messages_of(edges, x, nodes, len(members), variant, seed=node)
        batch = Batch.received(payload, torch.zeros_like(nodes), derive(0, "probes"))
        basis = torch.eye(3, dtype=x.dtype).unsqueeze(0) if batch.basis is None else batch.basis
        ours, theirs = own @ basis.transpose(1, 2), neighbor @ basis.transpose(1, 2)
        vectors, numbers = batch.moments(ours, theirs, series)
        scores = (own[0] @ x[node]).unsqueeze(1) + neighbor[0] @ x[members].T  # [heads, b]
        scale = 1 if variant is MaskedMatrices else 2  # |u_j|^2, which cancels in the attention
        torch.testing.assert_close(numbers[0], scale * (scores**power).sum(1))
        torch.testing.assert_close((vectors @ basis)[0], scale * scores**power @ x[members])
        found = batch.edge_scores(ours, theirs).abs().sort().values
        torch.testing.assert_close(found, scores.flatten().abs().repeat(2).sort().values, atol=1e-7, rtol=0)


def test_matrices_have_the_printed_structure() -> None:
    edges, x = four_nodes()
    payload = messages_of(edges, x, torch.tensor([0, 1, 2]), 3, MaskedMatrices)
    assert isinstance(payload, MaskedMatrices)
    total = payload.m1[1, 0] / x[1, 0]  # sum_j U_j, a projection of rank b
    torch.testing.assert_close(total @ total, total)
    assert torch.linalg.matrix_rank(total) == 3
    torch.testing.assert_close((payload.k1**2).sum(1), torch.full((3,), 6.0, dtype=torch.float64))  # K1'K1 = 2b, not b
    sums = torch.einsum("pw,pswv,pv->ps", payload.k1, payload.m2, payload.k1)
    torch.testing.assert_close(sums, x[:3].sum(0).expand(3, 3))  # K1' M2(s) K1 = sum_j h_j(s)


def test_vectors_satisfy_the_constraints_on_masks() -> None:
    edges, x = four_nodes()
    payload = messages_of(edges, x, torch.tensor([0, 1, 2]), 3, MaskedVectors)
    assert isinstance(payload, MaskedVectors)
    projection = payload.k2
    torch.testing.assert_close(projection @ projection, projection)
    shown = payload.m2.transpose(1, 2) @ projection  # sum_j h_j u_j'
    assert not torch.allclose(payload.m2.transpose(1, 2), shown)
    for p, node in enumerate((0, 1, 2)):
        members = edges.source[edges.start[node] : edges.start[node + 1]].long()
        columns = {tuple(round(v, 6) + 0.0 for v in column) for column in shown[p].T.tolist()}
        assert columns == {tuple(row) for row in x[members].tolist()}


def wide_messages(variant: type[MaskedMatrices | MaskedVectors]) -> MaskedMatrices | MaskedVectors:
    """Return messages about nodes 0, 1 and 2 of the four, which have 20 features now."""
    edges, _ = four_nodes()
    x = torch.randn(4, 20, generator=derive(0, "rows"))
    x[2] = x[1]  # the neighbours' rows span less than b dimensions
    return messages_of(edges, x, torch.tensor([0, 1, 2]), 3, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_messages_kept_by_a_basis_read_the_same(variant: type[MaskedMatrices | MaskedVectors]) -> None:
    payload = wide_messages(variant)
    client = torch.tensor([0, 1, 0])
    batch = Batch.received(payload, client, derive(0, "probes"))
    whole = Batch.received(payload, client, derive(0, "probes"), noisy=True)
    assert batch.basis is not None and whole.basis is None
    assert batch.basis.shape == (3, 3, 20)
    own, neighbor = 0.2 * torch.randn(2, 3, 2, 20, generator=derive(1, "b"))
    coordinates = [vectors @ batch.basis.transpose(1, 2) for vectors in (own, neighbor)]
    series = attention_series(8, 2.0)
    vectors, numbers = batch.moments(coordinates[0], coordinates[1], series)
    expected, expected_numbers = dataclasses.replace(whole, noisy=False).moments(own, neighbor, series)
    torch.testing.assert_close(vectors @ batch.basis, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(numbers, expected_numbers, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("field", ["m1", "m2"])
def test_a_basis_is_used_only_where_it_loses_nothing(variant: type[MaskedMatrices | MaskedVectors], field: str) -> None:
    payload = wide_messages(variant)
    changed = getattr(payload, field).clone()
    if variant is MaskedMatrices:
        changed[1] += 1e-2
    else:
        changed[1, 2] += 1e-2 * torch.arange(20)
    tampered = payload.with_fields({**payload.tensors(), field: changed})
    batch = Batch.received(tampered, torch.zeros(3, dtype=torch.long), derive(0, "probes"))
    assert batch.basis is None
    assert torch.isfinite(basis_of(torch.zeros(2, 6, 20), 3)).all()


def test_vectors_of_many_features_are_kept_by_a_basis() -> None:
    """Masks grow with the number of features, and so does what rounding leaves of them outside of the basis."""
    x = (torch.rand(60, 3000, generator=derive(0, "rows")) < 0.01).float()
    neighbors = (x / x.norm(dim=1, keepdim=True)).view(20, 3, 3000)
    payload = masked_vectors(torch.arange(20), neighbors[:, 0], neighbors, derive(0, "masks"))
    batch = Batch.received(payload, torch.zeros(20, dtype=torch.long), derive(0, "probes"))
    assert batch.basis is not None and batch.basis.shape == (20, 3, 3000)


def test_masks_are_averaged_away_only_where_columns_are_equal_in_pairs() -> None:
    payload = wide_messages(MaskedVectors)
    assert isinstance(payload, MaskedVectors)
    pairs = paired(payload.k2)
    assert pairs is not None
    torch.testing.assert_close(payload.k2 @ pairs, payload.k2)
    torch.testing.assert_close(pairs @ pairs, pairs)
    projection = payload.k2.clone()
    projection[1, 0, 0] += 1e-3
    assert paired(projection) is None
    tampered = payload.with_fields({**payload.tensors(), "k2": projection})
    batch = Batch.received(tampered, torch.zeros(3, dtype=torch.long), derive(0, "probes"))
    assert batch.width == 6 and torch.equal(batch.k2, payload.k1)


def test_what_lies_outside_a_basis_is_noticed() -> None:
    rng = derive(0, "basis")
    rows = torch.randn(4, 3, 20, generator=rng)
    basis = basis_of(torch.randn(4, 6, 3, generator=rng) @ rows, 3)
    inside = rows.transpose(1, 2) @ torch.randn(4, 3, 9, generator=rng)
    assert spanned(basis, inside).all()
    inside[2, 5, 7] += 1e-2
    assert spanned(basis, inside).tolist() == [True, True, False, True]


@pytest.mark.parametrize("variant", VARIANTS)
def test_messages_made_in_parts_are_those_made_at_once(variant: type[MaskedMatrices | MaskedVectors]) -> None:
    edges, x = four_nodes()
    nodes, parts = torch.tensor([0, 1, 2]), [torch.tensor([2, 0]), torch.tensor([1])]
    whole = messages_of(edges, x, nodes, 3, variant)
    made = list(mask_parts(edges, x, nodes, parts, 3, variant, derive(0, "masks")))
    for part, payload in zip(parts, made, strict=True):
        for name, value in whole.select(part).tensors().items():
            assert torch.equal(value, payload.tensors()[name]), name


def test_messages_of_one_node_are_the_same_for_all_receivers() -> None:
    graph = mixed_graph(torch.float32)
    sent = []

    def keep(batch: MessageBatch, payload: Payload) -> Payload:
        sent.append(batch)
        return payload

    record(FedGAT(remote="matrices", **SMALL | {"rounds": 1}), graph, tamper=keep)
    copies: dict[int, Tensor] = {}
    receivers: dict[int, set[int]] = {}
    for batch in sent:
        if isinstance(batch.payload, MaskedMatrices):
            assert bool((batch.senders == SERVER).all())
            for p, node in enumerate(batch.payload.node.tolist()):
                assert torch.equal(copies.setdefault(node, batch.payload.m2[p]), batch.payload.m2[p])
                receivers.setdefault(node, set()).add(int(batch.receivers[p]))
    owner = graph.owner()
    for node, found in receivers.items():
        neighbors = graph.edge_index[1][graph.edge_index[0] == node]
        assert found == {int(owner[node]), *owner[neighbors].tolist()}
    assert len(receivers) == graph.num_nodes


def test_bytes_by_hand() -> None:
    # b = 3, width 6, 3 features: M1 and M2 216 numbers, K1 6, K2 18; vectors M1, M2, K1 54, mask4 36, K3 6.
    assert node_bytes(3, 3, MaskedMatrices) == 8 + 4 * (216 + 6 + 18)
    assert node_bytes(3, 3, MaskedVectors) == 8 + 4 * (54 + 36 + 6)


def test_the_codes_weights_are_smooth_positive_and_nearly_equal() -> None:
    x = torch.linspace(-2, 2, 1001, dtype=torch.float64)
    scaled = x / 40
    expected = 0.2 * scaled + 0.8 * 0.25 * torch.log(1 + torch.exp(4 * scaled))
    assert (attention_series(16, 2.0, 40)(x) - expected).abs().max() < 1e-9
    assert expected.min() > 0 and expected.max() / expected.min() < 1.6
    assert attention_series(16, 2.0, 40).least == pytest.approx(float(expected.min()))
    assert attention_series(16, 2.0).least == pytest.approx(math.exp(-0.4), rel=1e-12)
    assert smooth_function(torch.tensor(LEAST_SMOOTH)) > 0 > smooth_function(torch.tensor(LEAST_SMOOTH - 0.005))


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_the_codes_weights_are_those_of_both_paths(variant: Variant) -> None:
    """And not the text's."""
    graph, found = mixed_graph(), dict[tuple[str, str], Tensor]()
    sources: tuple[Source, ...] = ("paper", "code")
    for source in sources:
        for path in ("moments", "matrices"):
            protocol = FedGAT(variant=variant, path=path, source=source, **SMALL)
            training, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
            models = initial.expand(graph.num_clients, -1)
            first = layer_weights(unflatten(models, training.layout))[0]
            found[source, path] = training.problem.test.first(first)
    assert torch.allclose(found["code", "moments"], found["code", "matrices"], rtol=1e-6, atol=1e-9)
    assert not torch.allclose(found["code", "moments"], found["paper", "moments"], rtol=1e-3)


def test_weights_that_could_vanish_are_refused() -> None:
    graph = mixed_graph()
    least = 0.28 * graph.num_features
    FedGAT(source="code", domain=least * 0.99).check(graph)
    FedGAT(domain=least * 1.01).check(graph)
    with pytest.raises(FglauditError, match="source: paper"):
        FedGAT(source="code", domain=least * 1.01).check(graph)
