"""GFL-APPNP as a protocol: equal to APPNP at I = 1, what is sent, both ways to compute, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.errors import FglauditError
from fglaudit.federated.node_clients import NodeClients
from fglaudit.federated.perceptron_steps import LocalSteps
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import DefenseSession, FederatedProtocol, Trained
from fglaudit.nn.propagation import personalised_propagation
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.payloads import (
    SERVER,
    HiddenRepresentations,
    Jacobians,
    ModelUpdate,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
)
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.graphsage import GraphSAGE
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP, Task, Variant
from fglaudit.protocols.gfl_appnp.hidden_sharing import Sharing
from fglaudit.rng import derive
from fglaudit.testing import check_protocol, example_graph, record
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.transcript import Transcript

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"hidden": 8, "rounds": 3, "local_steps": 2}
SIZES = {
    "csbm-dnc": CsbmTask(nodes=30, dimensions=12),
    "csbm-snc": CsbmTask(nodes=30, dimensions=12, samples=4),
    "csbm-sc": CsbmTask(nodes=12, dimensions=12, samples=24),
}


def per_node(graph: Graph) -> FederatedGraph:
    assert graph.train is not None and graph.val is not None and graph.test is not None
    return federate(graph, list(torch.arange(graph.num_nodes).unsqueeze(1)), graph.train, graph.val, graph.test)


def small(name: str = "csbm-dnc", draw: int = 0) -> FederatedGraph:
    return per_node(draw_task(name, SIZES[name], draw))


def train(
    protocol: FederatedProtocol, graph: FederatedGraph, transcript: Transcript | None = None, keep: Keep | None = None
) -> Any:
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"), transcript, keep)
    return protocol.train(graph, channel, rng=derive(0, "train"), device=CPU), channel


def close(first: Trained, second: Trained, tolerance: float = 1e-5) -> None:
    for name, weight in first.weights.items():
        torch.testing.assert_close(weight, second.weights[name], atol=tolerance, rtol=0)


@pytest.mark.parametrize("recorded", [False, True])
def test_one_local_step_is_vanilla_appnp(recorded: bool) -> None:
    graph = small()
    ours, _ = train(
        GFLAPPNP(hidden=8, rounds=20, local_steps=1, choice="last"), graph, Transcript() if recorded else None
    )
    vanilla, _ = train(APPNP(hidden=8, rounds=20, local_steps=1, choice="last"), graph)
    close(ours, vanilla)
    assert torch.equal(ours.accuracy_global, vanilla.accuracy_global)
    for name in ("training_loss", "validation_loss"):
        torch.testing.assert_close(ours.series[name], vanilla.series[name], atol=1e-5, rtol=0)


def test_the_mean_over_all_clients_divides_the_learning_rate() -> None:
    graph = small()
    share = sum(bool(mask.any()) for mask in graph.train) / graph.num_nodes
    ours, _ = train(GFLAPPNP(hidden=8, rounds=10, local_steps=1, averaging="all", choice="last"), graph)
    vanilla, _ = train(APPNP(hidden=8, rounds=10, local_steps=1, learning_rate=0.5 * share, choice="last"), graph)
    close(ours, vanilla)


@pytest.mark.parametrize("variant", ["full", "v2"])
@pytest.mark.parametrize("name", SIZES)
def test_recording_changes_no_training_and_no_byte_count(name: str, variant: Variant) -> None:
    graph, protocol = small(name), GFLAPPNP(variant=variant, batch_size=1, **SMALL)
    recorded, loud = train(protocol, graph, Transcript())
    quiet, silent = train(protocol, graph)
    close(recorded, quiet)
    assert torch.equal(loud.bytes_up, silent.bytes_up) and torch.equal(loud.bytes_down, silent.bytes_down)


def test_bytes_are_those_of_the_algorithm() -> None:
    graph, protocol = small(), GFLAPPNP(**SMALL)
    _, channel = train(protocol, graph)
    classes, weights, rounds = 2, 12 * 8 + 8 * 2, protocol.rounds
    shared = 4 * classes * (rounds + 1) + 4 * classes * weights * rounds
    trains = torch.tensor([int(mask.any()) for mask in graph.train])
    assert torch.equal(channel.bytes_up, shared + trains * 4 * weights * rounds)
    assert torch.equal(channel.bytes_down, torch.full_like(trains, shared + 4 * weights * (rounds + 1)))


def messages(run: Any, payload: type[Payload], round: int) -> Any:
    batches = [b for b in run.transcript.seen_by(Observer(wire=True)).of(payload) if b.round == round]
    return torch.cat([next(iter(b.payload.tensors().values())) for b in batches]), batches


@pytest.mark.parametrize("truncated", [False, True])
def test_server_returns_the_sums_over_all_other_nodes(truncated: bool) -> None:
    graph = small("csbm-snc")
    run = record(GFLAPPNP(**SMALL, truncated=truncated), graph)
    a = personalised_propagation(graph.edge_index, graph.num_nodes, 0.1, 10, truncated=truncated)
    for round in (0, 2):
        h, _ = messages(run, HiddenRepresentations, round)
        c, _ = messages(run, PropagatedRepresentations, round)
        jacobians, _ = messages(run, Jacobians, round)
        dc, _ = messages(run, PropagatedJacobians, round)
        for k in range(graph.num_nodes):
            others = [j for j in range(graph.num_nodes) if j != k]
            torch.testing.assert_close(c[k], sum(a[k, j] * h[j] for j in others))
            torch.testing.assert_close(dc[k], sum(a[k, j] * jacobians[j] for j in others), atol=1e-5, rtol=1e-4)
    _, (uploads,) = (
        messages(run, ModelUpdate, 3)[0],
        [b for b in messages(run, ModelUpdate, 3)[1] if b.receivers[0] == SERVER],
    )
    assert uploads.senders.tolist() == [k for k, mask in enumerate(graph.train) if bool(mask.any())]
    assert messages_sent(run, Jacobians) == messages_sent(run, PropagatedJacobians) == {0, 1, 2}
    assert messages_sent(run, HiddenRepresentations) == {0, 1, 2, 3}


def messages_sent(run: Any, payload: type[Payload]) -> set[int]:
    return {entry.round for entry in run.transcript.entries if entry.payload == payload.__name__}


def test_a_server_reads_the_features_off_a_jacobian() -> None:
    """The layout that attacks rely on: ``dh[c] / dW1[f, h] = W2[h, c] x_f`` where unit h is active."""
    graph = small()
    run = record(GFLAPPNP(**SMALL), graph)
    jacobians, _ = messages(run, Jacobians, 0)
    model, _ = messages(run, ModelUpdate, 0)
    w1, w2 = model[0][: 12 * 8].view(12, 8), model[0][12 * 8 :].view(8, 2)
    first = jacobians[:, 0, : 12 * 8].view(-1, 12, 8) / w2[:, 0]
    expected = graph.x.unsqueeze(2) * (graph.x @ w1 > 0).unsqueeze(1)
    torch.testing.assert_close(first, expected, atol=1e-4, rtol=1e-3)


def test_v1_adds_fresh_unit_noise_and_v2_sends_no_jacobians() -> None:
    graph = small()
    clean, noisy = (record(GFLAPPNP(variant=v, learning_rate=0.0, **SMALL), graph) for v in ("full", "v1"))
    draws = [messages(noisy, Jacobians, r)[0] - messages(clean, Jacobians, r)[0] for r in range(3)]
    for draw in draws:
        assert abs(float(draw.mean())) < 0.05 and abs(float(draw.std()) - 1) < 0.05
    assert abs(float((draws[0] * draws[1]).mean())) < 0.05
    silent = record(GFLAPPNP(variant="v2", **SMALL), graph)
    assert messages_sent(silent, Jacobians) == messages_sent(silent, PropagatedJacobians) == set()


def test_v1_without_recording_has_the_covariance_of_the_sums() -> None:
    graph = small()
    a = personalised_propagation(graph.edge_index, graph.num_nodes, 0.1, 10)
    a.fill_diagonal_(0)
    data = NodeClients.of([graph.client(k) for k in range(graph.num_clients)], CPU)
    trainers = torch.arange(3)
    layout = gcn_layout(12, 64, 2, 2)
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))
    model = glorot(layout, derive(0, "w")).expand(graph.num_nodes, -1)
    sums = []
    for scale in (1.0, 0.0):
        sharing = Sharing(channel, a, data, trainers, layout, scale, derive(1, "noise"))
        _, _, others = sharing.exchange(0, model, last=False)
        assert others is not None
        one = torch.eye(2)
        parts = [
            torch.cat(
                [others.first(one[c].expand(3, -1)).flatten(1), others.second(one[c].expand(3, -1)).flatten(1)], 1
            )
            for c in (0, 1)
        ]
        sums.append(torch.cat(parts, 1))
    noise = sums[0] - sums[1]
    expected = a[trainers] @ a[trainers].T
    torch.testing.assert_close(noise @ noise.T / noise.shape[1], expected, atol=0.1 * float(expected.max()), rtol=0.1)


@pytest.mark.parametrize("variant", ["full", "v1", "v2"])
@pytest.mark.parametrize("name", SIZES)
def test_conformance(name: str, variant: Variant) -> None:
    check_protocol(GFLAPPNP(variant=variant, **SMALL), small(name))


@pytest.mark.parametrize(
    "protocol", [APPNP(hidden=8, rounds=3), GraphSAGE(hidden=8, rounds=3), FedMLP(hidden=8, rounds=3)]
)
def test_baselines_conform(protocol: FederatedProtocol) -> None:
    check_protocol(protocol, small())
    if not isinstance(protocol, FedMLP):
        check_protocol(protocol, example_graph())


def test_independent_mlps_do_not_influence_each_other() -> None:
    graph = small("csbm-sc")
    protocol = FedMLP(federated=False, hidden=8, rounds=2, batch_size=0, choice="last")
    before, channel = train(protocol, graph)
    x = graph.x.clone()
    x[1:] = torch.randn(x[1:].shape, generator=derive(9, "other"))
    after, _ = train(protocol, FederatedGraph(**{**vars(graph), "x": x}))
    for name, weight in before.weights.items():
        assert torch.equal(weight[0], after.weights[name][0]) and not torch.equal(weight[1], after.weights[name][1])
    assert int(channel.bytes_up.sum()) == 0


def test_everybody_within_reach_is_exposed() -> None:
    graph = small()
    assert GFLAPPNP().exposed(graph, Observer(parties=(SERVER,))).tolist() == list(range(30))
    assert GFLAPPNP().exposed(graph, Observer(parties=(4,))).tolist() == [k for k in range(30) if k != 4]
    near = GFLAPPNP(propagation_steps=1).exposed(graph, Observer(parties=(4,)))
    assert near.tolist() == graph.client(4).remote_nodes.tolist()


@pytest.mark.parametrize(
    "fields", [{"local_steps": 0}, {"alpha": 0.0}, {"alpha": 1.0}, {"variant": "v3"}, {"rounds": 0}, {"task": "x"}]
)
def test_meaningless_settings_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FglauditError, match=r"got|unknown"):
        GFLAPPNP(**fields)


@pytest.mark.parametrize("task", ["snc", "sc"])
def test_a_task_needs_its_samples(task: Task) -> None:
    with pytest.raises(FglauditError, match=f"task '{task}' needs several samples per node.*csbm-{task}"):
        GFLAPPNP(task=task).check(small())
    GFLAPPNP(task=task).check(small(f"csbm-{task}"))


def test_disconnected_graphs_and_shared_clients_are_refused() -> None:
    graph = small()
    edges = graph.edge_index[:, (graph.edge_index != 7).all(0)]
    with pytest.raises(FglauditError, match=r"2 components.*largest"):
        GFLAPPNP().check(FederatedGraph(**{**vars(graph), "edge_index": canonical_edges(edges, 30)}))
    with pytest.raises(FglauditError, match="per-node"):
        GFLAPPNP().check(example_graph())
    with pytest.raises(FglauditError, match="training samples"):
        none = tuple(torch.zeros(1, dtype=torch.bool) for _ in range(30))
        GFLAPPNP().check(FederatedGraph(**{**vars(graph), "train": none}))
    FedMLP().check(FederatedGraph(**{**vars(graph), "edge_index": canonical_edges(edges, 30)}))


def test_training_that_overflows_is_an_error() -> None:
    with pytest.raises(FglauditError, match="learning_rate"):
        train(GFLAPPNP(hidden=8, rounds=30, local_steps=10, learning_rate=1e6, choice="last"), small())


def test_the_codes_batches_are_passes_over_all_rows() -> None:
    present = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    weights = LocalSteps(3, 0.1, batch_size=2, passes=True).batches(present, derive(0, "batches"))
    assert weights.shape == (9, 2, 7)  # three batches of two a pass; the seventh row is left out
    for passed in weights.view(3, 3, 2, 7):
        assert passed[:, 0].sum(1).tolist() == [1.0, 1.0, 1.0] and int((passed[:, 0].sum(0) > 0).sum()) == 6
        assert passed[:, 1].sum(1).tolist() == [1.0, 1.0, 0.0] and passed[:, 1].sum(0).tolist() == [0.5] * 4 + [0.0] * 3


def test_the_code_shares_means_over_training_samples() -> None:
    graph = small("csbm-sc")
    protocol = GFLAPPNP(**SMALL, source="code", variant="v2", batch_size=1)
    view = record(protocol, graph).view(Observer(parties=(SERVER,)))
    sent = next(iter(view.messages.of(HiddenRepresentations))).payload
    model = next(iter(view.messages.of(ModelUpdate))).payload
    assert isinstance(sent, HiddenRepresentations) and isinstance(model, ModelUpdate)
    first, second = (w[0] for w in unflatten(model.vector[:1], gcn_layout(12, 8, graph.num_classes, 2)).values())
    means = torch.stack(
        [graph.x[k][graph.train[k][0]].float().matmul(first).relu().matmul(second).mean(0) for k in range(12)]
    )
    torch.testing.assert_close(sent.values, means, rtol=1e-4, atol=1e-5)
    reason = JacobianReading().unsupported(
        record(GFLAPPNP(**SMALL, source="code"), graph).view(Observer(parties=(SERVER,)))
    )
    assert reason is not None and "training samples alone" in reason


def test_the_code_trains_on_graphs_in_parts() -> None:
    whole = small()
    apart = per_node(
        Graph(
            whole.x,
            whole.y,
            whole.edge_index[:, :0],
            "apart",
            *(torch.cat(m).flatten() for m in (whole.train, whole.val, whole.test)),
        )
    )
    with pytest.raises(FglauditError, match="connected"):
        train(GFLAPPNP(**SMALL), apart)
    trained, _ = train(GFLAPPNP(**SMALL, source="code"), apart)
    assert bool(trained.accuracy_global.isfinite().all())
