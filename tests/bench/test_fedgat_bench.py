"""FedGAT's long measurements: Theorem 2's bound, defenses."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch

from fglaudit.nn.chebyshev import attention_function, attention_series
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.testing import example_graph

ROOT = Path(__file__).resolve().parents[2]


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import from the repository's top level, which is not on the path when pytest runs as a command of its own."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module(name)


@pytest.mark.parametrize("degree", [4, 16, 64])
def test_theorem_2_holds(degree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    theory = module("bench.fedgat.theory", monkeypatch)
    assert FedGAT().domain == theory.DOMAIN
    x = torch.linspace(-theory.DOMAIN, theory.DOMAIN, 2001, dtype=torch.float64)
    assert (attention_series(degree, theory.DOMAIN)(x) - attention_function(x)).abs().max() < theory.theorem_2(degree)


def test_figure_of_the_theorems(monkeypatch: pytest.MonkeyPatch) -> None:
    """One panel per theorem; a negative bound (its condition fails) is left out, not drawn as a number."""
    theory, figure = module("bench.fedgat.theory", monkeypatch), module("bench.fedgat.theory_figure", monkeypatch)
    rows = [
        {"model": model, "degree": str(p), **dict.fromkeys(theory.VALUES, "0.1")}
        for model in theory.MODELS
        for p in theory.DEGREES
    ]
    rows[0]["theorem_5_ratio"] = "-1"
    tree = ElementTree.fromstring(figure.draw(rows))
    lines = [line.get("points", "").split() for line in tree.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == 2 * len(figure.PANELS) * len(theory.MODELS)
    assert sorted({len(points) for points in lines}) == [len(theory.DEGREES) - 1, len(theory.DEGREES)]


def test_every_measured_defense_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = module("bench.fedgat.defenses", monkeypatch)
    graph = example_graph()
    context = FedGAT(variant="vector").context(graph)
    assert [defense.unsupported(context) for defense in bench.DEFENSES] == [None] * len(bench.DEFENSES)
    assert len({(type(d).name, bench.arguments(d)) for d in bench.DEFENSES}) == len(bench.DEFENSES)
