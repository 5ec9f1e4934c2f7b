"""Reports of classes: do nodes lie as often as stated, evenly, each by itself, and only once?

Fresh bindings answer for made-up nodes of every class, and for the real nodes of the run again and again, with their
own classes and others (:mod:`fglaudit.empirical.audits.reports_together`). Numbers of lies are binomial if all is as
stated; the smallest p-value counts, times the number of tests.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.empirical.audits.noise_tests import Found
from fglaudit.empirical.audits.reports_together import (
    EQUAL_DRAWS,
    WORLD,
    law,
    shares,
    some_moved,
    stated_law,
    two_sided,
    worlds,
)
from fglaudit.empirical.replays.report_stage import NODES, ReportStage, classes_of
from fglaudit.empirical.replays.staging import Staged
from fglaudit.facts import Memoised, on
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.payloads import MessageBatch
from fglaudit.rng import derive

PER_CLASS = 4000
"""Made-up nodes of every class."""
GENERATORS = 32
"""Bindings that answer for the real nodes."""


def class_reports_audits(staged: Staged, *, seed: int) -> tuple[Audit, ...]:
    """Return the audits "reports", "fields" and "foreign randomness" of every k-ary response."""
    stages = [stage for each in staged.stages.values() for stage in each if isinstance(stage, ReportStage)]
    return tuple(audit for stage in stages for audit in _audits(stage, staged, seed))


def _audits(stage: ReportStage, staged: Staged, seed: int) -> tuple[Audit, ...]:
    true = classes_of(stage.batch.payload, stage.field)
    answers = torch.stack([_answers(stage, seed, generator) for generator in range(GENERATORS)])
    found = [*_law(stage, seed), *alone(answers != true, 1 - stage.keep), *alike(answers, stage.keep, stage.classes)]
    found += _together(stage, seed)
    if any(isinstance(fact, Memoised) for fact in on(staged.facts, type(stage.batch.payload))):
        found.append(_once(stage, seed))
    worst = min(found, key=lambda each: each.p)
    p = min(1.0, len(found) * worst.p)
    words = worst.words if p <= REFUTED_AT else "as often as stated, evenly, each by itself"
    foreign = not torch.equal(_answers(stage, seed, 0), answers[0])
    return (
        Audit(
            AuditName.REPORTS,
            Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED,
            f"{stage.name}: {words} ({len(found)} tests, p {p:.2g})",
            p,
        ),
        *_moves(stage, seed),
        _order(stage, seed),
        Audit(
            AuditName.FOREIGN_RANDOMNESS,
            Outcome.UNTESTED if foreign else Outcome.PASSED,
            f"equal generators gave {'different' if foreign else 'equal'} reports",
        ),
    )


def _answers(stage: ReportStage, seed: int, generator: int, true: Tensor | None = None) -> Tensor:
    """Return what the real nodes report [n] under one generator, if their classes are ``true`` [n] (or their own)."""
    rng = derive(seed, "audits", "class reports", generator)
    batch = _copied(stage.batch)
    if true is not None:
        nodes = stage.batch.payload.tensors()[NODES].cpu()
        batch = _with_classes(stage, true[torch.argsort(torch.argsort(nodes, stable=True), stable=True)])
    return classes_of(stage.fresh().release(batch, rng), stage.field)


def _copied(batch: MessageBatch, **changed: Tensor) -> MessageBatch:
    """Return the messages, with other fields if any, in memory of their own: a hook may change them in place."""
    fields = {**batch.payload.tensors(), **changed}
    payload = type(batch.payload).from_tensors({name: values.clone() for name, values in fields.items()})
    return dataclasses.replace(batch, payload=payload)


def _law(stage: ReportStage, seed: int) -> list[Found]:
    """Test how often nodes of every class report every class."""
    true = torch.arange(stage.classes).repeat(PER_CLASS)
    said = stage.answers(stage.fresh(), true, 0, derive(seed, "audits", "law of reports"))
    return law(said[None], true, stated_law(stage.keep, stage.classes), "")


def _messages(stage: ReportStage) -> tuple[Tensor, Tensor]:
    """Return the classes of the real nodes, in the order of their numbers, and in which message each reports [n]."""
    order = torch.argsort(stage.batch.payload.tensors()[NODES].cpu(), stable=True)
    return classes_of(stage.batch.payload, stage.field), stage.batch.entry_messages()[order]


def _together(stage: ReportStage, seed: int) -> list[Found]:
    """Test the lies of real nodes among others of few classes, and how many of them lie in every message."""
    own, message = _messages(stage)
    found: list[Found] = []
    for number, (where, true) in enumerate(worlds(own, message, stage.classes, derive(seed, "audits", "worlds"))):
        first = GENERATORS + number * WORLD
        answers = torch.stack([_answers(stage, seed, generator, true) for generator in range(first, first + WORLD)])
        found += [
            *law(answers, true, stated_law(stage.keep, stage.classes), where),
            *shares(answers, true, message, stage.keep),
        ]
    return found


def _moves(stage: ReportStage, seed: int) -> list[Audit]:
    """Return that what nodes report moves with the classes of others while draws are equal, if it does: of how they are
    tied, tests of numbers of lies see some ways."""
    own, _ = _messages(stage)
    for generator in range(EQUAL_DRAWS):
        other, kept = some_moved(own, stage.classes, derive(seed, "audits", "moved classes", generator))
        one, two = (_answers(stage, seed, generator, true) for true in (own, other))
        if not torch.equal(one[kept], two[kept]):
            why = (
                f"{stage.name}: with equal draws, what a node reports moves with the classes of other nodes, so it is"
                " not known to protect each by itself; draw the same numbers for every node, whatever its class is"
            )
            return [Audit(AuditName.REPORTS, Outcome.UNTESTED, why)]
    return []


def alone(lies: Tensor, chance: float) -> list[Found]:
    """Test the lies [G, n] of real nodes: by generator, by node, and by pairs of nodes one after the other."""
    generators, nodes = lies.shape
    by_generator = two_sided(lies.sum(1).numpy(), nodes, chance)
    by_node = two_sided(lies.sum(0).numpy(), generators, chance)
    pairs = lies[:, : nodes - nodes % 2].view(generators, -1, 2).all(2)
    both = two_sided(np.array([int(pairs.sum())]), pairs.numel(), chance**2)
    return [
        Found(len(by_generator) * float(by_generator.min()), "nodes lie together: in one run too many or too few do"),
        Found(len(by_node) * float(by_node.min()), "a node lies too often or too rarely, whatever the generator"),
        Found(float(both[0]), "nodes that follow one another lie together"),
    ]


def alike(answers: Tensor, keep: float, classes: int) -> list[Found]:
    """Test whether two generators make all nodes report the same [G, n]."""
    same = keep**2 + (1 - keep) ** 2 / (classes - 1)
    alike = (answers[1:] == answers[:-1]).sum(1).numpy()
    p = np.asarray(binom.sf(alike - 1, answers.shape[1], same))
    return [Found(len(p) * float(p.min()), "two generators give the same reports of too many nodes")]


def _once(stage: ReportStage, seed: int) -> Found:
    """Test whether nodes that are asked again, after their class has changed, say what they said before."""
    session, rng = stage.fresh(), derive(seed, "audits", "asked again")
    first = classes_of(session.release(_copied(stage.batch), rng), stage.field)
    moved = (stage.batch.payload.tensors()[stage.field].argmax(1) + 1) % stage.classes
    again = dataclasses.replace(_with_classes(stage, moved), round=stage.batch.round + 1)
    said = classes_of(session.release(again, rng), stage.field)
    words = f"{int((said != first).sum())} of {len(first)} nodes that are asked again answer anew"
    return Found(1.0 if torch.equal(said, first) else 0.0, words)


def _order(stage: ReportStage, seed: int) -> Audit:
    """Return whether the order of the rows tells classes: with equal draws and other classes it must stay as it is.

    If it had one law whatever the classes are, one order under all generators with these classes and another one with
    those would have a chance of one half per generator at most.
    """
    rng = derive(seed, "audits", "classes of reports")
    drawn = torch.randint(stage.classes, (2, len(stage.batch.payload.tensors()[NODES])), generator=rng)
    worlds = [_with_classes(stage, classes) for classes in drawn]
    orders: list[list[Tensor]] = [[], []]
    for generator in range(GENERATORS):
        for seen, batch in zip(orders, worlds, strict=True):
            rng = derive(seed, "audits", "order of reports", generator)
            seen.append(stage.fresh().release(_copied(batch), rng).tensors()[NODES])
    one, other = (torch.stack(seen) for seen in orders)
    if torch.equal(one, other):
        return Audit(AuditName.FIELDS, Outcome.PASSED, "the order of reports stays with other classes")
    fixed = bool((one == one[:1]).all()) and bool((other == other[:1]).all())
    p = 0.5**GENERATORS if fixed else None
    outcome = Outcome.REFUTED if fixed else Outcome.UNTESTED
    return Audit(AuditName.FIELDS, outcome, f"the order of the rows of {stage.name} moves with the classes", p)


def _with_classes(stage: ReportStage, classes: Tensor) -> MessageBatch:
    """Return the real messages with other true ``classes`` [n], row by row."""
    true = stage.batch.payload.tensors()[stage.field]
    return _copied(stage.batch, **{stage.field: one_hot(classes, stage.classes).to(true)})
