"""Files for programs and papers, and that every figure anywhere is that of the row it came from."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from report_runs import DEFENSES, PROTOCOLS, _Page, make_cell, make_run, store
from rich.console import Console

from fglaudit.cli import main
from fglaudit.execution.folder.csv_files import write_findings
from fglaudit.finding import COLUMNS
from fglaudit.reports import write_report
from fglaudit.reports.formats import png as png_format
from fglaudit.reports.formats.console import print_answers
from fglaudit.reports.formats.figure_files import STYLE
from fglaudit.reports.formats.latex import latex
from fglaudit.reports.formats.png import draws
from fglaudit.reports.numbers import decimal, percent
from fglaudit.reports.records import load_run

SCHEMA = Path(__file__).parents[2] / "docs" / "findings.schema.json"
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
}  # fmt: skip


def faults(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What of ``schema`` the value breaks; the keywords that the published schema uses, and no others."""
    known = {"type", "enum", "anyOf", "minimum", "properties", "required", "additionalProperties", "items"}
    assert set(schema) <= known | {"$schema", "title", "description"}
    if "anyOf" in schema:
        return [] if any(not faults(value, each) for each in schema["anyOf"]) else [f"{where}: {value!r}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where}: {value!r}"]
    expected = TYPES[schema["type"]]
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        return [f"{where}: {value!r} is no {schema['type']}"]
    found = [f"{where}: {value} is too small"] if "minimum" in schema and value < schema["minimum"] else []
    if expected is list:
        return found + [
            fault for n, entry in enumerate(value) for fault in faults(entry, schema["items"], f"{where}[{n}]")
        ]
    if expected is dict:
        properties = schema["properties"]
        found += [f"{where}: no {name}" for name in schema["required"] if name not in value]
        for name, entry in value.items():
            if name in properties:
                found += faults(entry, properties[name], f"{where}.{name}")
            else:
                found.append(f"{where}: unknown {name}")
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed each, so that a figure of a summary is that of one row of ``findings.csv``."""
    folder = store(tmp_path_factory.mktemp("exports") / "run", make_run(seeds=(0,)))
    write_findings(folder, load_run(folder).cells)
    write_report(folder)
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_file_keeps_the_published_schema(demo: Path) -> None:
    schema, document = json.loads(SCHEMA.read_text("utf-8")), json.loads((demo / "findings.json").read_text("utf-8"))
    assert faults(document, schema) == []
    assert len(document["settings"]) == len(PROTOCOLS) * len(DEFENSES)
    assert {answer["word"] for answer in document["answers"]} >= {"leaks", "not tested"}
    document["answers"][0]["word"] = "safe"
    del document["settings"][0]["name"]
    document["findings"][0]["new"] = 1
    assert len(faults(document, schema)) == 3


def test_the_schema_knows_every_column() -> None:
    rows = json.loads(SCHEMA.read_text("utf-8"))["properties"]["findings"]["items"]
    assert tuple(rows["properties"]) == COLUMNS


def test_findings_in_both_files_are_the_same(demo: Path) -> None:
    rows = json.loads((demo / "findings.json").read_text("utf-8"))["findings"]
    plain = table(demo / "findings.csv")
    assert len(rows) == len(plain) > 0
    for row, line in zip(rows, plain, strict=True):
        assert {name: str(value) for name, value in row.items()} == {k: v for k, v in line.items() if v}


def test_numbers_that_are_not_finite_stay_readable(tmp_path: Path) -> None:
    cell = make_cell(PROTOCOLS[0], DEFENSES[2], 0, observers=[0])
    odd = [replace(f, epsilon_claimed=float("inf"), tv_error=float("nan")) for f in cell.findings]
    folder = store(tmp_path / "run", [replace(cell, findings=tuple(odd))])
    write_report(folder)
    document = json.loads((folder / "findings.json").read_text("utf-8"))
    assert faults(document, json.loads(SCHEMA.read_text("utf-8"))) == []
    assert {row["epsilon_claimed"] for row in document["findings"]} == {"inf"}
    assert not any("tv_error" in row for row in document["findings"])


def test_every_figure_of_a_summary_is_that_of_its_row(demo: Path) -> None:
    name = ("dataset", "protocol_args", "protocol", "defense", "observer", "observer_knowledge", "attack")
    rows = {tuple(row[c] for c in name): row for row in table(demo / "findings.csv")}
    same = {"advantage": "advantage", "advantage_low": "advantage_low", "advantage_high": "advantage_high"}
    same |= {"value_mean": "value", "control_mean": "control", "accuracy_mean": "accuracy"}
    same |= {column: column for column in ("exact_rate", "f1", "auc", "targets", "worst_client", "identifiable_rate")}
    seen = 0
    for line in table(demo / "summary.csv"):
        row = rows.get(tuple(line[c] for c in name))
        if row is None or row["status"] == "failed":
            assert line["status"] in ("not-applicable", "failed")
            continue
        for column, source in same.items():
            assert (float(line[column]) if line[column] else None) == (float(row[source]) if row[source] else None)
            seen += 1
    assert seen > 500


def test_every_figure_that_is_read_is_that_of_its_row(demo: Path) -> None:
    """Each "N % of ... rows exact (a guess: M %), F1 A (B)" is one measured row's; of the console each "N % exact"."""
    rows = [row for row in table(demo / "findings.csv") if row["status"] == "ok"]
    wanted = {
        (plain(percent(float(r["exact_rate"]))), plain(percent(float(r["control_exact_rate"]))),
         plain(decimal(float(r["f1"]), 2)), plain(decimal(float(r["control_f1"]), 2)))
        for r in rows
    }  # fmt: skip
    console = Console(width=400, record=True, file=io.StringIO())
    print_answers(console, load_run(demo))
    page = _Page((demo / "report.html").read_text("utf-8")).words
    said = console.export_text().replace("\N{NARROW NO-BREAK SPACE}", "")
    exact = re.findall(r"(<?[\d.]+%) exact", re.sub(r"\s+%", "%", said).replace("< ", "<"))
    assert len(exact) >= 12 and set(exact) <= {figures[0] for figures in wanted}
    texts = {"page": page, "tex": (demo / "summary.tex").read_text("utf-8")}
    texts["tex"] = texts["tex"].replace(r"\,", "").replace(r"\%", "%").replace(r"\textless{}", "<")
    for where, text in texts.items():
        figures = re.findall(
            r"(<?[\d.]+%) of \S+ \S+ rows exact \(a guess: ([\d.]+%)\), F1 ([\d.]+) \(([\d.]+)\)",
            re.sub(r"\s+%", "%", text.replace("\N{NARROW NO-BREAK SPACE}", "")).replace("< ", "<"),
        )
        assert len(figures) >= 12, where
        assert set(figures) <= wanted, where


def plain(text: str) -> str:
    return text.replace("\N{NARROW NO-BREAK SPACE}", "").replace(" ", "")


def test_headlines_of_the_first_screen_are_rows(demo: Path) -> None:
    rows = [row for row in table(demo / "findings.csv") if row["status"] == "ok"]
    wanted = {plain(percent(float(row["exact_rate"]))) for row in rows}
    page = (demo / "report.html").read_text("utf-8")
    headlines = re.findall(r'<p class="headline num">(.*?)</p>', page, re.DOTALL)
    numbers = [n for line in headlines for n in re.findall(r"([\d.]+%)", plain(line))]
    assert len(headlines) == 3 and numbers
    assert {n for n in numbers if n not in ("0%", "95%")} <= wanted
    report = plain((demo / "report.md").read_text("utf-8"))
    assert all(number in report for number in numbers)


def test_figures_stand_alone(demo: Path) -> None:
    drawing = ElementTree.fromstring((demo / "figure-1.svg").read_text("utf-8"))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    used = {name for node in drawing.iter() for name in (node.get("class") or "").split()}
    unstyled = {name for name in used - {"plot"} if f".{name}" not in STYLE}
    assert used and unstyled == set()
    said = {node.text for node in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Server", "One client", "fedgcn hops=1", "fedgcn hops=2"} <= said  # the legend


def test_figures_of_an_earlier_report_go(demo: Path, tmp_path: Path) -> None:
    folder = store(tmp_path / "run", make_run(seeds=(0,))[:3])
    for name in ("figure-2.svg", "figure-mine.svg"):
        (folder / name).write_text("old")
    write_report(folder)
    assert sorted(path.name for path in folder.glob("figure-*.svg")) == ["figure-1.svg", "figure-mine.svg"]


def test_figures_as_png_are_drawn_where_that_is_possible(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("resvg_py")
    if draws():  # not without a font
        drawn = (demo / "figure-1.png").read_bytes()
        assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = (int.from_bytes(drawn[at : at + 4], "big") for at in (16, 20))
        drawing = ElementTree.fromstring((demo / "figure-1.svg").read_text("utf-8"))
        assert (width, height) == (2 * int(drawing.attrib["width"]), 2 * int(drawing.attrib["height"]))
    png_format.lacking.cache_clear()
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    records = make_run(seeds=(0,))[:3]
    folder = store(tmp_path / "run", records, plan=records)
    (folder / "figure-1.png").write_text("somebody's own")
    with pytest.raises(SystemExit) as done:
        main(["report", str(folder)])
    assert not done.value.code
    said = capsys.readouterr()
    assert str(folder / "figure-1.svg") in said.out and "pip install 'fglaudit[png]'" in said.err
    assert (folder / "figure-1.png").read_text() == "somebody's own"
    png_format.lacking.cache_clear()


def test_latex_escapes_everything() -> None:
    assert latex("a_b & 5\u202f% {x} \\ < 1 ~^$#") == (
        r"a\_b \& 5\,\% \{x\} \textbackslash{} \textless{} 1 \textasciitilde{}\textasciicircum{}\$\#"
    )


def test_tables_for_papers_are_whole(demo: Path) -> None:
    text = (demo / "summary.tex").read_text("utf-8")
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "&" in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {8}  # 6 columns and 3 observers


def test_what_pictures_lack_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is there is not asked for again: then no font was found."""
    monkeypatch.setattr(png_format, "png", lambda svg: b"")

    def missing() -> str:
        png_format.lacking.cache_clear()
        return png_format.missing()

    monkeypatch.setattr(png_format, "lacking", functools.cache(png_format.lacking.__wrapped__))
    monkeypatch.setitem(sys.modules, "resvg_py", ModuleType("resvg_py"))
    assert "font" in missing() and "pip install" not in missing()
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert "pip install 'fglaudit[png]'" in missing()
    monkeypatch.setattr(png_format, "png", lambda svg: svg.encode())
    monkeypatch.setitem(sys.modules, "resvg_py", ModuleType("resvg_py"))
    assert missing() == ""
