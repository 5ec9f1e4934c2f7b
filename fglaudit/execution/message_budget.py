"""Which settings of a suite send very many bytes, told before anything of it is trained."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.registry import is_stand_in
from fglaudit.rng import derive
from fglaudit.suite.cell import arguments
from fglaudit.suite.suite import Suite


def large_messages(suite: Suite, unread: Container[DatasetSpec]) -> Iterator[str]:
    """Yield what the protocols of ``suite`` say of their messages on its graphs, split with the first seed.

    Nothing is loaded where no protocol has anything to say.

    Args:
        unread: data sets that are not to be loaded here.
    """
    asked = [p for p in suite.protocols if type(p).large_messages is not FederatedProtocol.large_messages]
    for spec in suite.datasets if asked else ():
        if spec in unread:
            continue
        graph = spec.load()
        for partition in suite.partitions:
            try:
                split = partition.apply(graph, spec, derive(suite.seeds[0], "partition"))
            except FglauditError:  # the rows of its cells say so
                continue
            yield from told(split, asked, arguments(partition))


def told(split: FederatedGraph, protocols: Sequence[FederatedProtocol], where: str = "") -> Iterator[str]:
    """Yield what ``protocols`` say of their messages on ``split``, whose partition is called ``where``."""
    for protocol in protocols:
        if is_stand_in(protocol):
            continue
        try:
            protocol.check(split)
            text = protocol.large_messages(split)
        except Exception:  # a plugin's own code, or a graph that it cannot use: the run has it as a row that says so
            continue
        if text:
            yield f"{where}: {text}" if where else text
