"""FedPer and GCFL+ over GraphSAGE: what is sent, what stays at home, who is averaged with whom."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedper_sage import FedPerSage
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.baselines.update_clusters import Clusters, Parting, minimum_cut, warped_distances
from fglaudit.rng import derive
from fglaudit.testing import Run, check_protocol, example_graph, record
from fglaudit.view import Observer

SMALL: dict[str, Any] = {"rounds": 3, "hidden": 8}


def models(run: Run, *, up: bool) -> list[Tensor]:
    """Return what was sent in every round [K, D], by client."""
    found = []
    for batch in run.view(Observer(parties=(SERVER,))).messages.of(ModelUpdate):
        sent = (batch.senders != SERVER) if up else (batch.senders == SERVER)
        if bool(sent.any()):
            assert isinstance(batch.payload, ModelUpdate)
            found.append(batch.payload.vector[sent])
    return found


def test_fedper_sends_the_base_alone_and_averages_it_by_training_nodes() -> None:
    graph = example_graph()
    run = record(FedPerSage(**SMALL), graph)
    view = run.view(Observer(parties=(SERVER,)))
    assert list(view.public.layout) == ["input.weight", "input.bias"]
    width = sum(math.prod(shape) for shape in view.public.layout.values())
    assert width == (graph.num_features + 1) * 2 * 8
    up, down = models(run, up=True), models(run, up=False)
    sizes = torch.tensor([float(train.sum()) for train in graph.train])
    assert bool((sizes > 0).all())
    for sent, returned in zip(up, down[1:], strict=True):
        assert sent.shape == (graph.num_clients, width)
        torch.testing.assert_close(returned[0], (sizes / sizes.sum()) @ sent)


def test_heads_stay_at_home_and_differ() -> None:
    weights = record(FedPerSage(**SMALL), example_graph()).trained.weights
    base, head = weights["input.weight"], weights["layers.1.weight"]
    assert torch.equal(base[0], base[1])
    assert not torch.equal(head[0], head[1])


@pytest.mark.parametrize("kind", [FedAvgSage, GCFLSage])
def test_local_models_are_tested_before_the_average_and_received_ones_after_it(kind: type[FedAvgSage]) -> None:
    graph = example_graph()
    own, average = (record(kind(rounds=1, hidden=8, tested=which), graph) for which in ("local", "received"))
    torch.testing.assert_close(models(own, up=True), models(average, up=True))
    uploaded = models(own, up=True)[0] + (models(own, up=False)[0] if kind is GCFLSage else 0)  # GCFL+ sends changes
    bias = own.trained.weights["input.bias"]
    width = math.prod(own.trained.weights["input.weight"].shape[1:])
    torch.testing.assert_close(bias, uploaded[:, width : width + bias.shape[1]])
    assert not torch.equal(bias[0], bias[1])
    torch.testing.assert_close(
        average.trained.weights["input.bias"], models(average, up=False)[1][:, width : width + bias.shape[1]]
    )


def test_an_unknown_model_to_test_is_refused() -> None:
    with pytest.raises(FglauditError, match="unknown tested"):
        FedAvgSage(tested="global")  # type: ignore[arg-type]


@pytest.mark.parametrize("base", [0, 2])
def test_fedper_shares_some_layers_and_keeps_some(base: int) -> None:
    with pytest.raises(FglauditError, match=f"keeps at least one at home; got base_layers {base}"):
        FedPerSage(base_layers=base)


def warp(one: list[float], other: list[float]) -> float:
    """Return the least sum of squared differences along a monotone path, by trying all."""
    cost = (one[-1] - other[-1]) ** 2
    if len(one) == len(other) == 1:
        return cost
    shorter = [(one[:-1], other), (one, other[:-1]), (one[:-1], other[:-1])]
    return cost + min(warp(a, b) for a, b in shorter if a and b)


def test_warped_distances_are_the_best_paths() -> None:
    sequences = torch.rand(4, 5, generator=derive(0), dtype=torch.float64)
    expected = [[math.sqrt(warp(a, b)) for b in sequences.tolist()] for a in sequences.tolist()]
    torch.testing.assert_close(warped_distances(sequences), torch.tensor(expected, dtype=torch.float64))


def test_minimum_cut_is_the_best_of_all() -> None:
    half = torch.rand(5, 5, generator=derive(1), dtype=torch.float64)
    distances = (half + half.T).fill_diagonal_(0)
    likeness = distances.max() - distances

    def weight(side: tuple[int, ...]) -> float:
        rest = [index for index in range(5) if index not in side]
        return float(likeness[list(side)][:, rest].sum())

    best = min(weight(side) for size in (1, 2) for side in itertools.combinations(range(5), size))
    one, other = minimum_cut(distances)
    assert sorted([*one, *other]) == list(range(5))
    assert weight(tuple(one)) == pytest.approx(best)


def test_clients_that_pull_in_different_directions_are_parted() -> None:
    """Two groups with opposite updates of different length: the mean is small, the norms are alike within a group."""
    clusters = Clusters.of(Parting(0.3, 0.5, 5), 6)
    direction = torch.tensor([[1.0, 0.0]])
    pulls = torch.cat([direction.expand(3, -1), -0.8 * direction.expand(3, -1)])
    alike = direction.expand(6, -1)
    for round in range(1, 21):  # not before the warm-up is over
        assert not clusters.observe(round, pulls)
    assert not clusters.observe(21, alike)  # the mean is large
    assert clusters.observe(22, pulls)
    assert sorted(clusters.members) == [[0, 1, 2], [3, 4, 5]]
    sizes = torch.tensor([1.0, 1.0, 2.0, 4.0, 1.0, 0.0])
    weights = clusters.weights(sizes)
    torch.testing.assert_close(weights[0], torch.tensor([0.25, 0.25, 0.5, 0, 0, 0]))
    torch.testing.assert_close(weights[5], torch.tensor([0, 0, 0, 0.8, 0.2, 0]))


def test_gcfl_without_a_parting_is_fedavg() -> None:
    graph = example_graph()
    alone = models(record(FedAvgSage(**SMALL), graph), up=False)
    together = models(record(GCFLSage(**SMALL), graph), up=False)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_parted_clients_receive_different_models() -> None:
    graph = example_graph(nodes=160, clients=4)
    protocol = GCFLSage(rounds=24, hidden=8, largest_mean=1e9, smallest_norm=0.0)
    run = record(protocol, graph)
    assert any("clusters of clients after round 21" in note for note in run.trained.notes)
    down = models(run, up=False)
    same = [bool((one == one[0]).all()) for one in down]
    assert all(same[:21])
    assert not any(same[21:])


@pytest.mark.parametrize(("field", "value"), [("largest_mean", -1.0), ("smallest_norm", float("nan")), ("sequence", 0)])
def test_bad_thresholds(field: str, value: float) -> None:
    with pytest.raises(FglauditError, match=field):
        GCFLSage(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [FedPerSage(rounds=2, hidden=8), GCFLSage(rounds=2, hidden=8)])
def test_protocols(protocol: FedAvgSage) -> None:
    check_protocol(protocol, example_graph())
