"""Does a protocol say of everybody who receives rows, or what is made of them, that rows reach it? Of observers to whom
nothing is exposed, reports say that there is nothing to ask."""

from __future__ import annotations

from torch import isin

from fglaudit.conformance.side_channels import KeptMessages, aligned, changed_rows, moved, named
from fglaudit.context import REPORTING_NODE
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import Observer


def unexposed(protocol: FederatedProtocol, graph: FederatedGraph, first: KeptMessages) -> str:
    """Return in words who receives what a client's rows move, though ``exposed`` lists none of its nodes for that
    observer; empty if nobody does. Models, and what ``releases`` says is about whole clients or edges, are asked about
    under other quantities.

    Args:
        first: the messages of a training of ``protocol`` on ``graph`` without a defense.
    """
    listed = about_nodes(protocol, graph)
    if not listed:
        return ""
    client, own, rows = changed_rows(graph)
    other = KeptMessages.with_rows(protocol, graph, rows)
    since: dict[type, int] = {}
    for before, after in zip(first.batches, other.batches, strict=False):
        if not aligned(before, after):
            break
        kind = type(before.payload)
        if kind not in listed or before.round != since.setdefault(kind, before.round):
            continue  # later on everything depends on everything
        entries = moved(before, after)
        for party in sorted(set(before.receivers[before.entry_messages()[entries]].tolist())):
            observer = Observer((party,), topology=True)
            if party != client and not bool(isin(own, protocol.exposed(graph, observer)).any()):
                return f"{named(party)} receives {kind.__name__} made of rows of client {client}"
    return ""


def about_nodes(protocol: FederatedProtocol, graph: FederatedGraph) -> set[type[Payload]]:
    """Return the payloads that ``exposed`` is about: all but models, and what ``releases`` says is about whole clients
    or edges."""
    units = ("node", REPORTING_NODE)
    others = {release.payload for release in protocol.releases(graph) if release.unit not in units}
    return set(type(protocol).emits) - others - {ModelUpdate}
