"""k-ary responses replayed: every replay is a node of its own, which reports one class or another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.empirical.replays.stages import Pair, Stage
from fglaudit.facts import K_ARY, Correlated, Fact, Field, Masked, Randomised, on
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.accounted import Noised
from fglaudit.privacy.accounting import Relation, compose, response_event
from fglaudit.privacy.tradeoff import TradeOff

NODES = "nodes"
"""The field that says whose report a row is."""
PAIRS = 4


@dataclass(frozen=True, kw_only=True)
class ReportStage(Stage):
    """Reports of nodes in one message per sender.

    Attributes:
        batch: the real messages of one release, not yet random.
        field: in which the one-hot reports are.
        keep: with what probability the true one of ``classes`` is reported, as stated.
    """

    batch: MessageBatch
    field: str
    keep: float
    classes: int

    @property
    def numbers(self) -> int:
        return self.classes * self.noise.releases

    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        """Return two classes each; the first and the last of them, and others at random."""
        ends = [(0, self.classes - 1), (self.classes - 1, 0)]
        others = [pair for pair in permutations(range(min(self.classes, 16)), 2) if pair not in ends]
        chosen = [others[i] for i in torch.randperm(len(others), generator=rng)[: PAIRS - len(ends)].tolist()]
        identity = torch.eye(self.classes, dtype=torch.float64)
        return [Pair(f"class {one} or {other}", identity[one], identity[other]) for one, other in (*ends, *chosen)]

    def side_by_side(self, given: Tensor, copies: int, rng: torch.Generator) -> Tensor:
        session = self.fresh()
        true = given.argmax().expand(copies)
        seen = [self.answers(session, true, release, rng) for release in range(self.noise.releases)]
        return one_hot(torch.stack(seen, 1), self.classes).double()

    def answers(self, session: DefenseSession, true: Tensor, release: int, rng: torch.Generator) -> Tensor:
        """Return what nodes 0, 1, ... report [n] whose classes are ``true`` [n], each sender's in one message.

        Raises:
            ValueError: if what leaves is no one-hot report.
        """
        senders = torch.unique(self.batch.senders)[: len(true)]
        bounds = torch.linspace(0, len(true), len(senders) + 1).long()
        template = self.batch.payload.tensors()
        values = one_hot(true, self.classes).to(template[self.field])
        payload = type(self.batch.payload).from_tensors({NODES: torch.arange(len(true)), self.field: values})
        receivers = torch.full_like(senders, SERVER)
        sent = MessageBatch(self.batch.round + release, senders, receivers, payload, bounds)
        return classes_of(session.release(sent, rng), self.field)


def classes_of(payload: Payload, field: str) -> Tensor:
    """Return the classes [n] of one-hot reports, in the order of the nodes' numbers: honest senders may mix rows.

    Raises:
        ValueError: if a row is not one-hot.
    """
    values = payload.tensors()[field]
    if not bool((((values == 0) | (values == 1)).all(1) & (values.sum(1) == 1)).all()):
        raise ValueError("what is sent as a report is not one-hot")
    order = torch.argsort(payload.tensors()[NODES].cpu(), stable=True)
    return values.argmax(1).cpu()[order]


def report_stage(
    batch: MessageBatch,
    facts: Sequence[Fact],
    *,
    noise: Noised,
    relation: Relation,
    fresh: Callable[[], DefenseSession],
) -> ReportStage | str:
    """Return the stage of the k-ary responses that ``facts`` state, or why they cannot be replayed."""
    kind, fields = type(batch.payload), batch.payload.tensors()
    about = on(facts, kind, direction="down" if noise.by_server else "up")
    fact = next(f for f in about if isinstance(f, Randomised) and f.kind == K_ARY)
    field = fact.target.name if isinstance(fact.target, Field) else ""
    if noise.by_server or set(fields) != {NODES, field}:
        return f"reports of {noise.payload} are not one row per node that a client sends: they cannot be replayed"
    if tied := next((f for f in about if isinstance(f, Masked | Correlated)), None):
        return f"reports of {noise.payload} that are {type(tied).__name__.lower()} cannot be replayed"
    keep, classes = float(fact.parameter("keep")), int(fact.parameter("classes"))
    stated = TradeOff.of(compose(response_event(keep, classes), noise.releases), relation)
    return ReportStage(
        noise=noise, relation=relation, fresh=fresh, stated=stated, batch=batch, field=field, keep=keep, classes=classes
    )
