"""FedGT's Figure 8: the epsilon that its noise spends, counted without any training.

The paper's ``2 delta / lambda`` is what one number of one upload spends. All numbers that a client sends in a round are
made of the same rows and add up, and so do its rounds, as ``clipped-laplace`` accounts for them.
"""

from __future__ import annotations

import math

from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.reproduce.papers import fedgt
from fglaudit.reproduce.papers.fedgt_methods import NOISY_UPDATES
from fglaudit.reproduce.papers.fedgt_rows import BUDGETS
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured


def figure(row: Published, root: str | None) -> Measured:
    """Return the epsilon of ``row``, under the replacement of all that one client holds."""
    protocol, noise = fedgt.protocol(row), fedgt.noise_of(row)
    assert isinstance(protocol, FedGT)
    number, round, _ = BUDGETS
    coordinates = 1 if row.metric == number else sent_in_a_round(row, protocol, root)
    releases = 1 if row.metric in (number, round) else protocol.rounds
    return Measured(noise.mechanism.epsilon(noise.delta, releases, coordinates))


def sent_in_a_round(row: Published, protocol: FedGT, root: str | None) -> int:
    """Return how many noisy numbers a client sends in a round."""
    numbers = protocol.global_nodes * protocol.hidden
    if row.method == NOISY_UPDATES:
        dataset, _ = fedgt.split_of(row, root)
        graph = dataset.load()
        layout = protocol.layout(graph.x.shape[1] + protocol.positions, graph.num_classes)
        numbers += sum(map(math.prod, layout.values()))
    return numbers
