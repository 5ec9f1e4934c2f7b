"""Rule 4 in a cell: an attack that gets nothing must be seen to succeed through the same defense at no strength.

Rows of attacks that got next to nothing under a defense, and could be called "held", are asked again: the cell is
trained once more with ``defense.weakened(NEXT_TO_NONE)``, everything else alike, and those attacks are run for those
observers. Only whether they succeed is asked: their self-tests stand in the rows already. A defense without a strength
is asked with planted rows instead, see :mod:`fglaudit.scoring.through_defense`; so is one that is weakened to a defense
of another class. Nothing is asked of undefended cells, nor of rows that show a leak.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import torch

from fglaudit.adversary.running.attack_stream import attack_stream
from fglaudit.attacking import run_attacks
from fglaudit.doing import tell
from fglaudit.facts import Fact, Sampled, Scaled, Target
from fglaudit.finding import NO, RAISED, YES, Cause, Finding, Reason, Status
from fglaudit.graph import Graph
from fglaudit.interfaces import Attack
from fglaudit.observers import expand
from fglaudit.recording import record
from fglaudit.scoring.output import Output
from fglaudit.scoring.score import Measurement, Scorer
from fglaudit.scoring.through_defense import works_through
from fglaudit.suite.cell import Cell
from fglaudit.tracebacks import kept

_Row = tuple[str, str, str]
"""Observer, its knowledge and attack."""
NEXT_TO_NONE = 0.001
"""Share of a defense's strength at which an attack must succeed."""
FEW_MEMBERS = 5
"""Clients that are asked first where each client in turn is the observer: an attack that succeeds against them need not
be run against the others. It is the fewest for which there is an interval."""
SUCCEEDS_ABOVE = 0.02
"""Advantage above which an attack has succeeded."""
_ACTS = ("prepare", "merge", "local_update", "release", "seal")


def asked(measured: Measurement, output: Output) -> bool:
    """Whether a row might be called "held" on account of a defense."""
    finding = measured.finding
    if not finding.can_reassure or finding.advantage is None or not output.views:
        return False
    return finding.advantage <= SUCCEEDS_ABOVE and bool(set(output.views[0].public.hooks) & set(_ACTS))


def with_weakened(
    cell: Cell,
    outputs: Sequence[Output],
    measured: Sequence[Measurement],
    device: torch.device,
    key: bytes = b"",
    whole: Graph | None = None,
) -> list[Measurement]:
    """Return ``measured`` with the column ``succeeds_weakened`` filled in where it is asked.

    Args:
        whole: the cell's graph where it is in memory alone.
    """
    places = [i for i, (m, o) in enumerate(zip(measured, outputs, strict=True)) if asked(m, o)]
    if not places:
        return list(measured)
    weak = cell.defense.weakened(NEXT_TO_NONE)
    if weak == cell.defense or type(weak) is not type(cell.defense):  # another defense, or none, tells nothing of it
        return through_planted_rows(outputs, measured, device)
    rows = [measured[i].finding for i in places]
    done = _kinds(outputs[places[0]].views[0].public.facts)
    succeeded, raised = _recorded_again(dataclasses.replace(cell, defense=weak), rows, device, key, whole, done)
    result = list(measured)
    for i in places:
        finding = measured[i].finding
        word = YES if row_of(finding) in succeeded else NO
        result[i] = _answered(measured[i], word, raised.get(row_of(finding), ""))
    return result


def through_planted_rows(
    outputs: Sequence[Output],
    measured: Sequence[Measurement],
    device: torch.device,
    told: Mapping[tuple[str, str, str], str] | None = None,
) -> list[Measurement]:
    """Return ``measured`` with the column filled in by planted rows, without training anything.

    Args:
        told: by row what a training under the weakened defense answered already.
    """
    result = []
    for found, output in zip(measured, outputs, strict=True):
        if not asked(found, output):
            result.append(found)
            continue
        if word := (told or {}).get(row_of(found.finding), ""):
            result.append(_answered(found, word))
            continue
        tell(f"attack {found.finding.attack} on rows planted behind the defense")
        view = output.views[output.tested]
        rng = attack_stream(output.attack, view, "through the defense")
        through = works_through(output.attack, view, rng, device)
        result.append(_answered(found, YES if through.works else NO, through.raised))
    return result


def _answered(measured: Measurement, word: str, raised: str = "") -> Measurement:
    """Return ``measured`` with the column filled in; a "no" where something ``raised`` measures nothing: it says so."""
    finding = dataclasses.replace(measured.finding, succeeds_weakened=word)
    if word == NO and raised:
        reason = "; ".join(filter(None, (finding.reason, f"{RAISED}{raised}")))
        finding = finding.ended(finding.status, Reason(reason, Cause.RAISED))
    return dataclasses.replace(measured, finding=finding)


def _recorded_again(
    cell: Cell,
    rows: Sequence[Finding],
    device: torch.device,
    key: bytes,
    whole: Graph | None,
    done: Collection[tuple[type[Fact], Target]],
) -> tuple[set[_Row], dict[_Row, str]]:
    """Return which of ``rows`` succeed under the weakened cell, and what was raised in place of an answer; none of them
    succeed where it cannot be trained, or states less than what is ``done`` at full strength."""
    names = {row.attack for row in rows}
    seen = {(row.observer, row.observer_knowledge) for row in rows}
    attacks: tuple[Attack, ...] = tuple(a for a in cell.attacks if type(a).name in names)
    observers = tuple(spec for spec in cell.observers if (spec.name, spec.knowledge) in seen)
    weak = dataclasses.replace(cell, attacks=attacks, observers=observers, record="needed", empirical=False)
    tell(f"training again under {type(weak.defense).name} at next to no strength")
    try:
        recording, truth = record(weak, device=device, key=key, whole=whole)
    except Exception as error:  # whatever goes wrong, the attack was not seen to succeed
        why = kept(error, f"training under {type(weak.defense).name} at next to no strength")
        words = f"training at next to no strength raised {why}"
        return set(), {row_of(row): words for row in rows}
    if left_out := [kind.__name__ for kind, target in done if (kind, target) not in _kinds(recording.public.facts)]:
        words = (
            f"at next to no strength {type(weak.defense).name} leaves out {', '.join(left_out)}, so it is another one"
        )
        return set(), {row_of(row): words for row in rows}
    scorer = Scorer(truth)
    wanted = {row_of(row) for row in rows}
    succeeded: set[_Row] = set()
    raised: dict[_Row, str] = {}
    for members in (FEW_MEMBERS, None):
        for spec in observers:
            left = [a for a in attacks if (spec.name, spec.knowledge, type(a).name) in wanted - succeeded]
            if members is None and len(expand(spec, recording.public.num_clients)[0]) <= FEW_MEMBERS:
                continue  # all of them were asked already
            outputs = run_attacks(
                recording,
                [spec],
                left,
                device=device,
                nothing_to_ask=scorer.nothing_to_ask,
                most_members=members,
                self_tests=False,
            )
            findings = [scorer.measure(output).finding for output in outputs]
            succeeded |= {row_of(f) for f in findings if _succeeds(f)}
            raised |= {
                row_of(f): f"at next to no strength, it raised {f.reason}"
                for f in findings
                if f.status is Status.FAILED
            }
    return succeeded, raised


def _kinds(facts: Sequence[Fact]) -> list[tuple[type[Fact], Target]]:
    """Return what is done to what; not whether it is done to a sample, which all of it is at no strength."""
    return [(type(fact), fact.target) for fact in facts if not isinstance(fact, Sampled | Scaled)]


def row_of(finding: Finding) -> _Row:
    """Return what names a row within its cell."""
    return finding.observer, finding.observer_knowledge, finding.attack


def _succeeds(finding: Finding) -> bool:
    low = finding.advantage if finding.advantage_low is None else finding.advantage_low
    return low is not None and low > SUCCEEDS_ABOVE
