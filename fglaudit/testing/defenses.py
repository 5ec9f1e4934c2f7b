"""What a defense promises."""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.conformance.comparing import assert_unchanged, check_plugin, copy_of
from fglaudit.conformance.runs import example_graph, record
from fglaudit.facts import Additive, Field
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Word
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.rng import derive

REFUTED = "the guarantee is refuted"


class RefutedError(AssertionError):
    """The audits of a run refute what the defense promises."""


def check_defense(
    defense: Defense, protocol: FederatedProtocol, graph: FederatedGraph | None = None, *, quick: bool = False
) -> None:
    """Check a defense on ``protocol``: shapes survive, inputs are not changed, noise and guarantee are stated
    consistently, and the guarantee is not refuted by the audits of a run.

    Args:
        quick: replay nothing: only the stated epsilon and the number of releases are then compared.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    check_plugin(defense)
    graph = graph or example_graph()
    context = protocol.context(graph)
    reason = defense.unsupported(context)
    assert reason is None or reason.strip(), "a refusal needs a reason"
    if reason is not None:
        return
    session = defense.bind(context)
    for k in range(graph.num_clients):
        client = graph.client(k)
        kept = {f.name: copy_of(getattr(client, f.name)) for f in dataclasses.fields(client)}
        prepared = session.prepare(client, derive(0, "prepare"))
        assert torch.equal(prepared.nodes, client.nodes), "prepare keeps the client's nodes"
        assert_unchanged(kept, {name: getattr(client, name) for name in kept}, "prepare must not change its input")
    run = record(protocol, graph, defense, empirical=not quick)
    guarantee = session.guarantee()
    noise = {f.target.payload for f in session.facts() if isinstance(f, Additive) and isinstance(f.target, Field)}
    assert all(session.changes(payload) for payload in type(protocol).emits if payload.__name__ in noise), (
        "a payload with stated noise is a payload the defense changes"
    )
    for unstated in run.truth.unstated:
        raise AssertionError(
            f"{type(defense).name} changes {unstated.target} and states no fact that explains it: {unstated.why};"
            " return what it does from DefenseSession.facts()"
        )
    verdict = run.recording.verdict
    if verdict.word is Word.REFUTED:
        raise RefutedError(f"{REFUTED}: {verdict.reason}")
    if guarantee.epsilon_accounted is not None:
        assert guarantee.unit and guarantee.adjacency and guarantee.releases, (
            "epsilon names unit, adjacency and releases (rule 9)"
        )
        assert guarantee.delta is not None and 0 <= guarantee.delta < 1, "epsilon names delta (rule 9)"
    assert len(run.trained.accuracy_global) > 0
