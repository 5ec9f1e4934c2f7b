"""Noise on feature rows and on payloads, as facts state it, with the sensitivity that it hides. See
:mod:`fglaudit.privacy.from_facts`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dp_accounting
from dp_accounting import DpEvent
from scipy.special import expit

from fglaudit.context import Context, Release
from fglaudit.errors import FglauditError
from fglaudit.facts import (
    EDGES,
    K_ARY,
    MULTI_BIT,
    ROWS,
    Absent,
    Additive,
    Correlated,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    Memoised,
    Merged,
    Randomised,
    Rounded,
    on,
)
from fglaudit.privacy.accounted import Noised
from fglaudit.privacy.accounting import Relation, compose, event_of, response_event
from fglaudit.privacy.bounded import Bounded
from fglaudit.privacy.counted import Counted, Sent

if TYPE_CHECKING:
    from fglaudit.interfaces import Guarantee

OWN_NORM = {"gaussian": "L2", "laplace": "L1"}
ELEMENTWISE = "elementwise"


@dataclass(frozen=True)
class Way:
    """Noise on one thing.

    Attributes:
        noised: on what, how much, how often.
        event: what is composed.
        epsilon: where another accountant than that of events gives it, and it stands alone.
    """

    noised: Noised
    event: DpEvent
    epsilon: float | None = None


@dataclass(frozen=True)
class Noise:
    """The noise on one value and what was done to it before.

    Attributes:
        fact: the noise.
        before: the facts before it.
    """

    fact: Additive
    before: tuple[Fact, ...]

    @property
    def distribution(self) -> str:
        return self.fact.distribution


def noise_in(facts: Sequence[Fact], what: str) -> Noise | str:
    """Return the first noise among ``facts`` on one value, or why an accountant has nothing to say of it."""
    tied = next((fact for fact in facts if isinstance(fact, Correlated | Memoised)), None)
    if tied is not None:
        return f"noise on {what} that is {type(tied).__name__.lower()} has no accountant here"
    at = next((n for n, fact in enumerate(facts) if isinstance(fact, Additive)), None)
    if at is None:
        return f"no noise is stated on {what}"
    fact = facts[at]
    assert isinstance(fact, Additive)
    if fact.distribution not in OWN_NORM:
        return f"{fact.distribution} noise on {what} hides no distance that an accountant here knows"
    if fact.scale <= 0:
        return f"noise on {what} of scale 0 hides nothing"
    return Noise(fact, tuple(facts[:at]))


def way_of(
    payload: str,
    by_server: bool,
    noise: Additive,
    sensitivity: float,
    releases: int,
    relation: Relation,
    numbers: int | None = None,
) -> Way:
    """Return the event of ``releases``; of ``numbers`` coordinates each if the clip is elementwise.

    Raises:
        FglauditError: if the sensitivity is no positive number.
    """
    if not sensitivity > 0:
        raise FglauditError(
            f"a sensitivity must be positive; got {sensitivity:g} for {payload}; state the clip and the factors in use"
        )
    event = event_of(noise.distribution, noise.scale * relation.moves / sensitivity)
    single = numbers is not None
    noised = Noised(payload, by_server, noise.distribution, noise.scale, sensitivity, releases, single)
    return Way(noised, compose(event, releases * (numbers or 1)))


def noised_rows(
    context: Context, facts: Sequence[Fact], guarantee: Guarantee, relation: Relation, counted: Counted
) -> Way | str | None:
    """Return noise on all rows before use, None if there is none, or why it is not accounted."""
    own = [fact for fact in facts if fact.target == ROWS]
    at = next((n for n, fact in enumerate(own) if isinstance(fact, Additive | Randomised)), None)
    if at is None:
        return None
    if guarantee.unit != "node" or relation is Relation.ADD_OR_REMOVE:
        return f"random rows hide what one node's features are, not a {guarantee.unit} that is {relation}"
    if len(counted.prepared) != context.num_clients or not all(counted.prepared):
        there = sum(1 for times in counted.prepared if times)
        return f"{context.num_clients - there} of {context.num_clients} clients used their rows as they are"
    rows = context.rows_per_node * max(counted.prepared)
    random = own[at]
    if isinstance(random, Randomised):
        if random.kind != MULTI_BIT:
            return f"random reports of kind {random.kind!r} have no accountant here"
        bit = float(random.parameter("bit_epsilon"))
        if not bit > 0:
            return f"a bit that is reported at an epsilon of {bit:g} lies more often than not, and tells by it"
        one = dp_accounting.RandomizedResponseDpEvent(2 * float(expit(-bit)), 2)
        bits = int(random.parameter("sampled_features")) * rows
        return Way(Noised("rows", False, random.kind, bit, 1.0, rows), compose(one, bits))
    noise = noise_in(own, "rows")
    if isinstance(noise, str):
        return noise
    bounded = Bounded.by(noise.before, "row")
    if bounded.strange:
        fix = _fix(bounded.strange)
        return f"what {bounded.strange} does to rows before the noise is not known to the accountant{fix}"
    norm = OWN_NORM[noise.distribution]
    found = []
    if norm in bounded.bounds:
        found.append(way_of("rows", False, noise.fact, relation.moves * bounded.bounds[norm], rows, relation))
    elif ELEMENTWISE in bounded.bounds:
        moved = relation.moves * bounded.bounds[ELEMENTWISE]
        found.append(way_of("rows", False, noise.fact, moved, rows, relation, context.num_features))
    return found[0] if found else f"rows have no {norm} norm that is bounded before the {noise.distribution} noise"


def noised_release(
    context: Context,
    release: Release,
    facts: Sequence[Fact],
    guarantee: Guarantee,
    relation: Relation,
    counted: Counted,
) -> Way | str:
    """Return the noise on a payload through which features leave, or why it is not accounted."""
    name, direction = release.payload.__name__, "down" if release.by_server else "up"
    sent = counted.of(name, by_server=release.by_server)
    if release.unit != guarantee.unit:
        return f"{context.protocol} states how {name} depends on one {release.unit}, not on one {guarantee.unit}"
    if relation is Relation.ADD_OR_REMOVE and release.unit != "edge":
        return f"who sends {name} is seen, so it hides no {guarantee.unit} that is {relation}"
    if release.unit == "edge" and relation is not Relation.ADD_OR_REMOVE:
        return f"{context.protocol} states how {name} depends on an edge that comes or goes, not one that is {relation}"
    if release.by_server and not guarantee.server_trusted:
        return f"the server adds the noise on {name} and sees it without; the guarantee does not say so"
    if release.by_server and any(isinstance(fact, Absent) for fact in facts):
        return f"the server's noise on {name} counts on clients that are left out"
    fields = release.fields or sent.fields
    if not fields:
        return f"{name} was never sent, so its fields are not known"
    noises: list[Noise] = []
    reports = [fact for field in fields for fact in on(facts, name, field, direction) if isinstance(fact, Randomised)]
    if reports:
        return _reported(release, reports, fields, sent, relation)
    for field in fields:
        about = on(facts, name, field, direction)
        late = next((f for f in about if isinstance(f.target, Field) and f.target.since > sent.first_round), None)
        if late is not None:
            return f"{name} is sent from round {sent.first_round} on, and noise on it starts later"
        noise = noise_in(about, f"{name}.{field}")
        if isinstance(noise, str):
            return noise
        noises.append(noise)
    if len({noise.distribution for noise in noises}) > 1:
        return f"the fields of {name} have noise of different kinds, which has no accountant here"
    weakest = min((noise.fact for noise in noises), key=lambda fact: fact.scale)
    times = max(1, release.times)
    clipped = _by_message(release, noises, weakest, sent, times, relation)
    by_rows = _by_rows(release, facts, noises, weakest, sent, times, relation)
    ways = [way for way in (clipped, by_rows) if isinstance(way, Way)]
    if ways:
        return min(ways, key=lambda way: way.noised.sensitivity)
    return str(clipped if release.gain is None else by_rows)


def _reported(
    release: Release, reports: Sequence[Randomised], fields: Sequence[str], sent: Sent, relation: Relation
) -> Way | str:
    """Return random reports of one record each, in place of its entry of a payload."""
    name, report = release.payload.__name__, reports[0]
    if len(reports) > 1 or len(fields) > 1 or report.kind != K_ARY:
        return f"random reports of kind {report.kind!r} on {name} have no accountant here"
    if not release.one_message or relation is not Relation.REPLACE:
        return f"a report of {name} hides one record that is replaced; it may enter several, or is {relation}"
    if isinstance(report.target, Field) and report.target.since > sent.first_round:
        return f"{name} is sent from round {sent.first_round} on, and reports of it are random later"
    keep, classes = float(report.parameter("keep")), int(report.parameter("classes"))
    if not 0 < keep < 1:
        return f"a k-ary response on {name} keeps the true class with a chance between 0 and 1; got {keep:g}"
    if classes < 2 or sent.numbers != classes:
        stated = f"a k-ary response on {name} says one of {classes} classes"
        return f"{stated}, and a message has {sent.numbers} numbers: state as many classes"
    times = max(1, release.times, sent.repeats)
    event = response_event(keep, classes)
    return Way(Noised(name, release.by_server, report.kind, keep, 1.0, times), compose(event, times))


def _by_message(
    release: Release, noises: Sequence[Noise], weakest: Additive, sent: Sent, times: int, relation: Relation
) -> Way | str:
    """Return the noise where every message is clipped. Whatever replaces the record, even zeros, may turn its message
    around, so it moves by two clips."""
    name, norm = release.payload.__name__, OWN_NORM[weakest.distribution]
    found = [Bounded.by(noise.before, "message") for noise in noises]
    if strange := next((b.strange for b in found if b.strange), ""):
        return f"what {strange} does to {name} before the noise is not known to the accountant{_fix(strange)}"
    if not release.one_message or release.payload.ragged:
        return f"one record may enter several messages of one release of {name}; a clip per message does not bound them"
    releases = max(times, sent.messages)
    if all(norm in b.bounds for b in found):
        bounds = [b.bounds[norm] for b in found]
        joint = math.fsum(bounds) if norm == "L1" else math.sqrt(math.fsum(b * b for b in bounds))
        return way_of(name, release.by_server, weakest, 2 * joint, releases, relation)
    if all(ELEMENTWISE in b.bounds for b in found):
        moved = 2 * max(b.bounds[ELEMENTWISE] for b in found)
        return way_of(name, release.by_server, weakest, moved, releases, relation, sent.numbers)
    return f"messages of {name} have no {norm} norm that is bounded before the {weakest.distribution} noise"


def _fix(strange: str) -> str:
    """Return what an author can do where a fact of that name stands before the noise."""
    return "; clip once more after rounding, and state that too" if strange == Rounded.__name__ else ""


def _by_rows(
    release: Release,
    facts: Sequence[Fact],
    noises: Sequence[Noise],
    weakest: Additive,
    sent: Sent,
    times: int,
    relation: Relation,
) -> Way | str:
    """Return the noise where rows are clipped, and the protocol states how far they move all messages together."""
    name = release.payload.__name__
    bounded = Bounded.by([fact for fact in facts if fact.target == ROWS], "row")
    if bounded.strange:
        return f"what {bounded.strange} does to rows is not known to the accountant"
    if release.gain is None:
        return f"no sensitivity bound is known for {name}: {release.why}"
    if release.row_norm is not None:
        if relation is Relation.ZERO_OUT:
            return f"what {name} sums may turn around where a row becomes zero; state that it is replaced"
        bounded = Bounded("row", {"L2": release.row_norm})
    if "L2" not in bounded.bounds or weakest.distribution != "gaussian":
        return f"no L2 norm of rows is bounded and hidden by Gaussian noise on {name}"
    if any(Bounded.by(noise.before, "message") != Bounded("message") for noise in noises):
        return f"{name} is changed before the noise, by which its sensitivity to rows is no longer the protocol's"
    cut = [fact for fact in facts if fact.target == EDGES]
    if any(not isinstance(fact, DroppedEdges | DegreeBound) for fact in cut) or (cut and not release.subgraphs):
        kinds = ", ".join(type(fact).__name__ for fact in cut)
        merged = "neighbours are merged" if any(isinstance(fact, Merged) for fact in cut) else f"edges change ({kinds})"
        return f"the sensitivity of {name} was stated for the graph as it is, and {merged}"
    moved = relation.moves * release.gain * bounded.bounds["L2"]
    return way_of(name, release.by_server, weakest, moved, max(times, sent.repeats), relation)
