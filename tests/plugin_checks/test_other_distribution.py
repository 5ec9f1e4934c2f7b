"""Plugins that come with another distribution: found by entry points, checked from its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEFENSE = '''
from dataclasses import dataclass
from typing import ClassVar

from fglaudit.interfaces import Defense, DefenseSession


class Quiet(DefenseSession):
    def changes(self, payload):
        return False


@dataclass(frozen=True)
class Borrowed(Defense):
    """Does nothing, from somewhere else."""

    name: ClassVar[str] = "borrowed"

    def bind(self, context):
        return Quiet()
'''
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "borrowed"
version = "1"

[project.entry-points."fglaudit.defenses"]
borrowed = "borrowed:Borrowed"

[tool.setuptools]
py-modules = ["borrowed"]
"""
ITS_TESTS = """
from borrowed import Borrowed


def test_it_is_as_open_as_none(fglaudit_check):
    fglaudit_check(Borrowed())


def test_a_wrong_kind_is_named(fglaudit_check):
    fglaudit_check("borrowed")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the other distribution into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    (source / "borrowed.py").write_text(DEFENSE, "utf-8")
    (source / "pyproject.toml").write_text(PROJECT, "utf-8")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    done = subprocess.run([*install, str(target), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run(installed: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(installed)])}
    return subprocess.run([sys.executable, "-m", *arguments], env=environment, cwd=cwd, capture_output=True, text=True)


def named_plugins(installed: Path) -> str:
    """Return what pytest will load by itself in such a process."""
    code = "from importlib.metadata import entry_points as e; print([p.name for p in e(group='pytest11')])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(installed)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=installed, capture_output=True, text=True)
    return done.stdout


@pytest.mark.slow
def test_its_defense_is_listed_and_explained(installed: Path) -> None:
    assert "borrowed" in run(installed, "fglaudit", "list", "defenses").stdout
    assert "from somewhere else" in run(installed, "fglaudit", "show", "borrowed").stdout


@pytest.mark.slow
def test_its_own_tests_check_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_borrowed.py").write_text(ITS_TESTS, "utf-8")
    plugin = () if "fglaudit" in named_plugins(installed) else ("-p", "fglaudit.pytest")  # a bare checkout
    done = run(installed, "pytest", "-q", "-p", "no:cacheprovider", *plugin, "--no-header", cwd=tmp_path)
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    assert "leaks" in done.stdout and "verdict: FAULT" in done.stdout  # it protects nothing
    assert "a plugin is an instance of a class that extends one of" in done.stdout


def test_pytest_finds_the_fixture_where_the_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"fglaudit": "fglaudit.pytest"}
