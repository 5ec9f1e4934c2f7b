"""Ctrl-C while worker processes start is the parent's to handle: no child prints a traceback of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHILD = """
import multiprocessing, signal
from fglaudit.interruption import SIGNALS, held_back

def blocked(pipe):
    pipe.send(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set(SIGNALS))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=blocked, args=(there,))
    with held_back():
        process.start()
    print(here.recv())
    process.join()
"""


def test_the_first_child_starts_with_all_signals_held_back_too(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "True\n", done.stderr
