"""A protocol's defaults can hang on the data set; a suite that gives one of these fields decides on all of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fglaudit import audit, registry
from fglaudit.datasets.catalog import DESCRIPTIONS
from fglaudit.errors import FglauditError
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.suite.suite import Suite, resolve

ADAM = {"optimizer": "adam", "learning_rate": 0.01}


@pytest.fixture(autouse=True)
def _defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedGCN, "on_datasets", {"csbm-cora": ADAM})


def _suite(*protocols: Any, datasets: tuple[str, ...] = ("csbm-cora", "csbm")) -> Suite:
    data = {
        "name": "defaults",
        "datasets": list(datasets),
        "partitions": [{"scheme": "dirichlet", "clients": 4, "beta": 1.0}],
        "protocols": list(protocols),
        "defenses": ["none"],
        "observers": [{"parties": ["server"]}],
        "attacks": "all",
        "seeds": [0],
    }
    return resolve(data, "defaults")


def _trained_with(suite: Suite) -> list[tuple[str, str, float]]:
    return [(c.dataset.name, c.protocol.optimizer, c.protocol.learning_rate) for c in suite.cells()]  # type: ignore[attr-defined]


def test_open_fields_have_the_default_of_the_data_set() -> None:
    assert _trained_with(_suite("fedgcn")) == [("csbm-cora", "adam", 0.01), ("csbm", "sgd", 0.5)]


def test_one_given_field_decides_on_all() -> None:
    rated = {"name": "fedgcn", "learning_rate": 0.1}
    assert _trained_with(_suite(rated)) == [("csbm-cora", "sgd", 0.1), ("csbm", "sgd", 0.1)]
    assert not _suite(rated).left_open


def test_a_given_default_is_kept_beside_an_open_one() -> None:
    as_written = {"name": "fedgcn", "optimizer": "sgd"}
    suite = _suite("fedgcn", as_written, datasets=("csbm-cora",))
    assert _trained_with(suite) == [("csbm-cora", "adam", 0.01), ("csbm-cora", "sgd", 0.5)]
    assert [cell.hash() for cell in resolve(suite.resolved(), "again").cells()] == [c.hash() for c in suite.cells()]


@pytest.mark.parametrize("given", [{}, ADAM], ids=["where no default differs", "with the default written out"])
def test_protocols_that_are_the_same_on_a_data_set_are_refused(given: dict[str, Any]) -> None:
    datasets = ("csbm-cora",) if given else ("csbm",)
    with pytest.raises(FglauditError, match=rf"protocols\[1\] repeats protocols\[0\] on {datasets[0]}"):
        _suite("fedgcn", {"name": "fedgcn", "optimizer": "sgd", **given}, datasets=datasets)


def test_the_suite_of_a_run_leaves_open_what_was_open() -> None:
    suite = _suite("fedgcn", {"name": "fedgcn", "hops": 1, "optimizer": "sgd"}, "label-propagation")
    again = resolve(suite.resolved(), "suite.yaml")
    assert [cell.hash() for cell in again.cells()] == [cell.hash() for cell in suite.cells()]
    assert again.resolved() == suite.resolved()
    assert "optimizer" not in suite.resolved()["protocols"][0]


def test_what_differs_is_said_before_the_run() -> None:
    suite = _suite("fedgcn", "label-propagation")
    [note] = suite.default_notes()
    assert "csbm-cora" in note and "optimizer: adam, learning_rate: 0.01" in note
    given = _suite({"name": "fedgcn", "optimizer": "sgd"})
    assert not list(given.default_notes())


def test_audits_from_python_have_them_too() -> None:
    few: dict[str, Any] = {"name": "fedgcn", "rounds": 1, "hidden": 2}
    options: dict[str, Any] = {"observers": ["server"], "clients": 3, "empirical": False}
    by_name = audit("csbm-cora", protocol=few, **options)
    assert "optimizer=adam" in by_name.records[0].findings[0].protocol_args
    own = audit("csbm-cora", protocol=FedGCN(rounds=1, hidden=2), **options)
    assert "optimizer" not in own.records[0].findings[0].protocol_args


def test_a_field_that_the_protocol_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedGCN, "on_datasets", {"csbm-cora": {"momentum": 0.9}})
    with pytest.raises(FglauditError, match="fedgcn has no momentum"):
        _suite("fedgcn")


@pytest.mark.parametrize("name", registry.names("protocol"))
def test_defaults_of_data_sets_are_of_fields_and_data_sets_that_there_are(name: str) -> None:
    cls = registry.load("protocol", name)
    fields = {f.name for f in dataclasses.fields(cls)}
    for dataset, changed in cls.on_datasets.items():
        assert dataset in DESCRIPTIONS and set(changed) <= fields
