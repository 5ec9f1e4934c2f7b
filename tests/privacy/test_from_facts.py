"""The tool's own epsilon, from facts and counted releases: equal to what the built-in defenses say of themselves."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from node_graphs import graph as node_graph
from user_graphs import GCN, user_graph

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.facts import ROWS, Additive, Clipped, Fact, Field, Memoised, Randomised, Rounded, Scaled
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.bounded import Bounded
from fglaudit.privacy.counted import Counted, Sent
from fglaudit.privacy.from_facts import account
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.structure import Reports
from fglaudit.testing import Run, example_graph, record

GRAPHS = {"clients": example_graph, "users": user_graph, "nodes": node_graph}
SMALL_GT = {"rounds": 3, "hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3}

HONEST: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "gaussian", "epsilon": 4.0}),
    ("fedgcn", {"hops": 2, "rounds": 2}, "clients", {"name": "gaussian", "epsilon": 1.0, "clip": 3.0}),
    ("fedgat", {"rounds": 1, "heads": 2}, "clients", {"name": "gaussian", "on": "RawFeatures"}),
    ("fedgat", {"rounds": 1, "heads": 2}, "clients", {"name": "gaussian", "on": "MaskedMatrices"}),
    ("fedgat", {"rounds": 1, "heads": 2, "variant": "vector"}, "clients", {"name": "gaussian", "on": "MaskedVectors"}),
    ("nfedgnn", GCN, "users", {"name": "clipped-noise", "epsilon": 3.0}),
    ("nfedgnn", GCN, "users", {"name": "clipped-noise", "mechanism": "laplace", "delta": 0.0}),
    ("nfedgnn", GCN, "users", {"name": "clipped-noise", "mechanism": "laplace"}),
    ("gfl-appnp", {"hidden": 8, "rounds": 3, "local_steps": 2}, "nodes", {"name": "joint-noise"}),
    ("fedgt", SMALL_GT, "clients", {"name": "clipped-laplace", "on": ["GlobalNodes", "ModelUpdate"]}),
    ("fedgt", SMALL_GT, "clients", {"name": "clipped-laplace", "on": ["GlobalNodes", "ModelUpdate"], "norm": "l1"}),
    ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "local-features"}),
    ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "local-features", "mechanism": "gaussian", "delta": 1e-5}),
    ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "multi-bit", "epsilon": 5.0}),
    ("gfl-appnp", {"hidden": 8, "rounds": 2, "local_steps": 2}, "nodes", {"name": "multi-bit", "sampled": 2}),
    ("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-sgd", "epsilon": 2.0}),
    ("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-sgd", "edges": "public", "degree_bound": 3}),
    ("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-sgd", "sampling_rate": 0.3}),
    ("fedmlp", {"hidden": 8, "rounds": 3}, "nodes", {"name": "dp-sgd", "edges": "public"}),
    ("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-fedavg"}),
    ("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-fedavg", "trust": "local"}),
    ("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-fedavg", "trust": "distributed"}),
    ("fedgcn", {"hops": 0, "rounds": 3, "participation": 0.67}, "clients", {"name": "dp-fedavg"}),
    (
        "fedgcn",
        {"hops": 1, "rounds": 2},
        "clients",
        {"name": "stack", "parts": [{"name": "gaussian"}, {"name": "homomorphic-encryption", "scheme": "ckks"}]},
    ),
    (
        "fedgcn",
        {"hops": 1, "rounds": 2},
        "clients",
        {"name": "stack", "parts": ["drop-singletons", {"name": "gaussian", "clip": 2.0}]},
    ),
    (
        "fedgcn",
        {"hops": 1, "rounds": 2},
        "clients",
        {"name": "stack", "parts": [{"name": "local-features"}, "drop-singletons", {"name": "secure-aggregation"}]},
    ),
]


def recorded(protocol: str, arguments: dict[str, Any], graph: str, defense: dict[str, Any]) -> Run:
    fields = {k: tuple(v) if k == "on" and isinstance(v, list) else v for k, v in defense.items() if k != "name"}
    made: FederatedGraph = GRAPHS[graph]()
    if graph == "users":
        made = dataclasses.replace(made, x=made.x.float())
    return record(
        registry.build("protocol", protocol, arguments), made, registry.build("defense", defense["name"], fields)
    )


def accounted(run: Run, guarantee: Guarantee | None = None, facts: tuple[Fact, ...] | None = None) -> Accounted | str:
    context = run.protocol.context(run.graph)
    promise = guarantee or run.session.guarantee()
    return account(context, run.session.facts() if facts is None else facts, promise, run.channel.counted)


@pytest.mark.parametrize(("protocol", "arguments", "graph", "defense"), HONEST, ids=lambda v: str(v)[:40])
def test_the_built_in_numbers(protocol: str, arguments: dict[str, Any], graph: str, defense: dict[str, Any]) -> None:
    run = recorded(protocol, arguments, graph, defense)
    own = run.session.guarantee().epsilon_accounted
    found = accounted(run)
    assert not isinstance(found, str), found
    assert own is not None and found.epsilon == pytest.approx(own, rel=1e-6)
    assert found.mechanisms and all(part.releases >= 1 for part in found.mechanisms)


@pytest.mark.parametrize(
    ("protocol", "arguments", "graph", "defense", "why"),
    [
        ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "dp-fedavg"}, "NeighborSums in the clear"),
        ("fedgt", SMALL_GT, "clients", {"name": "clipped-laplace"}, "ModelUpdate in the clear"),
        ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "drop-singletons"}, "names no unit"),
        ("cnfgnn", GCN, "users", {"name": "clipped-noise"}, "ModelUpdate in the clear"),
    ],
)
def test_what_is_left_in_the_clear(
    protocol: str, arguments: dict[str, Any], graph: str, defense: dict[str, Any], why: str
) -> None:
    found = accounted(recorded(protocol, arguments, graph, defense))
    assert isinstance(found, str) and why in found


SUMS = ("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "gaussian", "epsilon": 4.0})


def test_numbers_of_the_session_are_not_read() -> None:
    run = recorded(*SUMS)
    lie = dataclasses.replace(run.session.guarantee(), epsilon_accounted=0.1, epsilon_claimed=0.1, releases=99)
    honest, found = accounted(run), accounted(run, lie)
    assert isinstance(found, Accounted) and isinstance(honest, Accounted) and found.epsilon == honest.epsilon


def test_facts_decide() -> None:
    run = recorded(*SUMS)
    honest = accounted(run)
    assert isinstance(honest, Accounted)
    field = Field("NeighborSums", direction="up")
    (noise,) = [fact for fact in run.session.facts() if isinstance(fact, Additive)]
    clip = Clipped(ROWS, "L2", 2.0, "row")
    wider = accounted(run, facts=(clip, noise))
    assert isinstance(wider, Accounted) and wider.mechanisms[0].sensitivity == 2 * honest.mechanisms[0].sensitivity
    assert wider.epsilon > honest.epsilon
    for facts, why in (
        ((noise,), "no L2 norm of rows"),
        ((Clipped(ROWS, "L1", 1.0, "row"), noise), "no L2 norm of rows"),
        ((clip,), "no fact states noise"),
        ((clip, Scaled(field, 0.0, 3.0), noise), "changed before the noise"),
        ((clip, noise, Memoised(field)), "memoised"),
        ((clip, Additive(field, "uniform", 3.0)), "uniform noise"),
        ((clip, Additive(field, "gaussian", 0.0)), "scale 0"),
        ((clip, Additive(Field("NeighborSums", "nodes", "up"), "gaussian", 3.0)), "no noise is stated"),
        ((clip, Additive(Field("NeighborSums", "", "down"), "gaussian", 3.0)), "no noise is stated"),
        ((clip, Additive(Field("NeighborSums", "", "up", since=1), "gaussian", 3.0)), "starts later"),
    ):
        found = accounted(run, facts=facts)
        assert isinstance(found, str) and why in found, (facts, found)


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (Clipped(ROWS, "L2", 0.0, "row"), "sensitivity must be positive; got 0"),
        (Clipped(ROWS, "L2", -1.0, "row"), "sensitivity must be positive; got -2"),
        (Scaled(ROWS, 0.0, 0.0), "sensitivity must be positive; got 0"),
    ],
)
def test_what_moves_nothing_is_not_accounted(fact: Fact, why: str) -> None:
    """It ended in a division by zero."""
    run = recorded("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "gaussian", "epsilon": 4.0})
    clip, noise = Clipped(ROWS, "L2", 1.0, "row"), Additive(Field("NeighborSums", direction="up"), "gaussian", 3.0)
    promise = dataclasses.replace(run.session.guarantee(), relation=Relation.REPLACE)
    found = accounted(run, promise, facts=(clip, fact, noise))
    assert isinstance(found, str) and why in found, found


def test_a_clip_bounds_what_was_rounded_before() -> None:
    field = Field("Latents", "", "up")
    clip, rounded = Clipped(field, "L2", 2.0), Rounded(field, step=0.25)
    assert Bounded.by((clip, rounded), "message").strange == "Rounded"
    again = Bounded.by((clip, rounded, dataclasses.replace(clip, bound=3.0)), "message")
    assert (again.strange, again.bounds, again.changed) == ("", {"L2": 3.0}, True)
    merged = Bounded.by((Memoised(field), clip), "message")
    assert merged.strange == "Memoised", "a clip does not bound what was made of other records"


def test_next_to_no_noise_has_no_finite_epsilon() -> None:
    run = recorded(*SUMS)
    clip, noise = Clipped(ROWS, "L2", 1.0, "row"), Additive(Field("NeighborSums", direction="up"), "gaussian", 1e-200)
    found = accounted(run, facts=(clip, noise))
    assert isinstance(found, Accounted) and found.epsilon == math.inf


def _with(facts: tuple[Fact, ...], name: str, value: float) -> tuple[Fact, ...]:
    """Return ``facts`` with another parameter of random reports."""
    return tuple(
        dataclasses.replace(
            fact, parameters=tuple((key, value if key == name else old) for key, old in fact.parameters)
        )
        if isinstance(fact, Randomised)
        else fact
        for fact in facts
    )


def test_reports_that_lie_more_often_than_not_have_no_negative_epsilon() -> None:
    """A response that is nearly always another class, or a bit nearly always the opposite, tells as much as the truth
    does; its epsilon was accounted as below 0."""
    bits = recorded("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "multi-bit", "epsilon": 5.0})
    for bit in (-3.0, 0.0, -1000.0, math.nan):
        found = accounted(bits, facts=_with(bits.session.facts(), "bit_epsilon", bit))
        assert isinstance(found, str) and "more often than not" in found, found
    surest = accounted(bits, facts=_with(bits.session.facts(), "bit_epsilon", 1000.0))
    assert "have an epsilon at delta = 0" in str(surest)  # not one bit lies
    classes = recorded("private-reports", {}, "clients", {"name": "k-ary-response"})
    for keep in (0.05, 0.2):  # of 3 classes
        found = accounted(classes, facts=_with(classes.session.facts(), "keep", keep))
        assert isinstance(found, str) and f"got {keep:g} of 3" in found, found
    with pytest.raises(FglauditError, match=r"probability in \[1 / classes, 1\]; got keep 0.05"):
        Reports(7, of="label", keep=0.05)


def test_a_response_of_more_classes_than_are_sent_is_told_so() -> None:
    """More classes have a smaller epsilon; the reason named the chance, which was right."""
    run = recorded("private-reports", {}, "clients", {"name": "k-ary-response"})
    found = accounted(run, facts=_with(run.session.facts(), "classes", 6))
    assert isinstance(found, str) and "says one of 6 classes, and a message has 3 numbers" in found, found
    found = accounted(run, facts=_with(run.session.facts(), "keep", 1.0))
    assert isinstance(found, str) and "a chance between 0 and 1; got 1" in found, found


def test_words_of_the_guarantee_decide() -> None:
    run = recorded(*SUMS)
    promise, honest = run.session.guarantee(), accounted(run)
    replaced = accounted(run, dataclasses.replace(promise, relation=Relation.REPLACE))
    assert isinstance(replaced, Accounted) and isinstance(honest, Accounted) and replaced.epsilon > honest.epsilon
    assert isinstance(accounted(run, dataclasses.replace(promise, unit="client")), str)
    assert isinstance(accounted(run, dataclasses.replace(promise, relation=Relation.ADD_OR_REMOVE)), str)
    assert isinstance(accounted(run, dataclasses.replace(promise, delta=None)), str)


def test_the_server_adds_noise_for_clients_alone() -> None:
    run = recorded("fedgat", {"rounds": 1, "heads": 2}, "clients", {"name": "gaussian", "on": "MaskedMatrices"})
    everybody = dataclasses.replace(run.session.guarantee(), server_trusted=False)
    assert "the server adds the noise" in str(accounted(run, everybody))


def test_more_releases_cost_more() -> None:
    run = recorded(*SUMS)
    once, context = run.channel.counted, run.protocol.context(run.graph)
    sent = once.of("NeighborSums", by_server=False)
    assert sent.repeats == 1 and sent.fields == ("sums",)
    twice = Counted((dataclasses.replace(sent, repeats=2),), once.prepared)
    found = [account(context, run.session.facts(), run.session.guarantee(), counted) for counted in (once, twice)]
    assert isinstance(found[0], Accounted) and isinstance(found[1], Accounted)
    assert found[1].mechanisms[0].releases == 2 and found[1].epsilon > 1.3 * found[0].epsilon


def test_what_is_counted() -> None:
    run = recorded("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-sgd"})
    counted, context = run.channel.counted, run.protocol.context(run.graph)
    assert not isinstance(context.examples, str) and counted.updates == context.examples.passes
    passes = counted.passes(context.examples.losses)  # at least: examples whose units are all dead have no gradient
    assert passes is not None and context.examples.passes - 1 <= passes <= context.examples.passes
    models = counted.of("ModelUpdate", by_server=False)
    assert models.rounds == 3 and models.first_round == 1
    assert Counted().of("Latents", by_server=True) == Sent("Latents", True)


def test_protocol_without_a_bound_needs_a_clip() -> None:
    run = recorded("nfedgnn", GCN, "users", {"name": "clipped-noise"})
    noise = [fact for fact in run.session.facts() if isinstance(fact, Additive)]
    assert "no L2 norm that is bounded" in str(accounted(run, facts=tuple(noise)))


ROWS_TOO = [{"name": "dp-sgd", "edges": "public", "epsilon": 8.0}, {"name": "local-features", "epsilon": 1.0}]


def test_random_rows_do_not_cover_labels() -> None:
    """Labels enter gradients whatever was done to rows: beside dp-sgd, whose record has a label, noise on rows changes
    nothing."""
    run = recorded("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "stack", "parts": ROWS_TOO})
    found, promise = accounted(run), run.session.guarantee()
    assert "features and label replaced" in promise.adjacency and promise.labels
    assert isinstance(found, Accounted) and found.epsilon == pytest.approx(8.0, rel=1e-3)
    features = dataclasses.replace(promise, labels=False)
    alone = account(run.protocol.context(run.graph), run.session.facts(), features, run.channel.counted)
    assert isinstance(alone, Accounted) and alone.epsilon == pytest.approx(1.0)
    rows = [fact for fact in run.session.facts() if fact.target == ROWS]
    assert "no fact states noise" in str(accounted(run, facts=tuple(rows)))


def test_edges_that_enter_messages_are_no_part_of_a_record_of_gradients() -> None:
    run = recorded("fedgcn", {"hops": 0, "rounds": 3}, "clients", {"name": "dp-sgd"})
    context = dataclasses.replace(run.protocol.context(run.graph), cross_edges=True)
    found = account(context, run.session.facts(), run.session.guarantee(), run.channel.counted)
    assert "a node that is removed takes its own" in str(found)


def test_rows_of_some_clients_alone() -> None:
    run = recorded("fedgcn", {"hops": 1, "rounds": 2}, "clients", {"name": "local-features"})
    context = FedGCN(hops=1, rounds=2).context(run.graph)
    found = account(context, run.session.facts(), run.session.guarantee(), Counted(prepared=(1, 0, 1)))
    assert "1 of 3 clients used their rows as they are" in str(found)
    again = account(context, run.session.facts(), run.session.guarantee(), Counted(prepared=(2, 1, 1)))
    once = account(context, run.session.facts(), run.session.guarantee(), Counted(prepared=(1, 1, 1)))
    assert isinstance(again, Accounted) and isinstance(once, Accounted)
    assert again.epsilon == pytest.approx(2 * once.epsilon)
