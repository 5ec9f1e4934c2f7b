"""The embedded block model has the statistics it promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fglaudit.datasets.csbm import draw
from fglaudit.datasets.csbm_options import CORA_LIKE, CsbmOptions
from fglaudit.errors import FglauditError
from fglaudit.graph import FeatureKind, Graph, canonical_edges


def homophily(graph: Graph) -> float:
    row, col = graph.edge_index
    return float((graph.y[row] == graph.y[col]).double().mean())


@pytest.fixture(scope="module")
def cora_like() -> Graph:
    return draw(CORA_LIKE, "csbm-cora")


def test_cora_like_counts(cora_like: Graph) -> None:
    assert cora_like.x.shape == (2708, 1433)
    assert cora_like.edge_index.shape[1] == 2 * 5278
    assert torch.bincount(cora_like.y).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert homophily(cora_like) == pytest.approx(0.81, abs=1e-3)
    assert FeatureKind.of(cora_like.x) is FeatureKind.BINARY
    words = cora_like.x.sum(1)
    assert float(words.mean()) == pytest.approx(18.2, abs=0.5)
    assert words.min() >= 1


def test_cora_like_degrees_are_heavy_tailed(cora_like: Graph) -> None:
    degrees = cora_like.degrees()
    assert degrees.min() >= 1
    assert 120 <= int(degrees.max()) <= 220  # Cora: 168
    assert 0.5 <= float((degrees <= 3).double().mean()) <= 0.75  # Cora: 0.60
    assert int(degrees.median()) == 3  # Cora: 3


def test_cora_like_public_split(cora_like: Graph) -> None:
    assert cora_like.train is not None and cora_like.val is not None and cora_like.test is not None
    assert torch.bincount(cora_like.y[cora_like.train]).tolist() == [20] * 7
    assert (int(cora_like.val.sum()), int(cora_like.test.sum())) == (500, 1000)
    assert not bool(((cora_like.train.int() + cora_like.val.int() + cora_like.test.int()) > 1).any())


def test_words_depend_on_the_class(cora_like: Graph) -> None:
    """A naive Bayes reader of the training rows alone beats chance by far and is far from perfect, as on Cora."""
    assert cora_like.train is not None and cora_like.test is not None
    classes = torch.nn.functional.one_hot(cora_like.y).float()
    rate = (classes[cora_like.train].T @ cora_like.x[cora_like.train] + 0.1) / 20.2
    scores = cora_like.x @ (rate / (1 - rate)).log().T + (1 - rate).log().sum(1)
    accuracy = float((scores.argmax(1) == cora_like.y)[cora_like.test].double().mean())
    assert 0.4 < accuracy < 0.7


def test_equal_options_give_equal_graphs_and_seeds_differ(cora_like: Graph) -> None:
    again = draw(CORA_LIKE)
    assert torch.equal(again.x, cora_like.x) and torch.equal(again.edge_index, cora_like.edge_index)
    other = draw(replace(CORA_LIKE, seed=1))
    assert not torch.equal(other.x, cora_like.x)
    assert other.edge_index.shape == cora_like.edge_index.shape and not torch.equal(
        other.edge_index, cora_like.edge_index
    )


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(20, 200),
    classes=st.integers(2, 5),
    homophily_wanted=st.floats(0, 1),
    exponent=st.floats(0, 0.5),
    features=st.sampled_from(["binary", "gaussian"]),
    seed=st.integers(0, 10),
)
def test_general_model_meets_its_options(
    nodes: int,
    classes: int,
    homophily_wanted: float,
    exponent: float,
    features: Literal["binary", "gaussian"],
    seed: int,
) -> None:
    options = CsbmOptions(
        nodes=nodes,
        edges=nodes // 2,
        classes=classes,
        dimensions=30,
        ones_per_row=5,
        homophily=homophily_wanted,
        degree_exponent=exponent,
        features=features,
        seed=seed,
    )
    graph = draw(options)
    assert graph.edge_index.shape[1] == 2 * options.edges
    assert torch.equal(graph.edge_index, canonical_edges(graph.edge_index, nodes))
    assert homophily(graph) == pytest.approx(options.edge_counts()[0] / options.edges)
    assert graph.num_classes == classes and graph.x.shape == (nodes, 30)
    assert graph.train is not None and set(graph.y[graph.train].tolist()) == set(range(classes))


def test_gaussian_signal_separates_classes() -> None:
    far = draw(CsbmOptions(nodes=300, edges=600, classes=2, dimensions=50, features="gaussian", signal=5.0))
    centres = torch.stack([far.x[far.y == c].mean(0) for c in range(2)])
    nearest = torch.cdist(far.x, centres).argmin(1)
    assert bool((nearest == far.y).all())
    assert FeatureKind.of(far.x) is FeatureKind.REAL


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"homophily": 1.5}, "homophily"),
        ({"classes": 1}, "2 classes"),
        ({"class_sizes": (1, 2)}, "class_sizes"),
        ({"edges": 10**6}, "lower edges"),
        ({"features": "binry"}, "did you mean 'binary'"),
        ({"ones_per_row": 1000.0}, "ones_per_row"),
        ({"border": 0.9}, "lower border"),
        ({"signal": -1.0}, "signal"),
    ],
)
def test_bad_options_name_rule_and_fix(change: dict[str, object], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        replace(CsbmOptions(), **change)  # type: ignore[arg-type]
