"""What ``show``, ``list`` and ``doctor`` say: quick, equal to what classes say of themselves, in whole sentences."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import yaml

from fglaudit import doctor, registry
from fglaudit.catalog import CATALOG, explain
from fglaudit.catalog.plugins import described, described_class
from fglaudit.datasets import CsbmOptions, DatasetSpec, fetch
from fglaudit.datasets.catalog import OGB_SOURCES
from fglaudit.doctor import cuda_devices, examine
from fglaudit.errors import FglauditError
from fglaudit.parties import SERVERS
from fglaudit.partition import PartitionSpec
from fglaudit.partition.schemes import Scheme, partition_schemes
from fglaudit.payloads import Payload
from fglaudit.plugins.class_source import UnreadableError, class_source
from fglaudit.quantities import QUANTITIES
from fglaudit.reports.formats import png
from fglaudit.reports.wording.names import quantity_name
from fglaudit.suite.embedded import embedded


@pytest.mark.parametrize("kind", registry.KINDS)
def test_what_the_source_says_is_what_the_class_says(kind: str) -> None:
    for name in registry.names(kind):
        assert described(kind, name) == described_class(registry.load(kind, name)), name


def test_words_that_a_field_takes_are_shown() -> None:
    for name, line in (
        ("fedgcn", "aggregate: 'normalised' | 'counts' = 'normalised'"),
        ("cnfgnn", "choice: 'validation' | 'last' = 'last'"),
        ("gaussian", "unit: 'feature' | 'node' | 'reporting node' | 'edge' | 'client' = 'node'"),
        ("dp-sgd", "unit: 'node' = 'node'"),
        ("lira", "variant: 'online' | 'offline' = 'online'"),
        ("metis", "scheme: 'dirichlet' | 'metis' | "),
        ("cora", "split: 'public' | 'random' | 'random-shared' = 'public'"),
    ):
        assert f"  {line}" in explain(name), name


def _with_fields() -> Iterator[tuple[str, type]]:
    for kind in registry.KINDS:
        yield from ((name, registry.load(kind, name)) for name in registry.names(kind))
    for name, target in SERVERS.items():
        module, _, cls = target.partition(":")
        yield name, getattr(import_module(module), cls)
    yield from (("partition", PartitionSpec), ("csbm", CsbmOptions))


def test_a_field_of_text_that_takes_certain_words_alone_has_them_in_its_type() -> None:
    """``show`` printed ``unit: str``: the words were seen by failing alone."""
    classes = 0
    for name, cls in _with_fields():
        values = {f.name: f.default for f in dataclasses.fields(cls) if f.init}
        if dataclasses.MISSING in values.values():
            continue
        classes += 1
        for field in [f for f in dataclasses.fields(cls) if f.type == "str"]:
            with contextlib.suppress(FglauditError):
                cls(**{**values, field.name: "no-such-word"})
                continue
            pytest.fail(f"{name}: {field.name} takes certain words alone; its type is to be a Literal of them")
    assert classes > 100


def test_a_plugins_own_words_are_shown_and_checked(tmp_path: Path) -> None:
    """Of a type with a name, and of one without; a plain ``str`` takes any text."""
    (tmp_path / "words.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar, Literal\n"
        "from fglaudit.interfaces import Defense, DefenseSession\n"
        "Strength = Literal['weak', 'strong']\n"
        "@dataclass(frozen=True)\nclass Mine(Defense):\n    name: ClassVar[str] = 'mine'\n"
        "    strength: Strength = 'weak'\n    where: Literal['up', 'down'] | None = None\n    text: str = ''\n"
        "    def bind(self, context):\n        return DefenseSession()\n"
    )
    place = f"{tmp_path / 'words.py'}:Mine"
    shown = explain(place)
    assert "strength: 'weak' | 'strong' = 'weak'" in shown and "where: 'up' | 'down' | None = None" in shown
    with pytest.raises(
        FglauditError, match=r"unknown strength 'strnog'; did you mean 'strong'\? \(known: strong, weak\)"
    ):
        registry.build("defense", place, {"strength": "strnog"})
    with pytest.raises(FglauditError, match="unknown where 'sideways'"):
        registry.build("defense", place, {"where": "sideways"})
    with pytest.raises(FglauditError, match="field 'strength' must be 'weak' or 'strong'; got 3"):
        registry.build("defense", place, {"strength": 3})
    assert registry.build("defense", place, {"text": "anything", "where": None}).text == "anything"


def test_what_is_listed_of_quantities_are_their_keys_with_the_words_of_reports() -> None:
    listed = CATALOG["quantities"].entries()
    assert list(listed) == list(QUANTITIES)
    for key, text in listed.items():
        assert text.startswith(f'"{quantity_name(key)}" in reports. '), text
        assert "[S" not in text and "See the module" not in text, text
    shown = explain("node-owner")
    assert shown.startswith('quantity node-owner: "clients of nodes" in reports') and "See the module" not in shown
    assert "inferred by: " in shown and "client-gains" in shown.split("inferred by: ")[1]


def test_payloads_are_listed_for_the_fields_that_name_one() -> None:
    assert set(CATALOG["payloads"].entries()) == {name for name in Payload.registry if _built_in(name)}
    shown = explain("NeighborSums")
    assert "sums: " in shown and "sent by: fedgcn" in shown and "subset-sum" in shown.split("read by: ")[1]
    for name in ("gaussian", "clipping"):
        assert "PayloadName" in explain(name) and "one of fglaudit list payloads" in explain(name)
    with pytest.raises(FglauditError, match="all: fglaudit list payloads"):
        registry.build("defense", "gaussian", {"on": "no-such-word"})


def _built_in(payload: str) -> bool:
    return Payload.registry[payload].__module__.startswith("fglaudit.payloads.")


def test_schemes_are_described_by_the_words_that_a_partition_takes() -> None:
    assert set(get_args(Scheme)) == set(partition_schemes())


@pytest.mark.parametrize("cls", [DatasetSpec, PartitionSpec])
def test_so_do_data_sets_and_partitions(cls: type) -> None:
    found = class_source(cls.__module__, cls.__name__)
    assert [f.name for f in found.fields] == [f.name for f in dataclasses.fields(cls)]
    assert "Literal" not in repr(found.fields)
    said = [f.default for f in found.fields]
    real = [f.default for f in dataclasses.fields(cls)]
    assert said == ["" if value is dataclasses.MISSING else f" = {value!r}" for value in real]


def test_nothing_heavy_is_imported_to_explain_or_examine() -> None:
    """An attack's explanation too; which facts it allows for is asked of the attack itself, and printed after it."""
    commands = (["fedgt"], ["npz"], ["quickstart"], ["node-owner"], ["NeighborSums"])
    ran = [["doctor"], ["list", "quantities"], ["list", "payloads"], *(["show", *name] for name in commands)]
    lines = [
        *(f"try:\n    main({it!r})\nexcept SystemExit as done:\n    assert not done.code, done.code\n" for it in ran),
        "print(explain('subset-sum'))\n",
    ]
    for line in lines:
        code = (
            "import sys\nfrom fglaudit.catalog import explain\nfrom fglaudit.cli import main\n"
            f"{line}"
            "heavy = {'torch', 'pandas', 'scipy', 'sklearn', 'numpy'} & set(sys.modules)\nassert not heavy, heavy\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_default_that_is_computed_is_asked_of_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "computed_defaults.py").write_text(
        "from dataclasses import dataclass, field\n"
        "SIZE = 2 + 3\n"
        "@dataclass(frozen=True)\n"
        "class Plain:\n    size: int = SIZE\n    flag: bool = field(default=False)\n"
        "@dataclass(frozen=True)\n"
        "class Made(Plain):\n    size: int = 7\n    more: list[int] = field(default_factory=list)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    fields = class_source("computed_defaults", "Plain").fields
    assert [(f.name, f.type, f.default) for f in fields] == [("size", "int", " = 5"), ("flag", "bool", " = False")]
    for cls, words in (("Made", "factory"), ("Missing", "no class")):
        with pytest.raises(UnreadableError, match=words):
            class_source("computed_defaults", cls)


def test_listed_texts_are_whole_sentences_without_markup() -> None:
    for kind in ("protocols", "attacks", "defenses", "suites", "payloads", "quantities"):
        for name, text in CATALOG[kind].entries().items():
            assert text.endswith("."), (name, text)
            assert ":class:" not in text and "``" not in text, (name, text)
    suites = CATALOG["suites"].entries()
    assert suites["encryption"].endswith("and what ciphertexts show by being there.")  # goes on in the second line
    assert suites["dp-training"].count(".") == 1


def test_shapes_and_types_of_an_own_graph_are_shown() -> None:
    text = explain("npz")
    for words in ("x [N, F]", "edge_index [2, E]", "y [N]", "train_mask", "integers", "booleans", "float32"):
        assert words in text


def test_doctor_asks_torch_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    quick = {check.what: check for check in examine()}
    full = {check.what: check for check in examine(torch_too=True)}
    assert full["torch imports"].detail.startswith(torch.__version__) and "torch imports" not in quick
    assert len(cuda_devices()) >= torch.cuda.device_count()
    monkeypatch.setitem(sys.modules, "torch", None)
    broken = {check.what: check for check in examine(torch_too=True)}
    assert broken["torch imports"].state == "broken"
    assert {check.what for check in examine()} == set(quick)


def test_doctor_notices_an_optional_package_that_does_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    monkeypatch.setitem(sys.modules, "pymetis", None)
    (found,) = (check for check in examine(torch_too=True) if check.what == "pymetis")
    assert found.state == "missing" and "does not import: ModuleNotFoundError" in found.detail and found.fix


def test_doctor_and_reports_agree_on_what_png_figures_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package was there, no font was: reports had no PNG, and the doctor found nothing missing."""
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0")
    for lack in (png.Lack("a font, and none is installed", "apt install fonts-dejavu-core"), None):
        monkeypatch.setattr(png, "lacking", lambda lack=lack: lack)
        (found,) = (check for check in examine() if check.what == "figures as PNG")
        assert (found.state == "ok") == (not png.missing()) == (lack is None)
        assert lack is None or (lack.what in found.detail and lack.fix == found.fix)
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert "figures as PNG" not in {check.what for check in examine()}, "the line of the package says it"


@pytest.mark.parametrize("name", ["cora", "dirichlet", "fedgat", "subset-sum"])
def test_sources_are_found_from_any_folder(name: str, tmp_path: Path) -> None:
    """Where the package is installed for development, a finder of its own knows where it lies, and not the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "fglaudit", "show", name]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and name in done.stdout, done.stderr


@pytest.mark.parametrize("name", [n for n in embedded() if sum(n in s.entries() for s in CATALOG.values()) > 1])
def test_a_suite_that_shares_its_name_is_shown_as_a_suite(name: str) -> None:
    """``fglaudit show fedgat > my_suite.yaml`` is how the command line says to copy one; it was no YAML."""
    shown = explain(name)
    assert yaml.safe_load(shown)["name"] == name
    assert shown.startswith("# ") and f" {name}" in shown.splitlines()[0]


def test_an_unknown_name_is_answered_with_the_lists_of_known_ones() -> None:
    """All names together are too many for a message: its middle was left out."""
    with pytest.raises(FglauditError) as told:
        explain("fedgnc")
    assert "did you mean 'fedgcn'" in str(told.value) and " ... " not in str(told.value)
    lists = str(told.value).split("all: fglaudit list ")[1].rstrip(")").split("|")
    assert lists == list(CATALOG)


def test_fields_inside_a_field_of_a_drawn_data_set_are_shown() -> None:
    assert "in csbm: {...}" in explain("csbm") and "ones_per_row: float = 18.0" in explain("csbm")
    assert "in task: {...}" in explain("csbm-dnc") and "in task" not in explain("cora")


@pytest.mark.parametrize(
    "name", ["fglaudit", "fglaudit.datasets", "fglaudit.partition", "fglaudit.quantities", "fglaudit.reports"]
)
def test_names_that_are_imported_when_asked_for_are_listed(name: str) -> None:
    """``help`` and the completion of shells and notebooks showed none of them. In a process that asked for none yet."""
    listed = f"import {name} as module; print(sorted(set(module.__all__) - set(dir(module))))"
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_doctor_names_no_command_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``data fetch`` does not fetch OGB's sets, and was said to."""
    monkeypatch.setenv("FGLAUDIT_DATA", str(tmp_path))
    fixes = {check.what: check.fix for check in examine() if check.what.startswith("data ")}
    for name in OGB_SOURCES:
        assert fixes[f"data {name}"].startswith("unpack http://") and "data fetch" not in fixes[f"data {name}"]
        with pytest.raises(FglauditError, match="not fetched automatically; unpack http://"):
            fetch(name, tmp_path)
    assert fixes["data cora"] == f"fglaudit data fetch cora --root {tmp_path}"
