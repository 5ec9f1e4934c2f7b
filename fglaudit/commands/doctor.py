"""``fglaudit doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from fglaudit.execution.exit_code import ExitCode


def doctor(
    full: Annotated[bool, typer.Option("--full", help="Import torch and optional packages too (seconds).")] = False,
) -> None:
    """Check the installation: versions, optional packages, devices, data sets; says how to get what is missing."""
    from fglaudit.doctor import examine

    broken = False
    for check in examine(full):
        fix = f"  -> {check.fix}" if check.state != "ok" and check.fix else ""
        print(f"{check.state:<8} {check.what:<18} {check.detail}{fix}")
        broken |= check.state == "broken"
    if broken:
        raise SystemExit(int(ExitCode.FAILED))
