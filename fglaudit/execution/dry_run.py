"""What ``--dry-run`` opens: data sets and partitions, so that what is wrong with them is said before hours of training.

No plugin file is imported, so a protocol of one is not asked whether the split suits it. How long a cell takes is not
foretold: what it depends on most, the attacks that apply and how long they search, is known only afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from fglaudit.datasets.size import expected_size
from fglaudit.errors import FglauditError
from fglaudit.execution.preflight import LARGE, check_data
from fglaudit.registry import is_stand_in
from fglaudit.rng import derive
from fglaudit.suite.cell import arguments
from fglaudit.suite.suite import Suite

FAILS = "will fail: "
"""How a line about cells that cannot be computed begins."""


def opened(suite: Suite) -> Iterator[str]:
    """Load every data set, split it by every partition with the first seed, and yield a line for each, and for every
    protocol that cannot use a split.

    Raises:
        FglauditError: data are missing or break a rule.
    """
    found = check_data(suite)
    for note in found.notes:
        yield f"note: {note}"
    for number, spec in enumerate(suite.datasets):
        name = spec.path or spec.name
        if spec.name in LARGE or spec in found.too_large:
            why = found.too_large.get(spec)
            yield f"{FAILS}datasets[{number}]: {why}" if why else f"not opened: {name}, {expected_size(spec)}"
            continue
        graph = spec.load()
        edges = graph.edge_index.shape[1] // 2
        yield f"opened: {name}, {graph.num_nodes} nodes, {edges} edges, {expected_size(spec)} of memory"
        for i, partition in enumerate(suite.partitions):
            where = f"datasets[{number}], partitions[{i}]"
            try:
                split = partition.apply(graph, spec, derive(suite.seeds[0], "partition"))
            except FglauditError as error:
                yield f"{FAILS}{where}: {error}"
                continue
            for j, protocol in enumerate(suite.protocols):
                if is_stand_in(protocol):
                    continue
                try:
                    protocol.check(split)
                except FglauditError as error:
                    yield f"{FAILS}{where}, protocols[{j}]: {error}"
            sizes = [len(nodes) for nodes in split.clients]
            yield f"  {arguments(partition)}: {len(sizes)} clients of {min(sizes)} to {max(sizes)} nodes"
