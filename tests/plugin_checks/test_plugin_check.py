"""``fglaudit check`` names the fault of a plugin of a user's own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import make_cell

from fglaudit.cli import main
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.execution.exit_code import ExitCode
from fglaudit.guarantees import Verdict, Word
from fglaudit.scaffold import scaffold
from fglaudit.testing import plugin, small_audits
from fglaudit.testing.plugin_words import Aside, Line, brief, guarantee_lines

STATED = 'return (Additive(Field("NeighborSums", "sums", "up"), "gaussian", self.std),)'
PROMISE = """
    def guarantee(self) -> Guarantee:
        return Guarantee("gaussian", 0.5, 0.5, 1e-5, "node", "feature row zeroed out", 1, relation=Relation.ZERO_OUT)
"""

LIAR = """
import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.interfaces import Guarantee


@dataclass(frozen=True)
class Liar(Gaussian):
    \"\"\"Noise for epsilon 8, called epsilon 1.\"\"\"

    name: ClassVar[str] = "liar"
    epsilon: float = 8.0

    def bind(self, context):
        session = super().bind(context)
        honest = session.guarantee
        session.guarantee = lambda: dataclasses.replace(honest(), epsilon_claimed=1.0, epsilon_accounted=1.0)
        return session
"""


def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, *options: str) -> tuple[int, str]:
    """Check the scaffold's defense with ``new`` in the place of ``old``."""
    path = scaffold("defense", f"mine-{tmp_path.name.replace('_', '').lower()[-8:]}", tmp_path)[0]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    cls = next(line.split()[1].split("(")[0] for line in text.splitlines() if line.endswith("(Defense):"))
    return called(capsys, f"{path}:{cls}", "--quick", *options)


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    try:
        main(["check", *arguments])
        code = 0
    except SystemExit as done:
        code = int(done.code or 0)
    said = capsys.readouterr()
    return code, said.out + said.err


def test_noise_that_keeps_quiet_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_audits, "QUICK", (60, 120, 30, 3))  # the fault is found before the audit
    code, said = checked(tmp_path, capsys, STATED, "return ()")
    assert code == ExitCode.FAILED
    assert "verdict: FAULT: conformance on fedgcn:" in said and "states no fact that explains it" in said


def test_noise_that_is_far_too_small_for_its_promise_is_claimed_and_what_is_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.mkdir()
    file = scaffold("defense", "bold", path)[0]
    text, names = file.read_text(), "from fglaudit.interfaces import Context, Defense, DefenseSession"
    assert names in text and STATED in text
    file.write_text(text.replace(names, f"{names}, Guarantee, Relation").replace(STATED, STATED + "\n" + PROMISE))
    code, said = called(capsys, f"{file}:Bold", "--quick", "--fields", "{std: 0.05}")
    assert code == ExitCode.FAILED, said
    assert re.search(r"guarantee: claimed, epsilon [0-9.]+ by its author: no epsilon could be accounted", said)
    assert "verdict: FAULT: features leak to server (" in said and "features: leaks" in said
    assert "server (topology, auxiliary 0.1)" in said and ";auxiliary=" not in said, said
    last = said.strip().splitlines()[-1]
    assert "F1" not in last and len(last) < 200, last


def test_a_refuted_verdict_is_the_gravest_fault() -> None:
    verdict = Verdict(Word.REFUTED, "noise of a third of the stated scale", claimed=8.0)
    cell = replace(make_cell(("fedgcn", {"hops": 1}, 0.8), ("gaussian", {"epsilon": 8.0}), 0), verdict=verdict)
    (line,) = guarantee_lines([cell])
    assert line.code is ExitCode.REFUTED and line.text.endswith("refuted: noise of a third of the stated scale")
    (line,) = guarantee_lines([replace(cell, verdict=replace(verdict, word=Word.CLAIMED))])
    assert line.code is ExitCode.DONE and line.text.startswith("guarantee: claimed")


def test_who_promises_nothing_is_told_how_to_promise() -> None:
    cell = make_cell(("fedgcn", {"hops": 1}, 0.8), ("gaussian", {"epsilon": 8.0}), 0)
    (line,) = guarantee_lines([replace(cell, verdict=Verdict(Word.NONE, "nothing is promised"))])
    assert line.text.startswith("guarantee: none: nothing is promised; `guarantee()` of its session")


def test_an_epsilon_that_its_facts_do_not_give_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "liar.py"
    file.write_text(LIAR)
    code, said = called(capsys, f"{file}:Liar", "--quick", "--protocol", "fedgcn")
    assert code == ExitCode.REFUTED, said
    last = said.strip().splitlines()[-1]
    assert "verdict: REFUTED: the guarantee is refuted: its author states epsilon 1;" in last
    assert last.count("refuted:") == 1


def test_code_that_raises_is_a_fault_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = checked(tmp_path, capsys, "return _Session(self.std)", "raise KeyError('hops')")
    assert code == ExitCode.FAILED
    assert "conformance on fedgcn: KeyError: 'hops'" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py:Mine"], "nowhere.py"),
        (["mine.py:Mien"], "did you mean 'Mine'"),
        (["mine.py:Other"], "extends Defense, Attack or FederatedProtocol"),
        (["mine.py:Mine", "--fields", "{sdt: 1}"], "did you mean 'std'"),
        (["mine.py:Mine", "--fields", "{std: -1}"], "std"),
        (["mine.py:Mine", "--fields", "[1]"], "--fields takes a mapping"),
        (["mine.py:Mine", "--protocol", "fedgnc"], "did you mean 'fedgcn'"),
        (["mine.py:Mine", "--protocol", "gcn"], "serves none"),
        (["gausian"], "did you mean 'gaussian'"),
    ],
)
def test_what_a_user_can_fix_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = scaffold("defense", "mine", tmp_path)[0]
    path.write_text(path.read_text() + "\n\nclass Other:\n    pass\n")
    code, said = called(capsys, *arguments, "--quick")
    error = [line for line in said.splitlines() if line.startswith("error: ")]
    assert code == ExitCode.INPUT and len(error) == 1 and words in error[0], said


def test_protocols_on_nodes_get_a_graph_on_which_every_node_is_a_client(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = called(capsys, "clipped-noise", "--fields", "{epsilon: 2.0}", "--protocol", "nfedgnn", "--quick")
    assert code == 0 and "conformance on nfedgnn: the rules are kept" in said


def test_a_protocols_own_refusal_is_no_fault_of_the_defense(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fglaudit.testing.small_audits.ON_NODES", ())
    code, said = called(capsys, "clipped-noise", "--fields", "{epsilon: 2.0}", "--protocol", "nfedgnn", "--quick")
    assert code == ExitCode.INPUT
    assert "cannot be checked on nfedgnn: nfedgnn has one user per node" in said and "FAULT" not in said


def test_an_attack_that_gets_less_than_those_of_the_package_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it finds nothing in would else look protected; it passes its self-test on rows that stand alone."""
    path = scaffold("attack", "top-sums", tmp_path)[0]
    with pytest.raises(SystemExit) as done:
        main(["check", f"{path}:TopSums", "--quick"])
    assert not done.value.code
    out = capsys.readouterr().out
    assert "more is got from the same messages by an attack of this package: server" in out, out


def test_a_reader_gets_the_verdict_first_and_last_and_features_alone() -> None:
    """It came after a dozen long lines about what nobody had asked; no leak is left out."""
    server = "server (topology)"
    lines = [
        Line("conformance: the rules are kept"),
        Line("server, features: leaks", ExitCode.FAILED, "features leak to server"),
        *(
            Line(f"server, {name}: figures", aside=Aside(name, server, name != "labels"))
            for name in ("linkage", "labels")
        ),
        Line("server, edges: figures", aside=Aside("edges", server, True)),
        Line("verdict: FAULT: features leak to server", ExitCode.FAILED),
    ]
    assert brief(lines) == [
        "verdict: FAULT: features leak to server",
        "conformance: the rules are kept",
        "server, features: leaks",
        "beside features, this leaks to server (topology): linkage, edges",
        "--verbose has the figures of 3 answers about other things than features",
        "verdict: FAULT: features leak to server",
    ]
    assert brief([Line("verdict: no fault")]) == ["verdict: no fault"] * 2


def test_the_command_says_so_and_verbose_says_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = checked(tmp_path, capsys, "std: float = 1.0", "std: float = 0.001")
    lines = [line.strip() for line in said.splitlines()]
    assert code == ExitCode.FAILED and lines[1] == lines[-1] and lines[1].startswith("verdict: FAULT: features leak to")
    assert not [line for line in lines if ", linkage: " in line] and "this leaks to server" in said
    name = next(tmp_path.glob("mine_*.py"))
    cls = re.search(r"class (\w+)\(Defense\)", name.read_text())
    assert cls is not None
    code, said = called(capsys, f"{name}:{cls[1]}", "--quick", "--verbose")
    assert code == ExitCode.FAILED and ", linkage: leaks" in said and said.count("verdict: ") == 1
    assert said.strip().splitlines()[-1].strip() == lines[-1]


@pytest.mark.parametrize(("seconds", "told"), [(-1.0, True), (60.0, False)])
def test_a_slow_binding_is_told_of_before_audits_repeat_it(
    seconds: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audited(protocol: object, defense: object, quick: bool) -> str:
        if defense != "none":
            raise RuntimeError("the audit begins")
        return "without"

    monkeypatch.setattr(plugin, "audited", audited)
    monkeypatch.setattr(plugin, "SLOW_BIND", seconds)
    lines = [line.text for line in plugin.check("defense", Gaussian(epsilon=4.0), protocols=["fedgcn"])]
    at = next((number for number, line in enumerate(lines) if "functools.lru_cache" in line), None)
    assert (at is not None) is told
    assert at is None or "the audit begins" in lines[at + 1]
