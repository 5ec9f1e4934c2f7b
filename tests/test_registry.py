"""Plugins are found by name, entry point or file; whatever is wrong with one is said before anything runs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fglaudit import registry
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.errors import FEW, LISTED, FglauditError, unknown
from fglaudit.suite.reading import read
from fglaudit.suite.suite import resolve

DEFENSE = '''
"""A user's defense."""
from dataclasses import dataclass
from typing import ClassVar
from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession

@dataclass(frozen=True)
class Mine(Defense):
    """Does nothing, twice."""
    name: ClassVar[str] = "{name}"
    strength: float = 1.0
    layers: tuple[int, ...] = ()

    def bind(self, context: Context) -> DefenseSession:
        return DefenseSession()

@dataclass
class Mutable(Defense):
    name: ClassVar[str] = "mutable"
    def bind(self, context: Context) -> DefenseSession:
        return DefenseSession()

@dataclass(frozen=True)
class Abstract(Defense):
    name: ClassVar[str] = "abstract"

class Other:
    pass
'''


def write(folder: Path, name: str = "mine") -> Path:
    path = folder / f"{name}_defense.py"
    path.write_text(DEFENSE.replace("{name}", name))
    return path


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_listed_plugin_loads_under_its_name_and_has_a_summary(kind: str) -> None:
    for name in registry.names(kind):
        assert registry.load(kind, name).name == name
        assert len(registry.summary(kind, name)) > 10


def test_a_file_is_a_plugin_and_values_take_their_types(tmp_path: Path) -> None:
    name = f"{write(tmp_path)}:Mine"
    plugin = registry.build("defense", name, {"strength": 2, "layers": [1, 2]})
    assert (plugin.strength, plugin.layers) == (2.0, (1, 2)) and isinstance(plugin.strength, float)
    assert registry.reference(plugin) == name
    assert registry.load("defense", name) is type(plugin)
    assert str(tmp_path / "mine_defense.py") in registry.loaded_files()


def test_a_subclass_that_keeps_a_built_in_name_is_not_taken_for_it() -> None:
    @dataclass(frozen=True)
    class Quieter(Gaussian):
        """Keeps its base's name."""

    ours, theirs = Quieter(epsilon=8.0), Gaussian(epsilon=8.0)
    assert registry.reference(theirs) == "gaussian"
    assert registry.reference(ours).endswith("<locals>.Quieter")
    one = resolve(read("quickstart")[0], "quickstart").cells()[0]
    assert dataclasses.replace(one, defense=ours).hash() != dataclasses.replace(one, defense=theirs).hash()
    with pytest.raises(FglauditError, match="unknown class"):
        registry.load("defense", registry.reference(ours))


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        ("Mutable", "frozen dataclass"),
        ("Abstract", "lacks bind"),
        ("Other", "subclass of fglaudit.interfaces.Defense"),
        ("Min", "did you mean 'Mine'"),
    ],
)
def test_a_class_that_is_no_defense_is_refused(tmp_path: Path, cls: str, words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        registry.load("defense", f"{write(tmp_path)}:{cls}")


def test_of_many_names_an_error_lists_the_nearest_and_what_prints_all() -> None:
    with pytest.raises(FglauditError) as told:
        registry.load("attack", "subset-summ")
    known = len(registry.names("attack"))
    assert "did you mean 'subset-sum'? (known: subset-sum" in str(told.value) and len(str(told.value)) < 200
    assert str(told.value).endswith("more; all: fglaudit list attacks)") and known > LISTED
    assert f"and {known - FEW} more" in str(unknown("attack", "!", registry.names("attack")))
    few = registry.names("attack")[:LISTED]
    assert ", ".join(sorted(few)) in str(unknown("attack", "subset-summ", few, "fglaudit list attacks"))


def test_files_that_cannot_be_plugins(tmp_path: Path) -> None:
    with pytest.raises(FglauditError, match="there is no file"):
        registry.load("defense", f"{tmp_path}/none.py:Mine")
    with pytest.raises(FglauditError, match="calls itself 'gaussian', which is taken"):
        registry.load("defense", f"{write(tmp_path, 'gaussian')}:Mine")
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(FglauditError, match=r"ZeroDivisionError: division by zero \(broken.py line 1\)"):
        registry.load("defense", f"{broken}:Mine")
    broken.write_text("\ndef f(:\n")  # of no Python the place was that of fglaudit's own call of the compiler
    with pytest.raises(FglauditError, match=r"SyntaxError: [^()]*\(broken.py, line 2\); correct the file"):
        registry.load("defense", f"{broken}:Mine")


def test_entry_points_are_found_and_may_not_take_a_name_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def install(*points: EntryPoint) -> None:
        registry._entry_points.cache_clear()
        monkeypatch.setattr(registry, "entry_points", lambda group: [p for p in points if p.group == group])

    install(EntryPoint("mine", "mine_defense:Mine", "fglaudit.defenses"))
    assert "mine" in registry.names("defense") and "mine" not in registry.names("attack")
    assert registry.build("defense", "mine", {}).strength == 1.0
    assert registry.summary("defense", "mine") == "Does nothing, twice."
    install(EntryPoint("gaussian", "mine_defense:Mine", "fglaudit.defenses"))
    with pytest.raises(FglauditError, match=r"'gaussian'.*in use"):
        registry.names("defense")
    registry._entry_points.cache_clear()


def test_looking_names_up_does_not_import_torch() -> None:
    code = (
        "import sys; from fglaudit import registry as r; "
        "[r.summary(k, n) for k in r.KINDS for n in r.names(k)]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_line_of_the_list_names_other_plugins_as_suites_do() -> None:
    assert registry.summary("protocol", "appnp").endswith("fields as in gfl-appnp.")
    assert registry.summary("protocol", "gcfl-sage").endswith("those of fedavg-sage.")


@pytest.mark.parametrize(
    ("kind", "name", "word", "field"),
    [
        ("defense", "fewer-features", "seed", "subset"),
        ("defense", "dp-sgd", "code_seed", "seed"),
        ("protocol", "structure-only", "seed", "code_seed"),
        ("protocol", "private-reports", "seed", "code_seed"),
        ("protocol", "gap", "seed", "code_seed"),
        ("protocol", "fedpub", "seed", "random_graph"),
    ],
)
def test_what_others_call_a_field_is_taken_for_it(kind: str, name: str, word: str, field: str) -> None:
    assert registry.build(kind, name, {word: 3}) == registry.build(kind, name, {field: 3})
    with pytest.raises(FglauditError, match=f"{field} is also called .*{word}.*; got both; give one"):
        registry.build(kind, name, {word: 3, field: 3})


def test_who_adds_noise_is_asked_by_either_word() -> None:
    assert registry.build("defense", "dp-fedavg", {"noise_at": "server"}).trust == "server"
    assert registry.build("protocol", "gap", {"trust": "server"}).noise_at == "server"
    with pytest.raises(FglauditError, match="distributed"):  # clients: each alone, or a share? the values say it
        registry.build("defense", "dp-fedavg", {"noise_at": "clients"})


def test_every_other_word_is_of_a_field_and_is_none_itself() -> None:
    for kind in ("defense", "protocol", "attack"):
        for name in registry.names(kind):
            cls = registry.load(kind, name)
            fields = {field.name for field in dataclasses.fields(cls)}
            also = getattr(cls, "also", {})
            assert set(also.values()) <= fields and not fields & set(also), name


def test_a_field_of_that_name_is_a_field() -> None:
    @dataclasses.dataclass(frozen=True)
    class Also:
        also: str = "more"

    assert registry.construct(Also, "it", {"also": "this"}) == Also("this")
