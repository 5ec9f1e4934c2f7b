"""What a run says rests on the rules that its protocol keeps: one of another author is checked before it is believed.

``exposed`` and ``structure`` are a protocol's own words, and it is handed the whole graph. What attacks do not find in
its messages says nothing where data get from party to party without a message, or where whom they reach is not said.

It is asked on a small graph, and what can be asked in few trainings on the run's own too, from the run's own seed:
there a protocol may do something else, since it has a way of its own for many nodes or knows the small graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fglaudit import registry
from fglaudit.conformance.comparing import graph_digest
from fglaudit.conformance.protocols import check_on_large, check_protocol
from fglaudit.conformance.small_graphs import small_graph
from fglaudit.empirical.fields.states import unchecked_state
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import FederatedProtocol
from fglaudit.recording import Recording
from fglaudit.suite.cell import describe

MOST_BYTES = 2**30
"""Of messages of a training that is repeated: they are held in memory."""
_asked: dict[tuple[Any, ...], Exception | None] = {}


def checked(recording: Recording, protocol: FederatedProtocol, graph: FederatedGraph) -> Recording:
    """Return ``recording`` with what ``fglaudit check`` says of its ``protocol``; of those of this package nothing.

    Where it found a fault, or could not run, nothing is verified and no observer is held.
    """
    if registry.shipped("protocol", protocol):
        return recording
    sent, seed = recording.columns["bytes_up"] + recording.columns["bytes_down"], recording.columns["seed"]
    whole = sent <= MOST_BYTES
    audit, verdict = protocol_audit(protocol, graph, seed=seed, whole=whole), recording.verdict
    if audit.outcome is Outcome.PASSED:
        return replace(recording, verdict=replace(verdict, audits=(*verdict.audits, audit)))
    verdict = verdict.unverified(audit.detail, audit)
    return replace(recording, verdict=verdict, fields=(*recording.fields, unchecked_state(audit.detail)))


def protocol_audit(protocol: FederatedProtocol, graph: FederatedGraph, *, seed: int = 0, whole: bool = True) -> Audit:
    """Return what the conformance kit says of ``protocol`` with these values of its fields, see :func:`broken_rule`.

    Args:
        graph: what it was trained on, by ``seed``.
        whole: whether it can be asked on ``graph`` too, whose messages must fit into memory; else what it does there
            counts as not known.
    """
    called, error, where = f"protocol {type(protocol).name}", broken_rule(protocol, graph), ""
    if error is None and small_graph(protocol, graph) is not graph:
        if not whole:
            why = f"is not checked on this graph, where its messages exceed {MOST_BYTES >> 20} MiB"
            fix = "audit it on a smaller graph, or for fewer rounds"
            return Audit(AuditName.PROTOCOL, Outcome.UNTESTED, f"{called} broke no rule on 60 nodes, and {why}; {fix}")
        error, where = broken_on_its_own(protocol, graph, seed), " on this graph"
    if error is None:
        return Audit(
            AuditName.PROTOCOL, Outcome.PASSED, f"{called}, which is no part of fglaudit, was seen to break no rule"
        )
    if isinstance(error, AssertionError):
        return Audit(AuditName.PROTOCOL, Outcome.UNTESTED, f"{called} breaks a rule{where}: {_said(error)}")
    return Audit(
        AuditName.PROTOCOL,
        Outcome.UNTESTED,
        f"{called} could not be checked{where}: {type(error).__name__}: {_said(error)}",
    )


def broken_on_its_own(protocol: FederatedProtocol, graph: FederatedGraph, seed: int) -> Exception | None:
    """Return what the conformance kit raises for ``protocol`` on the ``graph`` of a run and from its ``seed``, where it
    takes a dozen trainings."""
    return _once(protocol, (graph_digest(graph), seed), lambda: check_on_large(protocol, graph, seed))


def broken_rule(protocol: FederatedProtocol, graph: FederatedGraph) -> Exception | None:
    """Return what the conformance kit raises for ``protocol`` with these values of its fields, on a small graph: an
    AssertionError names a rule that is broken, anything else comes from the protocol's own code. Asked once in a
    process, since it takes some twenty trainings of 60 nodes.

    Args:
        graph: what it was trained on.
    """
    small = small_graph(protocol, graph)
    own = graph_digest(graph) if small is graph else small.num_clients
    return _once(protocol, (own,), lambda: check_protocol(protocol, small))


def _once(protocol: FederatedProtocol, where: tuple[Any, ...], asked: Callable[[], None]) -> Exception | None:
    """Return what ``asked`` raises, which is called once in a process for these values of the protocol's fields and
    ``where``."""
    key = (type(protocol), registry.source_digest(protocol), repr(describe(protocol)), *where)
    if key not in _asked:
        _asked[key] = _raised(asked)
    return _asked[key]


def _raised(asked: Callable[[], None]) -> Exception | None:
    try:
        with torch.random.fork_rng(devices=[]):
            asked()
    except Exception as error:  # a user's code runs here: whatever it raises, it must not end a run
        return error.with_traceback(None)  # whose frames would keep whole trainings in memory
    return None


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
