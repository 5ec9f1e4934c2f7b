"""One attack of a setting over its seeds, and whether that is called a leak."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import le

from fglaudit.finding import OTHERS, Finding, Status
from fglaudit.quantities.base import UNINFORMATIVE
from fglaudit.reports.attack_quantity import FEATURES as FEATURES
from fglaudit.reports.attack_quantity import attack_quantity
from fglaudit.scoring.clusters import MIN_CLUSTERS, TAIL, Interval, PairedClusters
from fglaudit.scoring.many_attacks import step_down
from fglaudit.scoring.metrics import RATES, exceeds_zero
from fglaudit.scoring.one_client import one_client_p_value
from fglaudit.scoring.permutation_bound import LEVEL, dealt_at_random
from fglaudit.scoring.rates import clusters_like, seeds_needed

NEGLIGIBLE = 0.02
"""Up to this upper end of the advantage's interval an attack counts as not having succeeded."""
MEAN, ONE_CLIENT, PROOF, UNIQUE = "mean", "one client", "proof", "unique rows"
"""Grounds on which something is called a leak: the mean over all targets, the client that lost most, rows that are
proven to be determined, exact rows that one node alone has."""


@dataclass(frozen=True)
class Parties:
    """How many clusters there are, how many "held" takes at the least, and which number of seeds in all gives them;
    None where further seeds bring no further clients."""

    has: int
    need: int
    seeds: int | None

    @property
    def too_few(self) -> bool:
        return self.has < self.need

    def more(self, seeds: int) -> int:
        """Return how many seeds are missing where there are ``seeds``; 0 where others bring no new clients."""
        return 0 if self.seeds is None else max(1, self.seeds - seeds)


@dataclass(frozen=True)
class Leak:
    """One observer x knowledge x attack of a setting, over its seeds.

    Attributes:
        findings: one per seed, in the order of seeds.
        estimate: the advantage of the working findings with its 95 % interval, over clients x seeds.
        breakdowns: mean over seeds of the score by degree, class and client.
        clusters: clients x seeds; None where the records do not hold them.
        redrawn: whether another seed brings new clients.
        grounds: why this is called a leak, of ``MEAN``, ``ONE_CLIENT``, ``PROOF``, ``UNIQUE``; empty where it is not.
    """

    findings: tuple[Finding, ...]
    estimate: Interval
    breakdowns: dict[str, dict[str, float]]
    clusters: PairedClusters | None = None
    redrawn: bool = True
    grounds: tuple[str, ...] = ()

    @property
    def advantage(self) -> float | None:
        return self.estimate.value

    @property
    def low(self) -> float | None:
        return self.estimate.low

    @property
    def high(self) -> float | None:
        return self.estimate.high

    @property
    def interval(self) -> str:
        """What the limits are, see the column ``interval``."""
        return self.estimate.kind

    @cached_property
    def observer(self) -> tuple[str, str]:
        return self.findings[0].observer, self.findings[0].observer_knowledge

    @cached_property
    def quantity(self) -> str:
        """What is inferred; of rows that do not say so, what their attack is about."""
        said = next((finding.quantity for finding in self.findings if finding.quantity), "")
        return said or attack_quantity(self.attack)

    @property
    def attack(self) -> str:
        return self.findings[0].attack

    @cached_property
    def _statuses(self) -> Counter[Status]:
        return Counter(finding.status for finding in self.findings)

    def count(self, status: Status) -> int:
        return self._statuses[status]

    @cached_property
    def failures(self) -> dict[str, int]:
        """How many findings give nothing because something went wrong, by a word for what; those of cells that have
        not run yet are stored as failed."""
        unrun = sum(finding.never_run for finding in self.findings)
        broken = self.count(Status.BROKEN_ATTACK)
        return {"not run": unrun, "failed": self.count(Status.FAILED) - unrun, "broken": broken}

    @cached_property
    def status(self) -> Status:
        """The worst of the findings' statuses: one failed seed makes the whole leak failed."""
        worst_first = (Status.FAILED, Status.BROKEN_ATTACK, Status.NOT_APPLICABLE, Status.OK)
        return next(status for status in worst_first if self.count(status))

    @cached_property
    def measured(self) -> bool:
        return self.advantage is not None and self.count(Status.OK) > 0

    @cached_property
    def reassures(self) -> bool:
        """Whether a low advantage says anything: see ``fglaudit.finding.Finding.can_reassure``; over all seeds."""
        return self.measured and all(f.can_reassure for f in self.scored) and (self.high is None or self.high >= 0)

    @cached_property
    def held(self) -> bool:
        """Whether it shows that this attack gets nothing: its own upper limit is negligible (rule 5)."""
        return self.reassures and self.estimate.shown and self.high is not None and self.high <= NEGLIGIBLE

    @cached_property
    def needs(self) -> Parties | None:
        """How many parties it has and "held" takes at the least; None where the records do not hold the clusters."""
        if self.clusters is None or not self.clusters.informative:
            return None
        targets, seeds = self.clusters.targets, len(self.scored)
        has = self.clusters.count
        if self.metric not in RATES:  # the spread of the scores decides, once there are clusters enough to see it
            need = MIN_CLUSTERS
            return Parties(has, need, -(-need * seeds // has) if self.redrawn else None)
        more = seeds_needed(NEGLIGIBLE, targets, seeds) if self.redrawn else None
        return Parties(has, clusters_like(targets, NEGLIGIBLE), more)

    @property
    def ahead(self) -> bool:
        """Whether it got more than what counts as nothing, told from chance or not."""
        return self.measured and not self.held and (self.advantage or 0.0) > NEGLIGIBLE

    @property
    def for_an_interval(self) -> Parties | None:
        """How many parties it has and an interval takes; None where there is one or records hold no clusters."""
        if self.clusters is None or not self.clusters.informative or self.estimate.shown:
            return None
        has = self.clusters.count
        if has == 0:
            return None
        return Parties(has, MIN_CLUSTERS, -(-MIN_CLUSTERS * len(self.scored) // has) if self.redrawn else None)

    @property
    def worst_client(self) -> float | None:
        """Largest advantage in any one client."""
        if self.clusters is not None:
            return self.clusters.worst
        return max(self.values("worst_client"), default=None)

    def succeeds(self, tail: float) -> bool:
        """Whether the lower limit of the advantage with this tail lies above 0; never of a range."""
        if self.low is None or self.low <= 0 or not self.estimate.shown:  # nor is one of a smaller tail
            return False
        return tail >= TAIL or (self.clusters is not None and exceeds_zero(self.metric, self.clusters, tail=tail))

    @cached_property
    def one_client(self) -> float:
        """A p-value of "the attack knows nothing at any client"."""
        worst = self.worst_client
        if self.clusters is None or worst is None or worst <= NEGLIGIBLE:
            return 1.0
        return one_client_p_value(self.clusters)

    @property
    def unique_exact(self) -> float:
        """How many rows of one node alone one observer has exactly, beyond a guess's and those it has from messages of
        noise; the mean over seeds."""
        return self.mean("unique_exact") or 0.0

    @property
    def dealt_at_random(self) -> float:
        """A bound on the p-value of "its exact rows fell to their nodes by chance": ``scoring.permutation_bound``."""
        return dealt_at_random(self.unique_exact) if self.measured else 1.0

    @property
    def proven(self) -> float | None:
        """Share of the rows that are proven to be determined, whatever the attack; of working attacks."""
        return self.mean("identifiable_rate") if self.measured else None

    @property
    def unadapted(self) -> tuple[str, ...]:
        """What was done to the messages that the attack does not allow for."""
        return tuple(dict.fromkeys(name for finding in self.findings for name in finding.unadapted))

    @property
    def sealed(self) -> bool:
        """Whether the observer was sent what the attack reads as ciphertexts, without a key."""
        return any(finding.sealed for finding in self.findings)

    @cached_property
    def raised(self) -> tuple[str, ...]:
        """Why it could not be asked through the weakened defense, where something raised."""
        return tuple(dict.fromkeys(finding.raised for finding in self.findings if finding.raised))

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.reason for finding in self.findings if finding.reason))

    @cached_property
    def scored(self) -> tuple[Finding, ...]:
        """The working findings; where there is none, those of the broken attack."""
        working = tuple(f for f in self.findings if f.status is Status.OK)
        return working or tuple(f for f in self.findings if f.status is Status.BROKEN_ATTACK)

    def values(self, column: str) -> list[float]:
        return present([getattr(finding, column) for finding in self.scored])

    def mean(self, column: str) -> float | None:
        return mean(self.values(column))

    @cached_property
    def metric(self) -> str:
        return ", ".join(sorted({finding.metric for finding in self.scored if finding.metric}))

    @property
    def uninformative(self) -> bool:
        control = self.mean("control")
        return control is not None and control >= UNINFORMATIVE


def says_most(leak: Leak) -> tuple[float, float, float]:
    """Sort key: exact rows first, since they are the same scale for every attack on features; then the advantage."""
    return leak.mean("exact_rate") or 0.0, leak.advantage or 0.0, reach(leak)


def reach(leak: Leak) -> float:
    """Return the upper end of the advantage; 1 where there is none."""
    return leak.high if leak.high is not None else 1.0


def present(values: Iterable[float | None]) -> list[float]:
    """Return the values that are there: None and NaN mean "does not apply"."""
    return [float(v) for v in values if v is not None and not math.isnan(v)]


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def sd(values: Sequence[float]) -> float | None:
    """Sample standard deviation; None below two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def judged(leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    """Return the leaks of one setting with their grounds.

    Attacks of one observer on one quantity are corrected for their number (Holm), over the mean and over single clients
    alike, each with 0.025 for a false alarm: in a setting where nothing leaks at most 0.05 of an observer's verdicts on
    a quantity are wrong, and one in a thousand by rows that one node alone has. Proofs need no statistics; those of
    another author's attack are its own word.
    """
    found: dict[int, tuple[str, ...]] = {}
    for family in {(leak.observer, leak.quantity): None for leak in leaks}:
        places = [i for i, leak in enumerate(leaks) if (leak.observer, leak.quantity) == family and leaks[i].measured]
        tried = [leaks[i] for i in places]
        over_all = step_down([leak.succeeds for leak in tried])
        # What leaks over all need not be asked about single clients; it counts as one that was tried.
        p_values = [1.0 if yes else leak.one_client for leak, yes in zip(tried, over_all, strict=True)]
        at_one = step_down([partial(le, p) for p in p_values])
        for place, leak, mean_leaks, client_leaks in zip(places, tried, over_all, at_one, strict=True):
            found[place] = tuple(
                ground
                for ground, holds in (
                    (MEAN, mean_leaks and (leak.advantage or 0.0) > NEGLIGIBLE),
                    (ONE_CLIENT, client_leaks),
                    (PROOF, bool(leak.proven) and OTHERS not in leak.unadapted),
                    (UNIQUE, leak.dealt_at_random * len(tried) <= LEVEL),
                )
                if holds
            )
    return tuple(replace(leak, grounds=found.get(i, ())) for i, leak in enumerate(leaks))
