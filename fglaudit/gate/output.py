"""What a gate says: text for people, JSON for scripts, JUnit XML for CI servers, annotations for GitHub."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from fglaudit.errors import printable
from fglaudit.gate.check import Check, GateResult


def text(outcome: GateResult) -> str:
    """One line per check, the broken ones first."""
    broken = outcome.broken
    head = f"gate broken: {len(broken)} of {len(outcome.checks)} checks" if broken else "gate passed"
    ordered = [*broken, *(check for check in outcome.checks if check.passed)]
    return "\n".join([f"{head}: {printable(outcome.run)}", *(f"  {_line(check)}" for check in ordered)])


def _line(check: Check) -> str:
    word = "ok    " if check.passed else "BROKEN"
    return printable(f"{word}  {check.name}: wanted {check.wanted}; got {check.got}")


def as_json(outcome: GateResult) -> str:
    """``{"run", "passed", "exit_code", "checks": [{"name", "wanted", "got", "passed"}]}``."""
    checks = [
        {"name": check.name, "wanted": check.wanted, "got": check.got, "passed": check.passed}
        for check in outcome.checks
    ]
    passed = not outcome.broken
    return json.dumps(
        {"run": outcome.run, "passed": passed, "exit_code": int(outcome.code), "checks": checks}, indent=2
    )


def junit(outcome: GateResult) -> str:
    """One test suite with a test case per check."""
    suite = ElementTree.Element(
        "testsuite", name="fglaudit gate", tests=str(len(outcome.checks)), failures=str(len(outcome.broken)), errors="0"
    )
    for check in outcome.checks:
        case = ElementTree.SubElement(suite, "testcase", classname="fglaudit.gate", name=printable(check.name))
        if not check.passed:
            said = printable(f"wanted {check.wanted}; got {check.got}")
            ElementTree.SubElement(case, "failure", message=said).text = said
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def github(outcome: GateResult) -> str:
    """Annotations of GitHub Actions: an error per broken check, one notice where all passed."""
    if not outcome.broken:
        return f"::notice title=fglaudit gate::{_escaped(f'{len(outcome.checks)} checks passed')}"
    return "\n".join(
        f"::error title={_property(f'fglaudit gate: {check.name}')}::"
        + _escaped(printable(f"wanted {check.wanted}; got {check.got}"))
        for check in outcome.broken
    )


def _escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _escaped(printable(value)).replace(":", "%3A").replace(",", "%2C")
