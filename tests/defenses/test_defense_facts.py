"""Every built-in defense states what it does, in numbers that are measured here, and does nothing that it does not
state: what its hooks change is compared with its facts, field by field."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from node_graphs import graph as task_graph
from torch import Tensor
from watched_defenses import APPNP, CASES, STACKED, SUMS, Seen, context_of, train, way

from fglaudit import registry
from fglaudit.defenses import DEFENSES
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.defenses.noise.quantisation import Quantisation
from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    KeptColumns,
    Merged,
    Randomised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
    first,
    on,
)
from fglaudit.facts.stored import from_json, to_json
from fglaudit.he.openfhe_process import missing
from fglaudit.payloads import MessageBatch, ModelUpdate
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel


@pytest.fixture(scope="module")
def runs() -> dict[int, Seen]:
    return {}


def run(runs: dict[int, Seen], case: int) -> Seen:
    if CASES[case][0] == "threshold-encryption" and (why := missing()) is not None:
        pytest.skip(why)
    if case not in runs:
        runs[case] = train(*CASES[case])
    return runs[case]


NAMES = [f"{name}-{number}" for number, (name, _, _) in enumerate(CASES)]
every_case = pytest.mark.parametrize("case", range(len(CASES)), ids=NAMES)


def test_every_defense_of_the_table_is_here() -> None:
    assert {name for name, _, _ in CASES} | STACKED == set(DEFENSES) | STACKED


@every_case
def test_facts_are_stated_of_what_changes_and_of_nothing_else(runs: dict[int, Seen], case: int) -> None:
    seen = run(runs, case)
    facts = seen.session.facts()
    assert from_json(to_json(facts)) == facts
    changed: set[tuple[str, str, str]] = set()
    possible: set[tuple[str, str, str]] = set()
    for batch, released in seen.messages:
        for name, before in batch.payload.tensors().items():
            place = (type(batch.payload).__name__, name, way(batch))
            if before.is_floating_point():
                possible.add(place)
            if not torch.equal(before, released.tensors()[name]):
                changed.add(place)
    for kind, name, direction in possible:
        stated = [f for f in on(facts, kind, name, direction) if not isinstance(f, Sealed | Absent)]
        assert bool(stated) == ((kind, name, direction) in changed), (kind, name, direction)
    assert changed <= possible
    rows = any(not torch.equal(before.x, after.x) for before, after in seen.clients)
    edges = any(
        not (torch.equal(before.edge_index, after.edge_index) and torch.equal(before.boundary, after.boundary))
        for before, after in seen.clients
    )
    grouped = any(bool((groups >= 0).any()) for groups in seen.merged)
    assert rows == any(f.target == ROWS for f in facts)
    assert (edges or grouped) == any(f.target == EDGES for f in facts)
    assert grouped == (first(facts, Merged, EDGES) is not None)
    assert bool(seen.gradients) == any(f.target == GRADIENTS for f in facts)
    assert {f.target.payload for f in facts if isinstance(f, Sealed) and isinstance(f.target, Field)} == {
        payload.__name__ for payload in type(CASES[case][2]).emits if seen.session.seals(payload)
    } | {a.returned.__name__ for p, a in context_of(case).aggregates.items() if a.returned and seen.session.seals(p)}


@every_case
def test_the_channel_finds_nothing_unstated(runs: dict[int, Seen], case: int) -> None:
    assert run(runs, case).unstated == ()


def since(fact: Fact) -> int:
    assert isinstance(fact.target, Field)
    return fact.target.since


def replay(facts: tuple[Fact, ...], value: Tensor, start: Tensor | None) -> tuple[Tensor, float, float]:
    """Apply the stated clips, columns and scales to ``value`` [P, D]; return it, the variance of all stated noise, and
    the step of stated rounding in shares of a message's range."""
    variance, grid = 0.0, 0.0
    for fact in facts:
        if isinstance(fact, Clipped):
            around = torch.zeros_like(value) if start is None or fact.around == "zero" else start
            change = value - around
            if fact.norm == "elementwise":
                value = around + change.clamp(-fact.bound, fact.bound)
            else:
                length = change.norm(p=1 if fact.norm == "L1" else 2, dim=1, keepdim=True)
                value = around + change * (fact.bound / length).clamp(max=1)
        elif isinstance(fact, Additive):
            variance += fact.std**2
        elif isinstance(fact, Scaled):
            value, variance = fact.offset + fact.factor * value, variance * fact.factor**2
        elif isinstance(fact, KeptColumns):
            value = torch.zeros_like(value).index_copy(1, torch.tensor(fact.ids), value[:, list(fact.ids)])
        elif isinstance(fact, Rounded):
            assert fact.step is None and fact.center is None and fact.stochastic and fact.levels is not None
            grid = 1 / (fact.levels - 1)
    return value, variance, grid


def check_residual(residual: Tensor, variance: float) -> None:
    """Compare the residual's mean square with the stated variance, at 5 standard errors of the widest distribution."""
    if variance == 0:
        assert float(residual.abs().max()) < 1e-4
        return
    measured = float(residual.double().square().mean())
    error = 5 * math.sqrt(5 / residual.numel())  # a Laplace number's square varies by sqrt(5) times its mean
    assert error < 0.6, "too few numbers to compare"
    assert measured == pytest.approx(variance, rel=error)


@every_case
def test_messages_become_what_the_facts_say(runs: dict[int, Seen], case: int) -> None:
    seen = run(runs, case)
    facts = [f for f in seen.session.facts() if isinstance(f.target, Field) and not isinstance(f, Sealed | Absent)]
    received: dict[str, Tensor] = {}
    residuals: dict[tuple[str, str, str], tuple[list[Tensor], float]] = {}
    for batch, released in seen.messages:
        kind, direction = type(batch.payload).__name__, way(batch)
        for name, before in batch.payload.tensors().items():
            if not before.is_floating_point():
                continue
            about = tuple(f for f in on(facts, kind, name, direction) if batch.round >= since(f))
            flat, after = before.flatten(1).double(), released.tensors()[name].flatten(1).double()
            reports = next((f for f in about if isinstance(f, Randomised)), None)
            if reports is not None:  # one class each, the true one as often as stated
                assert bool((after.sum(1) == 1).all()) and bool(((after == 0) | (after == 1)).all())
                keep, true = reports.parameter("keep"), (after.argmax(1) == flat.argmax(1)).double()
                assert abs(float(true.mean()) - keep) < 4 * (keep * (1 - keep) / len(true)) ** 0.5
                continue
            start = received[name][batch.senders] if direction == "up" and kind == "ModelUpdate" and received else None
            expected, variance, grid = replay(about, flat, start)
            if grid:
                low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
                level = (after - low) / (high - low).clamp(min=1e-30) / grid
                assert float((level - level.round()).abs().max()) < 1e-2
                assert float(((after - flat).abs() / (high - low).clamp(min=1e-30)).max()) < grid * 1.001
                continue
            parts, _ = residuals.setdefault((kind, name, f"{direction}{bool(about)}"), ([], variance))
            # A broadcast is one message; its copies say nothing new.
            parts.append((after - expected)[:1] if direction == "down" and kind == "ModelUpdate" else after - expected)
            if direction == "down" and kind == "ModelUpdate":
                received[name] = after
    for parts, variance in residuals.values():
        check_residual(torch.cat([part.flatten() for part in parts]), variance)


@every_case
def test_rows_become_what_the_facts_say(runs: dict[int, Seen], case: int) -> None:
    seen = run(runs, case)
    facts = tuple(f for f in seen.session.facts() if f.target == ROWS)
    reports = first(facts, Randomised, ROWS)
    residuals, variance = [], 0.0
    for before, after in seen.clients:
        rows, sent = before.x.reshape(-1, before.x.shape[-1]).double(), after.x.reshape(-1, after.x.shape[-1]).double()
        if reports is not None:
            bits = (sent - reports.parameter("center")) / reports.parameter("step")
            assert float((bits - bits.round()).abs().max()) < 1e-4
            assert bool((bits.round().abs().sum(1) == reports.parameter("sampled_features")).all())
            mean = reports.parameter("offset") + reports.parameter("factor") * sent
            residuals.append(mean - rows)
            variance = (reports.parameter("std") * reports.parameter("factor")) ** 2
            continue
        expected, variance, _ = replay(facts, rows, None)
        residuals.append(sent - expected)
    if residuals:
        together = torch.cat([part.flatten() for part in residuals])
        check_residual(together, variance)
        assert abs(float(together.mean())) <= 5 * math.sqrt(variance / together.numel()) + 1e-6


@every_case
def test_edges_and_groups_are_what_the_facts_say(runs: dict[int, Seen], case: int) -> None:
    seen = run(runs, case)
    facts = seen.session.facts()
    fewest, bound = first(facts, DroppedEdges, EDGES), first(facts, DegreeBound, EDGES)
    merged = first(facts, Merged, EDGES)
    for before, after in seen.clients:
        count = torch.bincount(after.boundary[0], minlength=len(after.nodes))
        if fewest is not None:
            had = torch.bincount(before.boundary[0], minlength=len(before.nodes))
            assert torch.equal(count, torch.where(had >= fewest.fewest, had, 0))
            assert torch.equal(before.edge_index, after.edge_index)
        if bound is not None:
            inside = torch.bincount(after.edge_index[0], minlength=len(after.nodes))
            assert int((inside + count).max()) == bound.bound
    for groups in seen.merged:
        sizes = torch.bincount(groups[groups >= 0])
        if merged is not None:
            assert bool((sizes >= merged.size).all()) and bool((sizes < 2 * merged.size).all())


@every_case
def test_gradients_become_what_the_facts_say(runs: dict[int, Seen], case: int) -> None:
    seen = run(runs, case)
    facts = [f for f in seen.session.facts() if f.target == GRADIENTS]
    clip, noise = first(facts, Clipped, GRADIENTS), first(facts, Additive, GRADIENTS)
    rate, scaled = first(facts, Sampled, GRADIENTS), first(facts, Scaled, GRADIENTS)
    assert (rate is None) == (scaled is None)
    if not seen.gradients:
        return
    assert clip is not None and noise is not None and (clip.norm, clip.per) == ("L2", "example")
    assert scaled is None or (rate is not None and scaled.factor == 1 / rate.rate and scaled.offset == 0)
    residuals = []
    for gradients, used in seen.gradients:
        length = torch.linalg.vector_norm(gradients, dim=2, keepdim=True)
        cut = (gradients * (clip.bound / length.clamp(min=1e-30)).clamp(max=1)).sum(0)
        assert clip.bound * len(gradients) < noise.std  # the sample's part is lost in the noise
        residuals.append((used / (scaled.factor if scaled else 1.0) - (rate.rate if rate else 1.0) * cut).flatten())
    check_residual(torch.cat(residuals), noise.std**2)


@every_case
def test_seals_say_what_opening_adds_and_who_can_open(runs: dict[int, Seen], case: int) -> None:
    """The channel opens what comes down; the sum of what clients sent is compared with what they then read."""
    seen = run(runs, case)
    sealed = [f for f in seen.session.facts() if isinstance(f, Sealed)]
    name, arguments, protocol = CASES[case]
    assert bool(sealed) == (name in ("homomorphic-encryption", "threshold-encryption", "secure-aggregation"))
    if not sealed:
        return
    opened: list[float] = []
    session: Any = registry.build("defense", name, {**arguments, "on": ["NeighborSums"]}).bind(context_of(case))
    about = first(session.facts(), Sealed, "NeighborSums")
    assert about is not None
    sent: dict[int, Tensor] = {}
    seal, unseal, forward = session.seal, session.unseal, session.forward

    def watched_seal(batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        done: MessageBatch = seal(batch, rng)
        assert session.readers(done) == about.readers
        left = batch.select(torch.isin(batch.senders, done.senders)).payload.tensors()
        for node, row in zip(left["nodes"].tolist(), left["sums"], strict=True):
            sent[node] = sent.get(node, torch.zeros_like(row)) + row
        return done

    def compare(batch: MessageBatch) -> MessageBatch:
        tensors = batch.payload.tensors()
        if not batch.payload.sealed_fields() and way(batch) == "down":
            for node, row in zip(tensors["nodes"].tolist(), tensors["sums"], strict=True):
                opened.append(float((row - sent.get(node, torch.zeros_like(row))).abs().max()))
        return batch

    session.seal = watched_seal
    session.forward = lambda batch: compare(forward(batch))
    session.unseal = lambda batch: compare(unseal(batch))
    channel = RecordingChannel(session, seen.graph.num_clients, derive(0, "defense"))
    protocol.train(seen.graph, channel, rng=derive(0, "train"), device=CPU)
    assert opened and max(opened) <= about.rounding + 8 * about.flooding + 1e-5
    if about.rounding > 1e-6:  # a smaller one does not show in float32
        assert max(opened) > about.rounding / 100
    absent = first(session.facts(), Absent, "NeighborSums")
    dropouts = arguments.get("dropouts", 0)
    assert (absent is None) == (not dropouts)
    if absent is not None:
        assert len(absent.clients) == round(dropouts * seen.graph.num_clients) and absent.share == 0


def test_a_sealed_model_says_what_share_of_clients_vanishes() -> None:
    arguments = {"dropouts": 0.4, "threshold": 0.51, "on": ["ModelUpdate"]}
    session = registry.build("defense", "secure-aggregation", arguments).bind(SUMS.context(example_graph()))
    assert first(session.facts(), Absent, ModelUpdate) == Absent(Field("ModelUpdate"), (), 0.4)


@pytest.mark.parametrize("rectified", [True, False])
def test_reports_of_few_features_at_a_large_budget_are_the_rows(rectified: bool) -> None:
    """One bit's epsilon may be thousands: no overflow, and no lies."""
    graph = example_graph(features=3)
    session = MultiBit(epsilon=1e4, rectified=rectified).bind(FedGCN(hops=1, rounds=1).context(graph))
    reports = first(session.facts(), Randomised)
    assert reports is not None and reports.parameter("bit_epsilon") < 1e4 / 3
    rows = session.prepare(graph.client(0), derive(0)).x
    mean = reports.parameter("offset") + reports.parameter("factor") * rows
    assert torch.allclose(mean.float(), graph.client(0).x, atol=1e-5)


def test_rounding_is_stated_of_every_payload_that_is_rounded() -> None:
    facts = Quantisation(bits=5).bind(APPNP.context(task_graph())).facts()
    assert {f.target.payload for f in facts if isinstance(f.target, Field)} == {"HiddenRepresentations", "Jacobians"}
    assert all(isinstance(f, Rounded) and f.levels == 32 for f in facts)
