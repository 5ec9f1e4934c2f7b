"""The page in headless Chromium, where it is installed: no console error, no sideways scrolling, sizes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_runs import make_run, store

from fglaudit.reports import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="headless Chromium is not installed: apt install chromium")

PROBE = "<script>document.title = 'w=' + document.documentElement.scrollWidth + ' of ' + innerWidth</script></body>"


def browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *options]
    return subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store(tmp_path_factory.mktemp("browser") / "run", make_run(seeds=(0,)))
    write_report(folder)
    return folder / "report.html"


def test_the_page_has_no_console_error_and_its_script_runs(page: Path) -> None:
    done = browse(page, "--dump-dom")
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert re.search(r"\d+ of \d+ settings", done.stdout)  # written by the script: search and filter are there


def test_a_console_error_would_be_seen(page: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(page.read_text("utf-8").replace("</body>", "<img src='https://example.org/x.png'></body>"), "utf-8")
    assert "CONSOLE" in browse(bad, "--dump-dom").stderr


@pytest.mark.parametrize("width", [390, 320])  # a phone, and a screen of 1280 pixels at 400 %
def test_nothing_scrolls_sideways_on_a_phone(page: Path, tmp_path: Path, width: int) -> None:
    text = page.read_text("utf-8")
    probed = re.sub(r"<meta http-equiv=[^>]*>", "", text).replace("</body>", PROBE)
    # Headless windows are 500 px wide at least: an inner frame gives the width of a phone.
    (tmp_path / "inner.html").write_text(probed, "utf-8")
    outer = tmp_path / "outer.html"
    outer.write_text(
        f"<iframe id=f src=inner.html width={width} height=800 style='border:0'></iframe>"
        "<script>f.onload = () => { document.title = f.contentDocument.title }</script>", "utf-8"
    )  # fmt: skip
    done = browse(outer, "--dump-dom", "--allow-file-access-from-files", "--virtual-time-budget=4000")
    found = re.search(r"<title>w=(\d+) of (\d+)</title>", done.stdout)
    assert found is not None
    assert int(found[1]) <= int(found[2]) == width


def test_the_page_is_small(page: Path) -> None:
    assert page.stat().st_size < 400_000


def test_columns_are_sorted_by_buttons(page: Path, tmp_path: Path) -> None:
    """Which every keyboard and screen reader works."""
    press = "<script>document.querySelector('.heat thead th:nth-child(2) button').click()</script></body>"
    probed = tmp_path / "sorted.html"
    probed.write_text(
        re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text("utf-8")).replace("</body>", press), "utf-8"
    )
    body = browse(probed, "--dump-dom").stdout
    assert re.search(r'<th scope="col" aria-sort="ascending"><button type="button"[^>]*>Accuracy</button>', body)
    shown = re.findall(r'<td data-label="Accuracy" data-sort="([-\d.]+)">', body)
    assert len(shown) > 2 and shown == sorted(shown, key=float)
