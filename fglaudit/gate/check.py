"""What a gate compared, and what came of it: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from fglaudit.execution.exit_code import ExitCode, combined


@dataclass(frozen=True)
class Check:
    """One thing that a policy asks, or that every policy asks.

    Attributes:
        name: e.g. ``client:each features advantage_high``.
        wanted, got: in words.
        passed: False if it is broken or not shown.
        code: exit code where it is broken.
    """

    name: str
    wanted: str
    got: str
    passed: bool
    code: ExitCode = ExitCode.GATE


@dataclass(frozen=True)
class GateResult:
    """What became of a gate."""

    run: str
    checks: tuple[Check, ...]

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    @property
    def code(self) -> ExitCode:
        return combined(check.code for check in self.broken)
