"""The checks of a policy on a run: each passes or is broken, with what was wanted and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fglaudit.empirical.fields.states import PROTOCOL
from fglaudit.execution.exit_code import ExitCode, refuted
from fglaudit.execution.folder.stored_run import Manifest, read_manifest
from fglaudit.finding import CellRecord, Status
from fglaudit.gate.askable import check_askable, observer_names
from fglaudit.gate.check import Check, GateResult
from fglaudit.gate.guarantee_checks import guarantee_checks
from fglaudit.gate.naming import name_one
from fglaudit.gate.observer_checks import observer_checks
from fglaudit.gate.policy import Allow, Policy
from fglaudit.gate.upper_ends import concerns, silent
from fglaudit.guarantees import Protection
from fglaudit.parties import HONEST
from fglaudit.reports.alarms import unchecked
from fglaudit.reports.answers import answers, applies
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import against, plural
from fglaudit.reports.records import Run, load_run
from fglaudit.reports.summary import Setting, summarize


def check_run(directory: Path, policy: Policy) -> GateResult:
    """Compare the run in ``directory`` with ``policy``.

    Raises:
        FglauditError: no run, no readable ``run.json`` (nothing says which rows are expected), or the policy asks what
            no run of this suite can show.
    """
    manifest = read_manifest(directory)
    run = load_run(directory)
    settings = summarize(run)
    found = answers(settings)
    unaskable = check_askable(policy, run, manifest, found)
    labels = Labels.of(settings)
    trained = [setting for setting in settings if applies(setting)]
    checks = [*_whole(run, manifest, policy.allow), _refuted(run.cells), *_unchecked(settings, labels)]
    checks += _active(manifest, policy.allow.servers)
    checks += unaskable
    for name, quantities in policy.observers.items():
        here = [a for a in found if name in observer_names(a.observer) and a.applies]
        for quantity, want in quantities.items():
            asked = [answer for answer in here if answer.quantity == quantity]
            checks += observer_checks(name, quantity, want, asked, trained, labels)
    if policy.observers:
        checks.append(_unexamined(run.cells, policy))
    if policy.accuracy is not None:
        checks.append(_accuracy(trained, policy.accuracy.min, labels))
    if policy.trainings is not None:
        checks.append(_trainings(trained, policy.trainings.min, labels))
    if policy.epsilon is not None:
        checks += guarantee_checks(trained, policy.epsilon, tuple(policy.observers), labels)
    return GateResult(str(directory), tuple(checks))


def _whole(run: Run, manifest: Manifest, allow: Allow) -> Iterable[Check]:
    """Are all planned rows there, readable, and measured?"""
    rows = {
        record.cell: {(f.observer, f.observer_knowledge, f.attack) for f in record.findings} for record in run.cells
    }
    expected = sum(len(cell.rows) for cell in manifest.plan)
    absent = {item.file.removeprefix("cells/").removesuffix(".json") for item in run.unreadable} | set(run.missing)
    lacking = sum(
        len(cell.rows) if cell.cell in absent else len(set(cell.rows) - rows.get(cell.cell, set()))
        for cell in manifest.plan
    )
    yield Check("rows", f"all {expected} planned rows", f"{lacking} missing or damaged", lacking == 0)
    there = [row for record in run.cells if record.cell not in absent for row in record.findings]
    failed = sum(row.status is Status.FAILED for row in there)
    yield Check("failed", f"at most {allow.failed} failed rows", f"{failed}", failed <= allow.failed)
    broken = [row.attack for row in there if row.status is Status.BROKEN_ATTACK]
    names = f" ({', '.join(sorted(set(broken)))})" if broken else ""
    yield Check(
        "broken attacks",
        f"at most {allow.broken} rows of attacks that fail their self-test (allow.broken)",
        f"{len(broken)}{names}",
        len(broken) <= allow.broken,
    )


def _active(manifest: Manifest, allowed: Sequence[str]) -> list[Check]:
    """A policy is about honest parties unless it allows others: what an active one gets is not what it asks about."""
    found = dict.fromkeys(str(cell.columns["server"]) for cell in manifest.plan)
    others = [name for name in found if name != HONEST]
    if not others:
        return []
    odd = [name for name in others if name.partition("(")[0] not in allowed]
    wanted = " or ".join([HONEST, *allowed])
    return [Check("servers", f"parties are {wanted} (allow.servers)", "; ".join(odd or others), not odd)]


def _refuted(records: Sequence[CellRecord]) -> Check:
    said = refuted(records)
    return Check("refuted", "no guarantee is refuted", "; ".join(said) or "none", not said, ExitCode.REFUTED)


def _unchecked(settings: Sequence[Setting], labels: Labels) -> list[Check]:
    said = [f"{why} ({name_one(setting, labels)})" for setting in settings if (why := unchecked(setting))]
    return (
        [Check("protocol", "every protocol keeps the rules (fglaudit check)", "; ".join(said), False)] if said else []
    )


def _unexamined(records: Sequence[CellRecord], policy: Policy) -> Check:
    parties = {name.partition(" ")[0] for name in policy.observers}
    fields = {
        f"{state.payload}.{state.field}"
        for record in records
        for state in record.fields
        if state.state is Protection.UNEXAMINED
        and state.payload != PROTOCOL
        and any(concerns(state.observer, name) for name in parties)
    }
    trained = (record for record in records if any(f.accuracy is not None for f in record.findings))
    blank = sum(1 for record in trained if not record.fields and not silent(record))
    got = "; ".join(
        filter(
            None,
            (
                f"unexamined: {', '.join(sorted(fields))}" if fields else "",
                f"{plural(blank, 'cell')} whose records do not say which fields were examined" if blank else "",
            ),
        )
    )
    allowed = policy.allow.unexamined
    return Check("unexamined", "allowed" if allowed else "no unexamined field", got or "none", allowed or not got)


def _accuracy(trained: Sequence[Setting], least: float, labels: Labels) -> Check:
    wanted = f"at least {least:g}"
    found = [(value, s) for s in trained for value in s.per_seed("accuracy")]
    if blank := [name_one(s, labels) for s in trained if len(s.per_seed("accuracy")) < len(s.records)]:
        return Check("accuracy", wanted, f"not known of {', '.join(blank)}", False)
    if not found:
        return Check("accuracy", wanted, "nothing was trained", False)
    value, setting = min(found, key=lambda pair: pair[0])
    return Check("accuracy", wanted, f"{against(value, least)} ({name_one(setting, labels)})", value >= least)


def _trainings(trained: Sequence[Setting], least: int, labels: Labels) -> Check:
    wanted = f"at least {least} of every setting"
    if not trained:
        return Check("trainings", wanted, "nothing was trained", False)
    fewest = min(trained, key=lambda setting: len(setting.seeds))
    count = len(fewest.seeds)
    return Check("trainings", wanted, f"{count} ({name_one(fewest, labels)})", count >= least)
