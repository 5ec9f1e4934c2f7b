"""The wheel holds every package, suite and template, and nothing outside the name `fglaudit`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"fglaudit": ROOT / "fglaudit"} | {
    f"fglaudit/{name}": ROOT / name for name in ("attacks", "defenses", "protocols", "reports")
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    out = tmp_path_factory.mktemp("wheel")
    # A copy, because setuptools keeps what it once built under build/ and would hide a package that went missing.
    source = out / "source"
    shutil.copytree(
        ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "runs", "bench", "*.egg-info")
    )
    # The test environment has the build backend; isolation would fetch it again.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return set(zipfile.ZipFile(path).namelist())


def test_every_module_suite_and_template_is_in_the_wheel(wheel: set[str]) -> None:
    wanted = set()
    for inside, folder in FOLDERS.items():
        for pattern in (
            "**/*.py",
            "**/*.yaml",
            "**/*.j2",
            "**/*.css",
            "**/*.js",
            "**/*.csv",
            "**/*.txt",
            "**/py.typed",
        ):
            for file in folder.glob(pattern):
                relative = file.relative_to(folder)
                linked = inside == "fglaudit" and relative.parts[0] in ("attacks", "defenses", "protocols", "reports")
                if not linked and "__pycache__" not in relative.parts:
                    wanted.add(f"{inside}/{relative.as_posix()}")
    assert wanted - wheel == set()


def test_nothing_lands_outside_the_package(wheel: set[str]) -> None:
    top = {name.split("/")[0] for name in wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == {"fglaudit"}


def test_links_resolve_from_a_checkout() -> None:
    for name in ("attacks", "defenses", "protocols", "reports"):
        link = ROOT / "fglaudit" / name
        assert link.is_symlink() and not link.readlink().is_absolute() and link.resolve() == ROOT / name
