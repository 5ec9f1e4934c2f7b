"""k-ary randomised response on the class that a node reports (Kairouz, Bonawitz and Ramage, ICML 2016, section 3).

A report is one of C classes. The owner keeps the true one with probability ``e^epsilon / (e^epsilon + C - 1)`` and
otherwise reports one of the others, all equally likely: for any two true classes, every report is at most ``e^epsilon``
times as likely under one as under the other. A node reports once: where it is asked again, its first report is sent
again, so that nothing is spent a second time.

Who is promised what: nodes whose rows enter nothing but their own report. The protocol says who these are: in
``private-reports`` the nodes in neither the training nor the validation set, because training nodes' rows move the
models, and settings are chosen on validation nodes. ``unit: node`` promises it to every node, and is refused where some
node's row enters anything else. Everything made of the reports later is post-processing (Dwork and Roth 2014,
proposition 2.1). Nothing is promised against a node's own client, which holds the row.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.context import REPORTING_NODE, Context, Release
from fglaudit.facts import K_ARY, Fact, Field, Memoised, Randomised
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.nn.responses import keep_probability
from fglaudit.payloads import SERVER, ClassReports, MessageBatch, Payload
from fglaudit.privacy.accounting import Relation, check_budget, compose, epsilon_of, response_event
from fglaudit.privacy.strength import weaker_budget

Reporter = Literal["reporting node", "node"]


class _Session(DefenseSession):
    def __init__(self, defense: KAryResponse, release: Release, classes: int) -> None:
        self._defense, self._release, self._classes = defense, release, classes
        self._keep = keep_probability(defense.epsilon, classes)
        self._reported = torch.empty(0, dtype=torch.long)  # by node; -1: it has not reported

    def changes(self, payload: type[Payload]) -> bool:
        return payload is ClassReports

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Randomise what nodes report to the server; what it passes on is as it arrived."""
        payload = batch.payload
        if not isinstance(payload, ClassReports) or bool((batch.senders == SERVER).all()):
            return payload
        nodes = payload.nodes.cpu()
        more = int(nodes.max().item()) + 1 - len(self._reported) if len(nodes) else 0
        self._reported = torch.cat([self._reported, torch.full((max(0, more),), -1)])
        fresh, held = self._responses(payload.values.argmax(1).cpu(), rng), self._reported[nodes]
        self._reported[nodes] = torch.where(held < 0, fresh, held)
        return ClassReports(payload.nodes, one_hot(self._reported[nodes], self._classes).to(payload.values))

    def _responses(self, true: Tensor, rng: torch.Generator) -> Tensor:
        """Return a response to each of the classes ``true`` [R]."""
        lies = torch.rand(len(true), generator=rng, dtype=torch.float64) >= self._keep
        shift = torch.randint(1, max(2, self._classes), (len(true),), generator=rng)
        return torch.where(lies, (true + shift) % self._classes, true)

    def facts(self) -> tuple[Fact, ...]:
        target = Field(ClassReports.__name__, "values", "up")
        return (Randomised(target, K_ARY, (("keep", self._keep), ("classes", self._classes))), Memoised(target))

    def guarantee(self) -> Guarantee:
        release, classes = self._release, self._classes
        accounted = epsilon_of(compose(response_event(self._keep, classes), release.times), 0.0, Relation.REPLACE)
        open_ = "" if release.covers_training else f"; nothing bounds the whole: {release.why}"
        return Guarantee(
            mechanism=f"k-ary response, 1 of {classes} classes, true with probability {self._keep:.4g}{open_}",
            epsilon_claimed=self._defense.epsilon,
            epsilon_accounted=accounted if release.covers_training else None,
            delta=0.0,
            unit=release.unit,
            adjacency=Relation.REPLACE.of(f"the feature row of one {release.unit}"),
            relation=Relation.REPLACE,
            releases=release.times,
        )


@dataclass(frozen=True)
class KAryResponse(Defense):
    """Nodes report their class by k-ary randomised response, once.

    Attributes:
        epsilon: of everything that is ever made of one node's report, pure (delta = 0).
        unit: whom the guarantee names: "reporting node", whose row enters nothing but its report, or "node": every
            node.
    """

    name: ClassVar[str] = "k-ary-response"
    shown: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: float = 4.0
    unit: Reporter = REPORTING_NODE

    def __post_init__(self) -> None:
        check_budget(self.epsilon, 0.0, pure=True)

    def unsupported(self, context: Context) -> str | None:
        release = _reports(context)
        if release is None:
            return f"{context.protocol} sends no ClassReports that are made of features"
        if context.num_classes < 2:
            return "with one class there is nothing to report"
        if self.unit != release.unit:
            return f"the guarantee would name every {self.unit}, and holds for a {release.unit} alone: {release.why}"
        return None

    def weakened(self, factor: float) -> KAryResponse:
        return dataclasses.replace(self, epsilon=weaker_budget(self.epsilon, factor))

    def bind(self, context: Context) -> DefenseSession:
        release = _reports(context)
        assert release is not None
        return _Session(self, release, context.num_classes)


def _reports(context: Context) -> Release | None:
    """Return what the protocol states of its reports, None if there are none."""
    return next((release for release in context.releases if release.payload is ClassReports), None)
