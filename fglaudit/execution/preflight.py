"""Before anything trains: do the data load, and are they what an earlier part of the run saw?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.data_child import Question, TooLarge, look_safely
from fglaudit.suite.suite import Suite

LARGE = ("ogbn-arxiv", "ogbn-products")
"""Not loaded here: that would cost minutes and gigabytes. Trouble with their files becomes failed rows of their
cells."""


class UnfitPartitionError(FglauditError):
    """A partition of the suite does not fit its data: the suite is to be changed."""


@dataclass
class DataCheck:
    """What was found.

    Attributes:
        digests: by entry of the suite, over the content of its graph: results on other content must not be mixed.
        notes: what had to be changed in a graph, e.g. directed edges; and what does not fit.
        answers: to what was asked of each data set.
        too_large: why the cells of a data set cannot be computed on this machine: they fail, and no others.
    """

    digests: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    too_large: dict[DatasetSpec, str] = field(default_factory=dict)


def check_data(suite: Suite, question: Question | None = None) -> DataCheck:
    """Load every data set of ``suite`` once, each in a process of its own unless it is small, and ask it ``question``.

    Raises:
        FglauditError: missing or corrupt files, a user's graph that breaks a rule.
        UnfitPartitionError: more clients than nodes, or not those that the graph names.
    """
    result = DataCheck()
    for number, spec in enumerate(suite.datasets):
        if spec.name in LARGE:
            continue
        where = f"datasets[{number}] {spec.path or spec.name}"
        try:
            found = look_safely(spec, question)
        except FglauditError as error:
            raise FglauditError(f"{where}: {error}") from error
        if isinstance(found, TooLarge):
            result.too_large[spec] = found.reason
            result.notes.append(f"{where}: {found.reason}; its cells fail")
            continue
        result.notes += [note for note in found.notes if note not in result.notes]
        result.answers += found.answers
        result.digests[where] = found.digest
        for i, partition in enumerate(suite.partitions):
            try:
                partition.check(found.name, found.nodes, found.clients)
            except FglauditError as error:
                raise UnfitPartitionError(f"partitions[{i}]: {error}") from error
    return result
