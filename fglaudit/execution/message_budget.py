"""Which settings of a suite send very many bytes, told before anything of it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.registry import is_stand_in
from fglaudit.rng import derive
from fglaudit.suite.cell import arguments
from fglaudit.suite.suite import Suite


@dataclass(frozen=True)
class LargeMessages:
    """A question to a data set of a suite while it is loaded: what do its protocols say of their messages there?"""

    partitions: tuple[PartitionSpec, ...]
    protocols: tuple[FederatedProtocol, ...]
    seed: int

    @classmethod
    def of(cls, suite: Suite) -> Self | None:
        """Return the question of ``suite``; None where no protocol has anything to say of its messages."""
        asked = [p for p in suite.protocols if type(p).large_messages is not FederatedProtocol.large_messages]
        return cls(suite.partitions, tuple(asked), suite.seeds[0]) if asked else None

    def __call__(self, graph: Graph, spec: DatasetSpec) -> Iterator[str]:
        """Yield what they say of ``graph``, which ``spec`` names, split with the first seed."""
        for partition in self.partitions:
            try:
                split = partition.apply(graph, spec, derive(self.seed, "partition"))
            except FglauditError:  # the rows of its cells say so
                continue
            yield from told(split, self.protocols, arguments(partition))


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
