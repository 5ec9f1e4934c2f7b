"""Suites: strict keys, YAML traps, early errors that name the place, the nearest known name and the fix."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.execution.display import cell_label
from fglaudit.observers import ObserverSpec
from fglaudit.parties.crafted_weights import CraftedWeights
from fglaudit.suite.cell import identity
from fglaudit.suite.embedded import embedded
from fglaudit.suite.overrides import load_suite, parse_seeds
from fglaudit.suite.reading import parse
from fglaudit.suite.suite import Suite, resolve

BASE = """
name: small
datasets: [{name: csbm-cora}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
"""


def suite(**changes: Any) -> Suite:
    return resolve({**parse(BASE, "small"), **changes}, "small")


def refusal(**changes: Any) -> str:
    with pytest.raises(FglauditError) as caught:
        suite(**changes)
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(embedded()))
def test_embedded_suites_resolve(name: str) -> None:
    cells = load_suite(name).cells()
    assert len({cell.hash() for cell in cells}) == len(cells) > 0


def test_grid_order_and_defaults() -> None:
    result = suite(
        protocols=[{"name": "fedgcn", "hops": 0}, {"name": "fedgcn", "hops": 1}],
        defenses=["none", "drop-singletons"],
        seeds=[3, 1],
    )
    seen = [(c.protocol.hops, c.defense.name, c.seed) for c in result.cells()]  # type: ignore[attr-defined]
    assert seen == [(h, d, s) for h in (0, 1) for d in ("none", "drop-singletons") for s in (3, 1)]
    assert [a.name for a in result.attacks] == registry.names("attack")
    assert result.server == (None,) and result.record == "needed"


def test_the_column_server_says_how_the_cell_is_trained() -> None:
    """It was a field of its own, and a copy of a cell with another behaviour kept the old word."""
    cell = suite().cells()[0]
    assert identity(cell)["server"] == cell.description()["server"] == "honest"
    active = dataclasses.replace(cell, behaviour=CraftedWeights())
    assert identity(active)["server"].startswith("crafted-weights") and active.hash() != cell.hash()


def test_resolved_suite_reads_back_to_the_same_cells() -> None:
    first = suite(
        defenses=[{"name": "gaussian", "epsilon": 8}, "none"],
        observers=[{"parties": ["server", "client:each"], "degrees": False, "auxiliary": 0.1}],
        datasets=[{"name": "csbm", "csbm": {"nodes": 200, "edges": 400}}],
    )
    again = resolve(parse(yaml.safe_dump(first.resolved()), "again"), "again")
    assert [c.hash() for c in again.cells()] == [c.hash() for c in first.cells()]


def test_yaml_on_is_a_key_and_exponents_are_numbers() -> None:
    text = BASE + "defenses: [{name: gaussian, on: NeighborSums, delta: 1e-5, epsilon: 8}]\n"
    defense = resolve(parse(text, "x"), "x").defenses[0]
    assert (defense.on, defense.delta, defense.epsilon) == ("NeighborSums", 1e-5, 8.0)  # type: ignore[attr-defined]
    assert isinstance(defense.epsilon, float)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"atacks": "all"}, ["'atacks'", "did you mean 'attacks'"]),
        ({"observers": [{"partys": ["server"]}]}, ["observers[0]", "'partys'", "did you mean 'parties'"]),
        ({"protocols": [{"name": "fedgnc"}]}, ["protocols[0]", "'fedgnc'", "did you mean 'fedgcn'"]),
        ({"protocols": [{"name": "fedgcn", "hopps": 2}]}, ["protocols[0]", "'hopps'", "did you mean 'hops'"]),
        ({"protocols": [{"name": "fedgcn", "rounds": "abc"}]}, ["protocols[0]", "'rounds'", "a whole number", "'abc'"]),
        ({"protocols": [{"name": "fedgcn", "rounds": True}]}, ["'rounds'", "True"]),
        ({"protocols": [{"name": "fedgcn", "learning_rate": float("nan")}]}, ["'learning_rate'", "nan"]),
        ({"protocols": [{"hops": 1}]}, ["protocols[0]", "needs a name", "fedgcn"]),
        ({"protocols": []}, ["protocols", "at least 1"]),
        ({"protocols": "fedgcn"}, ["protocols", "'fedgcn'", "write e.g. protocols:"]),
        ({"protocols": [3]}, ["protocols[0]", "3"]),
        ({"attacks": ["subset-summ"]}, ["attacks[0]", "'subset-summ'", "did you mean"]),
        ({"attacks": []}, ["attacks: [subset-sum"]),
        ({"observers": ["server"]}, ["observers[0]", "'server'", "write e.g. observers: [{parties"]),
        ({"observers": [{"parties": ["server"], "auxiliary": 10}]}, ["auxiliary: 0.1, for one row in ten"]),
        ({"protocols": [{"name": "FedGCN"}]}, ["protocols[0]", "did you mean 'fedgcn'"]),
        ({"attacks": ["subset_sum"]}, ["attacks[0]", "did you mean 'subset-sum'"]),
        ({"attacks": "some"}, ["attacks", "'some'"]),
        ({"attacks": ["all"]}, ["attacks[0]", "write attacks: all without brackets"]),
        ({"defenses": [{"name": "gausian"}]}, ["defenses[0]", "did you mean 'gaussian'"]),
        ({"defenses": [{"name": "gaussian", "epsilon": 0}]}, ["defenses[0]", "epsilon", "0"]),
        ({"defenses": [{"name": "gaussian", "epsilon": -1}]}, ["defenses[0]", "epsilon", "-1"]),
        ({"datasets": [{"name": "coar"}]}, ["datasets[0]", "did you mean 'cora'"]),
        ({"datasets": [{"name": "cora", "rot": "x"}]}, ["datasets[0]", "did you mean 'root'"]),
        ({"datasets": [{"name": "csbm", "csbm": {"node": 5}}]}, ["datasets[0]", "did you mean 'nodes'"]),
        (
            {"partitions": [{"scheme": "dirichlett", "clients": 3, "beta": 1}]},
            ["partitions[0]", "did you mean 'dirichlet'"],
        ),
        ({"partitions": [{"clients": 3}]}, ["needs a value for scheme; write e.g. scheme: dirichlet, clients: 10"]),
        ({"partitions": [{"scheme": "dirichlet", "clients": 3, "beta": 0}]}, ["partitions[0]", "beta", "0"]),
        ({"partitions": [{"scheme": "dirichlet", "clients": 0, "beta": 1}]}, ["partitions[0]", "clients", "0"]),
        (
            {"partitions": [{"scheme": "overlapping", "clients": 10}]},
            ["protocols[0]", "disjoint", "overlapping", "use scheme"],
        ),
        ({"server": ["curious"]}, ["server[0]", "'curious'", "honest"]),
        ({"server": [{"name": "crafted-weigths"}]}, ["server[0]", "did you mean 'crafted-weights'"]),
        ({"server": [{"name": "honest", "rounds": 3}]}, ["server[0]", "no fields", "rounds"]),
        ({"server": [{"rounds": 3}]}, ["server[0]", "needs a name"]),
        ({"server": [{"name": "crafted-weights", "rounds": 0}]}, ["server[0]", "rounds >= 1", "0"]),
        ({"server": [{"name": "insert-edges", "clients": 0}]}, ["server[0]", "did you mean 'client'"]),
        ({"server": ["honest", {"name": "honest"}]}, ["server", "differ"]),
        ({"server": [{"nam": "insert-edges"}]}, ["server[0]", "did you mean 'name'"]),
        ({"server": [{"name": "insert-edges", "client": 3}]}, ["server[0]", "at least 4 clients", "client:2"]),
        ({"server": [{"name": "repeat-pretraining", "clients": 4}]}, ["server[0]", "at least 4 clients"]),
        ({"server": [{"name": "crafted-weights", "rounds": 2}]}, ["server[0]", "at least 3 rounds", "has 2"]),
        ({"server": [{"name": "repeat-models", "rounds": 3}]}, ["server[0]", "at least 3 rounds", "has 2"]),
        (
            {"defenses": [{"name": "gaussian", "unit": "row"}]},
            ["defenses[0]", "'gaussian'", "unknown unit 'row'", "node"],
        ),
        ({"defenses": [{"name": "clipped-noise", "unit": "nod"}]}, ["defenses[0]", "did you mean 'node'"]),
        (
            {"defenses": [{"name": "joint-noise", "unit": "row"}]},
            ["defenses[0]", "'joint-noise'", "unknown unit 'row'"],
        ),
        ({"protocols": [{"name": "appnp", "choice": "best"}]}, ["protocols[0]", "unknown choice 'best'", "last"]),
        ({"protocols": [{"name": "graphsage", "choice": "best"}]}, ["protocols[0]", "unknown choice 'best'"]),
        ({"protocols": [{"name": "fedpub", "hidden": -1}]}, ["protocols[0]", "hidden >= 1", "-1"]),
        ({"attacks": [{"nam": "subset-sum"}]}, ["attacks[0]", "an attack needs a name", "did you mean 'name'"]),
        ({"record": "some"}, ["record", "'some'"]),
        ({"seeds": [0, 0]}, ["seeds", "differ"]),
        ({"seeds": [-1]}, ["seeds", "-1"]),
        ({"seeds": ["a"]}, ["seeds[0]", "'a'"]),
        ({"name": "../up"}, ["name", "'../up'"]),
        ({"defenses": ["none", {"name": "none"}]}, ["defenses[1] repeats defenses[0]"]),
        (
            {"attacks": [{"name": "maximum-a-posteriori", "rounds": 4}, {"name": "maximum-a-posteriori", "rounds": 9}]},
            ["attacks[1]", "'maximum-a-posteriori' is attacks[0] already", "suite of its own"],
        ),
        ({"datasets": [{"name": "cora"}, {"name": "cora", "root": "x"}]}, ["datasets[1] repeats datasets[0]"]),
        ({"observers": [{"parties": ["client:3"]}]}, ["observers[0]", "'client:3'", "client:0 ... client:2"]),
        ({"observers": [{"parties": ["cleint:0"]}]}, ["observers[0]", "'cleint:0'"]),
        ({"observers": [{"parties": ["server", "server"]}]}, ["observers[0]", "repeated"]),
        ({"observers": [{"parties": ["wire", "server"]}]}, ["observers[0]", "wire"]),
        ({"observers": [{"parties": ["client:each", "client:0"]}]}, ["observers[0]", "client:each"]),
        ({"observers": [{"parties": []}]}, ["observers[0]"]),
        ({"observers": [{"parties": ["server"]}, {"parties": ["server"]}]}, ["observers[1] repeats observers[0]"]),
        ({"observers": [{"parties": ["server"], "auxiliary": 1.5}]}, ["observers[0].auxiliary", "1.5"]),
        ({"observers": [{"parties": ["server"], "topology": "yes"}]}, ["observers[0].topology", "'yes'"]),
    ],
)
def test_refusals_say_where_what_and_the_fix(changes: dict[str, Any], words: list[str]) -> None:
    message = refusal(**changes)
    assert all(word in message for word in ["suite small", *words]), message
    assert "\n" not in message


def test_missing_key_shows_how_to_write_it() -> None:
    data = parse(BASE, "small")
    del data["datasets"]
    with pytest.raises(FglauditError, match=r"datasets is required; write e\.g\. datasets: \["):
        resolve(data, "small")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nname: b\n", ["line 2", "'name' is repeated"]),
        ("name: [a\n", ["valid YAML", "line"]),
        ("- a\n", ["mapping"]),
        ("", ["mapping", "is empty; write e.g. name: my-suite"]),
        ("x: !!python/object/apply:os.getcwd []\n", ["valid YAML"]),
    ],
)
def test_text_that_is_no_suite(text: str, words: list[str]) -> None:
    with pytest.raises(FglauditError) as caught:
        parse(text, "bad.yaml")
    assert all(word in str(caught.value) for word in ["bad.yaml", *words])


def test_server_with_each_client_and_colluding_clients_are_observers() -> None:
    parties = [["server", "client:each"], ["client:0", "client:2"], ["wire"]]
    assert suite(observers=[{"parties": p} for p in parties]).observers == tuple(
        ObserverSpec(parties=tuple(p)) for p in parties
    )


def test_unknown_suite_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FglauditError, match="did you mean 'quickstart'"):
        load_suite("quikstart")
    with pytest.raises(FglauditError, match=r"there is no file .*none\.yaml"):
        load_suite(str(tmp_path / "none.yaml"))


def test_command_line_replaces_data_sets_and_seeds(tmp_path: Path) -> None:
    result = load_suite("quickstart", datasets=["cora", "mine.npz"], root=tmp_path, seeds="0-2,7")
    assert [(d.name, d.path, d.root) for d in result.datasets] == [
        ("cora", None, str(tmp_path)),
        ("npz", "mine.npz", str(tmp_path)),
    ]
    assert result.seeds == (0, 1, 2, 7)
    for bad in ("", "a", "3-1", "1,,2", "-1"):
        with pytest.raises(FglauditError, match="--seeds"):
            parse_seeds(bad)
    with pytest.raises(FglauditError, match="--root must be a folder"):
        load_suite("quickstart", root=tmp_path / "none")


def test_a_cell_is_named_by_its_content_and_not_by_where_the_data_lie() -> None:
    one, two = (suite(datasets=[{"name": "cora", "root": root}]).cells()[0].hash() for root in ("a", "b"))
    other = suite(datasets=[{"name": "citeseer", "root": "a"}]).cells()[0].hash()
    assert one == two != other


def test_all_attacks_are_those_that_read_what_the_protocol_sends() -> None:
    data = {
        "name": "x",
        "datasets": [{"name": "csbm-cora"}],
        "partitions": [{"scheme": "metis"}],
        "observers": [{"parties": ["server"]}],
    }
    suite = resolve({**data, "protocols": [{"name": "fedgcn"}, {"name": "gcn"}]}, "test")
    fedgcn, gcn = suite.cells()
    assert {type(a).name for a in fedgcn.attacks} >= {"subset-sum", "server-partial-sums"}
    assert not {type(a).name for a in fedgcn.attacks} & {"raw-features", "joint-diagonalisation"}
    # Nothing fits, so every attack says why; those that run on request alone were not asked.
    assert gcn.attacks == tuple(attack for attack in suite.attacks if not type(attack).on_request)
    listed = resolve({**data, "protocols": [{"name": "fedgcn"}], "attacks": ["raw-features"]}, "test")
    assert [type(a).name for a in listed.cells()[0].attacks] == ["raw-features"]  # what was asked for is never dropped
    assert suite.resolved()["attacks"] == "all"


def test_graphs_of_the_user_are_told_apart_by_their_files(tmp_path: Path) -> None:
    """All of them are ``npz`` in a suite: lines of progress and messages name the file."""
    for name in ("wards", "clinics"):
        np.savez(
            tmp_path / f"{name}.npz", x=np.eye(4, dtype=np.float32), y=np.array([0, 1, 0, 1]), edge_index=[[0], [1]]
        )
    paths = [str(tmp_path / f"{name}.npz") for name in ("wards", "clinics")]
    cells = suite(datasets=[{"name": "npz", "path": path, "split": "random"} for path in paths]).cells()
    assert {cell_label(cell).split("(")[0] for cell in cells} == {"wards", "clinics"}
    assert cells[0].dataset.load().name == "wards"


def test_two_graphs_of_one_name_differ_in_a_column_of_the_tables(tmp_path: Path) -> None:
    for folder, nodes in (("old", 4), ("new", 5)):
        (tmp_path / folder).mkdir()
        edges = np.array([[0, 1], [1, 2]])
        np.savez(tmp_path / folder / "mine.npz", x=np.eye(nodes), y=np.arange(nodes), edge_index=edges)
    own = [{"name": "npz", "path": str(tmp_path / folder / "mine.npz"), "split": "random"} for folder in ("old", "new")]
    drawn = [{"name": "csbm", "csbm": {"nodes": nodes, "edges": 60}} for nodes in (60, 90)]
    cells = suite(datasets=[*own, *drawn, {"name": "csbm-cora"}]).cells()
    columns = [identity(cell) for cell in cells]
    assert [row["dataset"] for row in columns] == ["mine", "mine", "csbm", "csbm", "csbm-cora"]
    digests = [DatasetSpec("npz", path=each["path"]).pinned().sha256 or "" for each in own]
    assert [row["dataset_args"] for row in columns] == [
        *(f"split=random;sha256={digest[:12]}" for digest in digests), "nodes=60;edges=60", "nodes=90;edges=60", ""
    ]  # fmt: skip
    assert len({cell_label(cell) for cell in cells}) == len(cells)  # nor do lines of progress name two graphs alike


def test_a_plugin_without_a_name_shows_the_keys_that_are_there() -> None:
    said = refusal(defenses=[{"stak": ["none", "gaussian"]}])
    assert "a defense needs a name, or the key stack; got the keys 'stak'; did you mean 'stack'?; known: none" in said
