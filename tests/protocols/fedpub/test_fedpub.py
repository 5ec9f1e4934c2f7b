"""FED-PUB: the network against dense matrices, masks, the random graph, who gets which average."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, FunctionalEmbeddings, ModelUpdate, Payload
from fglaudit.protocols.fedpub.fedpub import FedPub, Probe
from fglaudit.protocols.fedpub.full_graph import propagated
from fglaudit.protocols.fedpub.personal_masks import PersonalMasks
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, check_protocol, example_graph, record
from fglaudit.view import Observer


def sent(run: Run, payload: type[Payload], *, up: bool) -> list[Tensor]:
    batches = run.view(Observer(parties=(SERVER,))).messages.of(payload)
    return [next(iter(b.payload.tensors().values())) for b in batches if bool((b.senders != SERVER).all()) == up]


def dense(edge_index: Tensor, count: int) -> Tensor:
    """Return A by its formula."""
    adjacency = torch.eye(count, dtype=torch.double)
    adjacency[edge_index[0], edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    return scale[:, None] * adjacency * scale


def test_propagation_is_symmetric_and_has_self_loops() -> None:
    client = example_graph().client(0)
    expected = dense(client.edge_index, len(client.nodes)) @ client.x.double()
    torch.testing.assert_close(propagated(client.edge_index, client.x).double(), expected, rtol=1e-5, atol=1e-6)


def test_a_step_is_that_of_the_masked_network() -> None:
    """One full-batch step of Adam without dropout, client by client, with both penalties."""
    graph = example_graph(nodes=90, classes=2)
    protocol = FedPub(rounds=1, hidden=8, dropout=0.0, sparsity=0.02, proximal=0.1)
    run = record(protocol, graph)
    first = sent(run, ModelUpdate, up=False)[0]
    after = sent(run, ModelUpdate, up=True)[0]
    shapes = protocol.shared(graph.num_features, 2)
    for k in range(3):
        client = graph.client(k)
        adjacency = dense(client.edge_index, len(client.nodes)).float()
        leaves = [w[0].clone().requires_grad_() for w in unflatten(first[k : k + 1], shapes).values()]
        masks = [torch.ones_like(w).requires_grad_() for w in leaves if w.dim() == 2]
        w1, b1, w2, b2, wc, bc = leaves
        optimizer = torch.optim.Adam([*leaves, *masks], lr=0.01, weight_decay=1e-6)
        rows = torch.relu(adjacency @ client.x @ (w1 * masks[0]) + b1)
        rows = torch.relu(adjacency @ rows @ (w2 * masks[1]) + b2)
        logits = rows @ (wc * masks[2]) + bc
        loss = functional.cross_entropy(logits[client.train], client.y[client.train])
        (loss + 0.02 * sum(m.abs().sum() for m in masks)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        expected = torch.cat([w.detach().flatten() for w in leaves])
        torch.testing.assert_close(after[k], expected, rtol=1e-3, atol=2e-4)


def test_masks_act_on_weights_and_small_ones_count_as_zero_in_tests() -> None:
    masks = PersonalMasks(3, sparsity=0.1, proximal=2.0)
    weights = {"a": torch.tensor([[[1.0, 2.0]]]), "b": torch.tensor([[5.0]]), "a.mask": torch.tensor([[[0.05, 3.0]]])}
    training, testing = (masks.effective(weights, testing=flag) for flag in (False, True))
    torch.testing.assert_close(training["a"], torch.tensor([[[0.05, 6.0]]]))
    torch.testing.assert_close(testing["a"], torch.tensor([[[0.0, 6.0]]]))
    assert set(testing) == {"a", "b"}
    held, received = torch.tensor([[1.0, 2.0, 5.0, -1.0, 3.0]]), torch.tensor([[1.0, 1.0, 5.0, 1.0, 1.0]])
    assert masks.penalty(held, received).item() == pytest.approx(0.1 * 4 + 2 / 2 * 1)


def test_masks_stay_at_home_and_differ() -> None:
    graph = example_graph(classes=2)
    run = record(FedPub(rounds=6, hidden=8), graph)
    width = sum(torch.Size(shape).numel() for shape in run.trained.layout.values())
    assert all(models.shape == (3, width) for models in sent(run, ModelUpdate, up=True))
    mask = run.trained.weights["hidden.weight.mask"]
    assert not torch.equal(mask[0], mask[1])


def test_the_random_graph_is_public_and_has_five_communities() -> None:
    one, again, other = (Probe.of(seed, 6, CPU) for seed in (0, 0, 1))
    assert torch.equal(one.rows, again.rows) and not torch.equal(one.rows, other.rows)
    community = torch.arange(500) // 100
    linked = one.adjacency.forward.to_dense() != 0
    assert not bool(linked[community[:, None] != community].any())
    inside = (linked.sum() - 500) / (5 * 100 * 99)
    assert float(inside) == pytest.approx(0.1, abs=0.01)


def test_averages_follow_the_cosines_of_functional_embeddings() -> None:
    run = record(FedPub(rounds=3, hidden=8, tau=40.0), example_graph(classes=2))
    returned, uploaded = sent(run, ModelUpdate, up=False), sent(run, ModelUpdate, up=True)
    for round, embedded in enumerate(sent(run, FunctionalEmbeddings, up=True)):
        cosines = functional.cosine_similarity(embedded.unsqueeze(0), embedded.unsqueeze(1), dim=2)
        weights = (40 * cosines).softmax(1)
        torch.testing.assert_close(returned[round + 1], weights @ uploaded[round], rtol=1e-4, atol=1e-5)
        assert run.trained.series["own_weight"][round] == pytest.approx(float(weights.diagonal().mean()), rel=1e-3)


def test_sharp_weights_leave_each_client_its_own_model() -> None:
    run = record(FedPub(rounds=2, hidden=8, tau=1e6), example_graph(classes=2))
    torch.testing.assert_close(sent(run, ModelUpdate, up=False)[1], sent(run, ModelUpdate, up=True)[0])


@pytest.mark.parametrize(("field", "value"), [("tau", -1.0), ("sparsity", float("nan")), ("layers", 3)])
def test_bad_fields(field: str, value: float) -> None:
    with pytest.raises(FglauditError, match=field):
        FedPub(**{field: value})  # type: ignore[arg-type]


def test_protocol() -> None:
    check_protocol(FedPub(rounds=12, hidden=8), example_graph(nodes=120, classes=2))


def test_embeddings_are_those_of_the_masked_network() -> None:
    graph = example_graph(classes=2)
    run = record(FedPub(rounds=1, hidden=8, dropout=0.0), graph)
    (embedded,) = sent(run, FunctionalEmbeddings, up=True)
    probe, adjacency = Probe.of(0, graph.num_features, CPU), None
    adjacency = probe.adjacency.forward.to_dense()
    for k in range(3):
        weights = {name: weight[k] for name, weight in run.trained.weights.items()}
        rows = torch.relu(probe.rows @ (weights["input.weight"] * weights["input.weight.mask"]) + weights["input.bias"])
        rows = adjacency @ rows @ (weights["hidden.weight"] * weights["hidden.weight.mask"]) + weights["hidden.bias"]
        torch.testing.assert_close(embedded[k], rows.mean(0), rtol=1e-3, atol=1e-4)


def test_the_random_graph_of_another_seed_gives_other_embeddings() -> None:
    graph = example_graph(classes=2)
    one, other = (
        sent(record(FedPub(rounds=1, hidden=8, random_graph=seed), graph), FunctionalEmbeddings, up=True)[0]
        for seed in (0, 1)
    )
    assert not torch.equal(one, other)
    assert derive(0, "random graph").initial_seed() != derive(1, "random graph").initial_seed()


def test_batches_of_0_are_all_training_nodes_as_elsewhere() -> None:
    runs = [record(FedPub(rounds=2, hidden=4, batch_size=size)) for size in (0, 1_000_000)]
    one, other = (sent(run, ModelUpdate, up=True) for run in runs)
    assert one and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
