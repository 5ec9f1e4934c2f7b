"""Files that are no graph are refused in one line, which says what is wrong where."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_calls import EDGES, NODES, call, own_folder  # noqa: F401  (a fixture of every test here)

WRONG = [
    ({"nodes.csv": ""}, [], "is empty"),
    ({"nodes.csv": "id,label,a\n"}, [], "at least one node"),
    ({"nodes.csv": NODES + "n1,red,,1,1\n"}, [], "a node is listed once"),
    ({"nodes.csv": NODES + "n5,red,,1\n"}, [], "line 6 of nodes.csv has 4 instead of 5"),
    ({"nodes.csv": NODES.replace("n2,blue,val,0,1", "n2,blue,val,warm,1")}, [], "'a' is 'warm' at nodes.csv line 3"),
    ({"nodes.csv": NODES.replace("n2,blue,val,0,1", "n2,blue,val,inf,1")}, [], "finite"),
    ({"nodes.csv": NODES.replace("n2,blue,val,0,1", "n2,blue,val,1e38,1")}, [], "'a' is '1e38' at nodes.csv line 3"),
    ({"nodes.csv": NODES.replace("red", "2").replace("blue", "2")}, [], "at least two; every label is 2"),
    ({"nodes.csv": NODES.replace("val", "vla")}, [], "did you mean 'val'"),
    ({"nodes.csv": NODES.replace("label", "colour")}, [], "--label"),
    ({"nodes.csv": NODES.replace("red", "").replace("blue", "")}, [], "at least one node must have a label"),
    ({"nodes.csv": "id,label\n1,0\n2,1\n"}, [], "at least one feature"),
    ({"nodes.csv": NODES.replace("a,b", "a,a")}, [], "twice"),
    ({"nodes.csv": "\0" + NODES}, [], "null"),
    ({"nodes.csv": NODES.replace("train", "")}, [], "train_mask"),
    ({"edges.csv": EDGES + "n1,n9\n"}, [], "edges.csv line 7 names 'n9'"),
    ({"edges.csv": "source\nn1\n"}, [], "names two nodes"),
    ({}, ["--label", "labl"], "did you mean 'label'"),
    ({}, ["--id", "idd"], "did you mean 'id'"),
    ({}, ["--drop", "c"], "unknown attribute of nodes 'c'"),
    ({}, ["--split", "spilt"], "did you mean 'split'"),
]


@pytest.mark.parametrize(("files", "options", "words"), WRONG)
def test_wrong_tables_are_one_line(
    files: dict[str, str], options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        Path(name).write_text(text)
    assert call("import", "nodes.csv", "edges.csv", "-o", "out.npz", *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error, error
    assert not Path("out.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nodes.csv", "-o", "out.npz"], "CSV takes two files"),
        (["nowhere.csv", "edges.csv", "-o", "out.npz"], "there is no file nowhere.csv"),
        (["g.xml", "-o", "out.npz"], "unknown format '.xml'"),
        (["g.json", "-o", "out.npz"], "must be sound"),
        (["list.json", "-o", "out.npz"], "lists nodes and links"),
        (["noid.json", "-o", "out.npz"], "nodes[0]"),
        (["deep.json", "-o", "out.npz"], "must be sound"),
        (["g.graphml", "-o", "out.npz"], "must be sound"),
        (["g.gml", "-o", "out.npz"], "must be sound"),
        (["g.json", "nodes.csv", "-o", "out.npz"], "CSV takes two files"),
        (["g.json", "list.json", "-o", "out.npz"], "one file with nodes and edges"),
        (["g.pt", "-o", "out.npz"], "without running code"),
        (["none.pt", "-o", "out.npz"], "there is no file none.pt"),
        (["nodes.csv", "edges.csv", "-o", "out.txt"], "written as .npz"),
        (["nodes.csv", "edges.csv", "-o", "here.npz"], "not written over"),
        (["nodes.csv", "edges.csv", "-o", "nowhere/out.npz"], "there is no nowhere"),
        (["latin.csv", "edges.csv", "-o", "out.npz"], "UTF-8"),
        ([".", "-o", "out.npz"], "unknown format"),
    ],
)
def test_wrong_files_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("g.json", "g.graphml", "g.gml", "g.pt"):
        Path(name).write_text("{ this is none of them")
    Path("list.json").write_text("[1, 2]")
    Path("noid.json").write_text('{"nodes": [{"a": 1}], "links": []}')
    Path("deep.json").write_text("[" * 200_000)
    Path("latin.csv").write_bytes("id,label,a\nä,1,1\n".encode("latin-1"))
    Path("here.npz").write_text("")
    assert call("import", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error, error
