"""Reports of classes: do nodes lie as often as stated, evenly, each by itself, and only once?

Fresh bindings answer for made-up nodes of every class, and for the real nodes of the run again and again. Numbers of
lies are binomial if all is as stated; the smallest p-value counts, times the number of tests.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binom
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.empirical.audits.noise_tests import Found
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
        _order(stage, seed),
        Audit(
            AuditName.FOREIGN_RANDOMNESS,
            Outcome.UNTESTED if foreign else Outcome.PASSED,
            f"equal generators gave {'different' if foreign else 'equal'} reports",
        ),
    )


def _answers(stage: ReportStage, seed: int, generator: int) -> Tensor:
    """Return what the real nodes report [n] under one generator."""
    rng = derive(seed, "audits", "class reports", generator)
    return classes_of(stage.fresh().release(_copied(stage.batch), rng), stage.field)


def _copied(batch: MessageBatch, **changed: Tensor) -> MessageBatch:
    """Return the messages, with other fields if any, in memory of their own: a hook may change them in place."""
    fields = {**batch.payload.tensors(), **changed}
    payload = type(batch.payload).from_tensors({name: values.clone() for name, values in fields.items()})
    return dataclasses.replace(batch, payload=payload)


def _law(stage: ReportStage, seed: int) -> list[Found]:
    """Test how often nodes of every class report every class."""
    true = torch.arange(stage.classes).repeat(PER_CLASS)
    said = stage.answers(stage.fresh(), true, 0, derive(seed, "audits", "law of reports"))
    counts = torch.bincount(true * stage.classes + said, minlength=stage.classes**2).view(stage.classes, -1)
    stated = np.full(counts.shape, (1 - stage.keep) / (stage.classes - 1))
    np.fill_diagonal(stated, stage.keep)
    p = two_sided(counts.numpy(), PER_CLASS, stated)
    return [
        Found(float(p[one, other]), f"of {PER_CLASS} nodes of class {one} {int(counts[one, other])} report {other}")
        for one in range(stage.classes)
        for other in range(stage.classes)
    ]


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


def two_sided(
    counts: npt.NDArray[np.int64], runs: int | npt.NDArray[np.int64], chance: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return p-values [...] of binomial counts [...] in ``runs`` draws each."""
    tails = np.minimum(binom.cdf(counts, runs, chance), binom.sf(counts - 1, runs, chance))
    return np.asarray(np.minimum(1.0, 2 * tails))
