"""From an account and the facts behind it to stages: which hooks are replayed, and on what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fglaudit.context import Uploads
from fglaudit.empirical.replays.captured_stage import captured_stage
from fglaudit.empirical.replays.first_messages import Kind, first_messages
from fglaudit.empirical.replays.local_stages import RowStage, UpdateStage
from fglaudit.empirical.replays.message_stage import MeanStage, MessageStage, clip_of, narrowed_entry, noised_fields
from fglaudit.empirical.replays.report_stage import report_stage
from fglaudit.empirical.replays.stages import Stage, stated_curve
from fglaudit.facts import (
    GRADIENTS,
    K_ARY,
    ROWS,
    Additive,
    Clipped,
    Correlated,
    Fact,
    Masked,
    Memoised,
    Randomised,
    Sampled,
    Scaled,
    before_noise,
    first,
    on,
)
from fglaudit.federated.problem import pooled
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.accounted import Accounted, Noised
from fglaudit.privacy.tradeoff import TradeOff
from fglaudit.rng import derive


@dataclass(frozen=True)
class Staged:
    """What is replayed.

    Attributes:
        stages: by position of the mechanism in the account, those that replay it.
        left_out: of mechanisms that cannot be replayed, why.
        messages: a real batch of every kind of message with noise.
        facts: of the defense.
        fresh: binds the defense anew.
    """

    stages: dict[int, list[Stage]]
    left_out: tuple[str, ...]
    messages: dict[Kind, MessageBatch]
    facts: tuple[Fact, ...]
    fresh: Callable[[], DefenseSession]


def staged(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    accounted: Accounted,
    *,
    seed: int,
    device: torch.device,
) -> Staged:
    """Return the stages of ``accounted``."""
    context = protocol.context(graph)

    def fresh() -> DefenseSession:
        return defense.bind(context)

    session = fresh()
    facts = session.facts()
    wanted = {(n.payload, n.by_server) for n in accounted.mechanisms if n.payload not in ("rows", "gradients")}
    train = derive(seed, "audits", "first messages")
    messages = first_messages(protocol, graph, fresh(), wanted, rng=train, device=device)
    stages: dict[int, list[Stage]] = {}
    left_out: list[str] = []
    for number, noise in enumerate(accounted.mechanisms):
        made = _stage(graph, noise, accounted, facts, fresh, context.uploads, messages)
        if isinstance(made, str):
            left_out.append(made)
            continue
        if (after := scaled_after(about_noise(facts, noise))) is not None and after.factor:
            made = dataclasses.replace(made, factor=abs(after.factor))
        stages[number] = [made]
        release = next((r for r in context.releases if r.payload.__name__ == noise.payload), None)
        made_of_rows = isinstance(made, MessageStage) and made.clip is None
        if made_of_rows and release is not None and release.by_server is noise.by_server and graph.x.dim() == 2:
            more = captured_stage(protocol, graph, release, made, fresh, seed=seed, device=device)
            stages[number] += [more] if more is not None else []
    return Staged(stages, tuple(left_out), messages, facts, fresh)


def _stage(
    graph: FederatedGraph,
    noise: Noised,
    accounted: Accounted,
    facts: Sequence[Fact],
    fresh: Callable[[], DefenseSession],
    uploads: Uploads | str,
    messages: dict[Kind, MessageBatch],
) -> Stage | str:
    """Return the stage in which ``noise`` is replayed, or why it cannot be."""
    shared: dict[str, Any] = {"noise": noise, "relation": accounted.relation, "fresh": fresh}
    if noise.payload == "rows":
        return _row_stage(graph, noise, accounted, facts, shared)
    if noise.payload == "gradients":
        return _update_stage(graph, noise, facts, shared)
    batch = messages.get((noise.payload, noise.by_server))
    if batch is None:
        return f"no {noise.payload} was sent that could be replayed"
    kind = type(batch.payload)
    if noise.distribution == K_ARY:
        return report_stage(batch, facts, **shared)
    tied = [f for f in on(facts, kind) if isinstance(f, Masked | Memoised | Correlated)]
    if tied:
        return (
            f"noise on {noise.payload} that is {type(tied[0]).__name__.lower()} cannot be replayed message by message"
        )
    if noise.payload == "ModelUpdate" and noise.by_server and isinstance(uploads, Uploads) and uploads.mean:
        clip = clip_of(facts, kind, by_server=False)
        if clip is not None:
            return MeanStage(
                **shared,
                stated=stated_curve(noise),
                clip=clip,
                share=uploads.share,
                clients=graph.num_clients,
                changes=uploads.changes,
            )
    return _message_stage(graph, noise, facts, batch, shared)


def _row_stage(
    graph: FederatedGraph, noise: Noised, accounted: Accounted, facts: Sequence[Fact], shared: dict[str, Any]
) -> RowStage:
    fact = first(facts, Randomised, ROWS) or first(facts, Additive, ROWS)
    assert fact is not None, "rows were accounted as random, so a fact says how"
    clip = first(before_noise(facts), Clipped, ROWS)
    each = graph.num_features if clip is not None and clip.norm == "elementwise" else 1
    if isinstance(fact, Randomised):
        stated = TradeOff.of(accounted.event, accounted.relation, accounted.delta)
    else:
        stated = stated_curve(noise, each)
    return RowStage(**shared, stated=stated, like=graph.client(0), fact=fact, clip=clip)


def _update_stage(
    graph: FederatedGraph, noise: Noised, facts: Sequence[Fact], shared: dict[str, Any]
) -> UpdateStage | str:
    clip = first(before_noise(facts), Clipped, GRADIENTS)
    if clip is None:
        return "no clip of gradients is stated"
    return UpdateStage(
        **shared,
        stated=stated_curve(noise),
        clip=clip,
        losses=max(1, round(noise.sensitivity / (2 * clip.bound))),
        batch=max((int(train.sum().item()) for train in graph.train), default=1),
        sampled=first(facts, Sampled, GRADIENTS) is not None,
    )


def _message_stage(
    graph: FederatedGraph, noise: Noised, facts: Sequence[Fact], batch: MessageBatch, shared: dict[str, Any]
) -> MessageStage | str:
    template = narrowed_entry(batch.payload)
    fields = noised_fields(facts, template, by_server=noise.by_server)
    if not fields:
        return f"no field of {noise.payload} is said to get noise"
    clip = clip_of(facts, type(batch.payload), by_server=noise.by_server)
    width = sum(template.tensors()[name].numel() for name in fields)
    return MessageStage(
        **shared,
        stated=stated_curve(noise, width if clip is not None and clip.norm == "elementwise" else 1),
        template=template,
        fields=fields,
        clip=clip,
        clients=graph.num_clients,
        first=batch.round,
    )


def about_noise(facts: Sequence[Fact], noise: Noised) -> list[Fact]:
    """Return the facts, in order, about what has that noise."""
    if noise.payload in ("rows", "gradients"):
        return [fact for fact in facts if fact.target == (ROWS if noise.payload == "rows" else GRADIENTS)]
    return list(on(facts, noise.payload, direction="down" if noise.by_server else "up"))


def scaled_after(about: Sequence[Fact]) -> Scaled | None:
    """Return how noisy values are scaled, if at all, by the facts ``about`` them; None where other things happen."""
    seen, after = False, Scaled(ROWS)
    for fact in about:
        if isinstance(fact, Additive):
            seen = True
        elif seen and isinstance(fact, Scaled):
            after = Scaled(ROWS, fact.offset + fact.factor * after.offset, fact.factor * after.factor)
        elif seen:
            return None
    return after


def clients_of(protocol: FederatedProtocol, graph: FederatedGraph) -> list[ClientGraph]:
    """Return the graphs on which models are trained: the clients', or one where they are pooled."""
    examples = protocol.examples(graph)
    if not isinstance(examples, str) and examples.pooled:
        return [pooled(graph)]
    return [graph.client(k) for k in range(graph.num_clients)]
