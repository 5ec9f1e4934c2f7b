"""Noise on gradients of single losses, and on whole models: see :mod:`fglaudit.privacy.from_facts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fglaudit.context import Context, Examples, Uploads
from fglaudit.facts import EDGES, GRADIENTS, Absent, DegreeBound, Fact, Field, Merged, Sampled, on
from fglaudit.privacy.accounted import Noised
from fglaudit.privacy.accounting import Relation, compose, event_of, fixed_size_sampled
from fglaudit.privacy.bounded import Bounded
from fglaudit.privacy.counted import Counted
from fglaudit.privacy.degree_bound import changed_losses
from fglaudit.privacy.noise_on_payloads import OWN_NORM, Noise, Way, noise_in, way_of
from fglaudit.privacy.subsampled_accounting import fixed_sample_epsilon, poisson_losses_epsilon

if TYPE_CHECKING:
    from fglaudit.interfaces import Guarantee

MODELS = "ModelUpdate"


def noised_gradients(
    context: Context, facts: Sequence[Fact], guarantee: Guarantee, relation: Relation, counted: Counted
) -> Way | str:
    """Return the noise on sums of clipped gradients, or why it is not accounted.

    Where losses are sampled, the event is that of all of them in every step: an upper bound on what is shown, and only
    the epsilon allows for the sample.
    """
    examples = context.examples
    if isinstance(examples, str):
        return examples
    if guarantee.unit != "node":
        return f"gradients of single losses hide a node, not a {guarantee.unit}"
    if not counted.updates:
        return "no gradient passed through the defense, so none of them got noise"
    own = [fact for fact in facts if fact.target == GRADIENTS]
    noise = noise_in(own, "gradients")
    if isinstance(noise, str):
        return noise
    bounded = Bounded.by(noise.before, "example")
    norm = OWN_NORM[noise.distribution]
    if bounded.strange or norm not in bounded.bounds:
        return f"no {norm} norm of a loss's gradient is bounded before the {noise.distribution} noise"
    losses = _losses(context, examples, facts, relation)
    if isinstance(losses, str):
        return losses
    passes = max(examples.passes, counted.passes(examples.losses) or 0)
    sensitivity = 2 * bounded.bounds[norm] * losses
    way = way_of("gradients", False, noise.fact, sensitivity, passes, relation)
    rate = 1.0
    for fact in noise.before:
        rate *= fact.rate if isinstance(fact, Sampled) else 1.0
    if rate == 1 or noise.distribution != "gaussian":
        return way
    assert guarantee.delta is not None
    spent = poisson_losses_epsilon(noise.fact.scale / sensitivity, rate, losses, passes, guarantee.delta)
    return Way(way.noised, way.event, spent)


def _losses(context: Context, examples: Examples, facts: Sequence[Fact], relation: Relation) -> int | str:
    """Return how many losses one node changes at most."""
    cut = [fact for fact in facts if fact.target == EDGES]
    bounds = [fact for fact in cut if isinstance(fact, DegreeBound)]
    if any(isinstance(fact, Merged) for fact in cut):
        return "how many losses a node reaches through merged neighbours is not known"
    private = relation is Relation.ADD_OR_REMOVE
    if not private:
        return changed_losses(examples, bounds[-1].bound, private_edges=False) if bounds else examples.most
    if len(cut) != 1 or not bounds:
        return "a node that is added or removed changes edges: one degree bound must hold, and nothing else change them"
    if examples.across or (examples.widest is not None and bounds[0].bound > examples.widest):
        return "losses see other clients' nodes or draw among neighbours, so a node that is removed changes more"
    if context.cross_edges:
        return f"edges enter what {context.protocol} sends beside gradients, and a node that is removed takes its own"
    return changed_losses(examples, bounds[0].bound, private_edges=True)


def noised_uploads(
    context: Context, facts: Sequence[Fact], guarantee: Guarantee, relation: Relation, counted: Counted
) -> Way | str:
    """Return the noise on clients' models, by them or by the server, or why it is not accounted.

    The record is what one client changes in its model: replaced, or zeroed out.
    """
    uploads = context.uploads
    if isinstance(uploads, str):
        return uploads
    if guarantee.unit != "client" or relation is Relation.ADD_OR_REMOVE:
        return f"noise on whole models hides what one client changes, not a {guarantee.unit} that is {relation}"
    up, down = on(facts, MODELS, "", "up"), on(facts, MODELS, "", "down")
    noise, by_server = noise_in(up, MODELS), False
    if isinstance(noise, str):
        noise, by_server = noise_in(down, MODELS), True
    if isinstance(noise, str):
        return noise
    bounded = Bounded.by(up if by_server else noise.before, "message")
    norm = OWN_NORM[noise.distribution]
    if bounded.strange or norm not in bounded.bounds:
        return f"what a client sends has no {norm} norm that is bounded before the {noise.distribution} noise"
    around = "zero" if uploads.changes else "received"
    moves = relation.moves if bounded.around == around else 2  # a whole model may be turned around
    moved = moves * bounded.bounds[norm]
    since = noise.fact.target.since if isinstance(noise.fact.target, Field) else 0
    first = counted.of(MODELS, by_server=by_server).first_round
    if since > (1 if by_server else first):
        return f"models are sent without noise until round {since}"
    sent = counted.of(MODELS, by_server=by_server)
    initial = 1 if by_server and first == 0 else 0  # models of round 0 depend on nobody
    releases = max(context.rounds, sent.messages - initial)
    if not by_server:
        return way_of(MODELS, False, noise.fact, moved, releases, relation)
    return _by_server(uploads, facts, guarantee, relation, noise, moved, releases)


def _by_server(
    uploads: Uploads,
    facts: Sequence[Fact],
    guarantee: Guarantee,
    relation: Relation,
    noise: Noise,
    moved: float,
    releases: int,
) -> Way | str:
    """Return the noise on the mean that the server returns."""
    if not uploads.mean:
        return "the server does not return one plain mean, so how far one client moves what it returns is not known"
    if not guarantee.server_trusted:
        return "the server adds the noise and sees models without; the guarantee does not say so"
    if any(isinstance(fact, Absent) for fact in facts):
        return "the server's noise counts on clients that are left out"
    if noise.before:
        return "what the server returns is changed before the noise, so how far one client moves it is not known"
    sensitivity = moved * uploads.share
    way = way_of(MODELS, True, noise.fact, sensitivity, releases, relation)
    drawn = uploads.senders < uploads.among and relation is Relation.REPLACE and guarantee.coalition == 1
    if not drawn or noise.distribution != "gaussian" or guarantee.delta is None:
        return way
    multiplier = noise.fact.scale * relation.moves / sensitivity
    spent = fixed_sample_epsilon(multiplier, uploads.senders, uploads.among - 1, releases, guarantee.delta)
    sampled = compose(
        fixed_size_sampled(event_of("gaussian", multiplier), uploads.senders, uploads.among - 1), releases
    )
    return Way(Noised(MODELS, True, "gaussian", noise.fact.scale, sensitivity, releases), sampled, spent)
