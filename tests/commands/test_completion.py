"""What a shell offers while a command is typed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fglaudit re", ["report", "reproduce"]),
        ("fglaudit run --da", ["--dataset"]),
        ("fglaudit run quickst", ["quickstart"]),
        ("fglaudit list quan", ["quantities"]),
        ("fglaudit show node-o", ["node-owner"]),
    ],
)
def test_a_shell_completes_commands_options_and_suites(typed: str, offered: list[str]) -> None:
    asked = {"_FGLAUDIT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    command = [sys.executable, "-c", "from fglaudit.__main__ import main; main()"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert set(offered) <= set(done.stdout.split()), done.stderr
