"""Calls of ``fglaudit import`` on two tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from fglaudit.cli import main

NODES = "id,label,split,a,b\nn1,red,train,1,0\nn2,blue,val,0,1\nn3,red,test,1,\nn4,,,0,0\n"
EDGES = "source,target\nn1,n2\nn2,n1\nn2,n3\nn2,n3\nn3,n3\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder that holds the two tables alone."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES)
    Path("edges.csv").write_text(EDGES)
    return tmp_path


def call(*arguments: str) -> int:
    """Return the exit code of the command."""
    try:
        main(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    return 0
