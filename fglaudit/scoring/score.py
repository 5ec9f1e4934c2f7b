"""From attacks' outputs to findings: the truth is brought in here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fglaudit.facts import Field
from fglaudit.finding import UNSTATED, Finding, Status, adapted_column
from fglaudit.quantities import Attempt, Comparison, quantity
from fglaudit.rng import derive
from fglaudit.scoring.metrics import clusters_of, metric_interval, read_clusters, recorded_clusters
from fglaudit.scoring.output import Output
from fglaudit.scoring.selftest import OnNoise, on_noise
from fglaudit.scoring.truth import GroundTruth
from fglaudit.scoring.well_formed import refuse_malformed
from fglaudit.tracebacks import kept
from fglaudit.view import Observer, View


@dataclass(frozen=True)
class Measurement:
    """A finding, and what a record keeps beside it: see ``fglaudit.finding.CellRecord``."""

    finding: Finding
    clusters: list[list[float]] = field(default_factory=list)
    breakdown: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: tuple[Mapping[str, Any], ...] = ()


def score(outputs: Sequence[Output], truth: GroundTruth) -> list[Measurement]:
    """Return one measurement per output, in their order.

    Whatever goes wrong with one attack ends in its row: one attack's failure must not cost the others (rule 7).
    """
    scorer = Scorer(truth)
    return [scorer.measure(output) for output in outputs]


class Scorer:
    """Scores outputs of one run; what several of them share (questions, guesses) is made once."""

    def __init__(self, truth: GroundTruth) -> None:
        self.truth = truth
        self._asked: dict[tuple[Any, ...], list[Any]] = {}
        self._guessed: dict[tuple[Any, ...], list[Any]] = {}

    def asked(self, name: str, observers: Sequence[Observer], pooled: bool) -> list[Any]:
        """Return what every member of an observer is asked about the quantity ``name``."""
        key = (name, tuple(observers), pooled)
        if key not in self._asked:
            self._asked[key] = [quantity(name).ask(truth) for truth in self.truth.about(observers, pooled)]
        return self._asked[key]

    def nothing_to_ask(self, name: str, observers: Sequence[Observer], pooled: bool) -> str | None:
        """Return why an observer has nothing to learn about the quantity ``name``, or None."""
        why: str | None = quantity(name).nothing_to_ask(self.asked(name, observers, pooled))
        return why

    def measure(self, output: Output) -> Measurement:
        """Return the finding of one output."""
        output = replace(output, blank=replace(output.blank, adapted=self._adapted(output)))
        try:
            name, observers = type(output.attack).quantity, [view.observer for view in output.views]
            if output.blank.status is Status.NOT_APPLICABLE and quantity(name).asks_last:
                return Measurement(output.blank)
            if (why := self.nothing_to_ask(name, observers, output.pooled)) is not None:
                return Measurement(replace(output.blank.ended(Status.NOT_APPLICABLE, why), seconds_attack=None))
            if not output.measured:
                return Measurement(output.blank)
            return self._compared(output, self.asked(name, observers, output.pooled))
        except Exception as error:
            reason = kept(error, f"scoring attack {output.blank.attack} by {output.blank.observer}")
            return Measurement(replace(output.blank.ended(Status.FAILED, reason), seconds_attack=None))

    def _adapted(self, output: Output) -> str:
        """Return the column ``adapted``, after a look at what the defense did and did not state."""
        read = {p.__name__ for p in type(output.attack).reads()}
        hidden = [u.target for u in self.truth.unstated]
        if not any(not isinstance(target, Field) or target.payload in read for target in hidden):
            return output.blank.adapted
        return adapted_column((*output.blank.unadapted, UNSTATED))

    def _compared(self, output: Output, asked: list[Any]) -> Measurement:
        kind = quantity(type(output.attack).quantity)
        if not all(kind.accepts(result) for result in output.results):
            raise TypeError(f"the attack says it infers {kind.name} and returned something else")
        for result, view in zip(output.results, output.views, strict=True):
            refuse_malformed(type(output.attack).name, result, view)
        guesses = self._guesses(kind.name, output.views, asked, output.pooled)
        attempts = [Attempt(*each) for each in zip(output.views, asked, output.results, guesses, strict=True)]
        compared = kind.compare(output.attack, attempts)
        if len(attempts) > 1:
            compared = self._wider(compared, output, attempts)
        tested = attempts[output.tested]
        noise = OnNoise(output.flaw) if output.flaw else on_noise(output, tested)
        if (unique := kind.unique_exact(tested)) is not None:
            compared = replace(compared, columns={**compared.columns, "unique_exact": max(0, unique - noise.unique)})
        broken = "; ".join(filter(None, (compared.wrong, noise.flaw)))
        return _measurement(output.blank, kind.name, compared, broken, self.truth.graph.num_clients)

    def _wider(self, compared: Comparison, output: Output, attempts: Sequence[Attempt]) -> Comparison:
        """Return ``compared`` with the clusters that give the wider interval, where each client in turn observes.

        Those who observe are independent as far as their messages are; but if several are asked about the same nodes,
        and read the same model besides, what one of them gets right the others do as well. Then the clients that hold
        the nodes are the clusters, not those that observe.
        """
        kind = quantity(type(output.attack).quantity)
        owned = self.asked(kind.name, [view.observer for view in output.views], False)
        if compared.negatives is None and sum(len(question.clusters) for question in owned) == len(compared.values):
            by_owner = replace(compared, clusters=torch.cat([question.clusters for question in owned]))
        else:
            again = [each._replace(question=question) for each, question in zip(attempts, owned, strict=True)]
            by_owner = kind.compare(output.attack, again)
        return max(compared, by_owner, key=_width)

    def _guesses(self, name: str, views: Sequence[View], asked: Sequence[Any], pooled: bool) -> list[Any]:
        key = (name, tuple(view.observer for view in views), pooled)
        if key not in self._guessed:
            self._guessed[key] = [
                quantity(name).guess(view, q.subjects, derive(self.truth.seed, "control", view.observer.name))
                for view, q in zip(views, asked, strict=True)
            ]
        return self._guessed[key]


def _width(compared: Comparison) -> float:
    """Return the width of the interval of the advantage; without one nothing is known."""
    paired = clusters_of(compared.metric, compared.clusters, compared.values, compared.controls, compared.negatives)
    found = metric_interval(compared.metric, paired)
    return math.inf if not found.shown or found.low is None or found.high is None else found.high - found.low


def _measurement(blank: Finding, name: str, compared: Comparison, broken: str, clients: int) -> Measurement:
    parts = compared.clusters, compared.values, compared.controls, compared.negatives
    # A place per client: runs over the same partition are put together client by client.
    rows = recorded_clusters(compared.metric, *parts, least=clients)
    paired = read_clusters(compared.metric, rows)
    interval = metric_interval(compared.metric, paired)
    reason = "" if paired.informative else "uninformative: the control alone reaches 0.99"
    columns: dict[str, Any] = {**compared.columns, **_beyond_told(compared)}
    finding = replace(
        blank,
        status=Status.BROKEN_ATTACK if broken else Status.OK,
        reason=broken or reason,
        targets=len(compared.values),
        metric=compared.metric,
        quantity=name,
        value=float(compared.values.mean().item()),
        control=float(compared.controls.mean().item()),
        advantage=interval.value,
        advantage_low=interval.low,
        advantage_high=interval.high,
        interval=interval.kind,
        worst_client=paired.worst,
        **columns,
    )
    return Measurement(finding, rows, dict(compared.breakdown), compared.examples)


def _beyond_told(compared: Comparison) -> dict[str, float | None]:
    """Return the columns on a guess that is told more than the observer, and on what the attack has beyond it."""
    if compared.told is None:
        return {}
    paired = clusters_of(compared.metric, compared.clusters, compared.values, compared.told)
    beyond = metric_interval(compared.metric, paired)
    return {
        "control_class": float(compared.told.mean().item()),
        "advantage_class": beyond.value,
        "advantage_class_low": beyond.low,
        "advantage_class_high": beyond.high,
    }
