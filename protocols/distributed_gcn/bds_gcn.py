"""BDS-GCN: Distributed GCN with boundary nodes sampled afresh in every step (Wan et al. 2022, BNS-GCN).

A copy of a remote neighbour takes part in a step with probability ``rate``, and counts 1 / ``rate`` times, so that
sums are right on average. Its feature row is sent when it takes part for the first time. So sampling saves hidden
states and gradients; of the rows a share of ``1 - (1 - rate)^t`` is out after t steps. The accuracy of a round is
measured with its sample, that of the last one with all copies.

The name and the comparison are FedGCN's, which samples half. Its authors' code draws the half once per training, hands
clients the rows of these neighbours and trains FedGCN's 1-hop variant on them
(``fglaudit/reproduce/authors_code/fedgcn_one_hop.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fglaudit.context import Release
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN


@dataclass(frozen=True)
class BDSGCN(DistributedGCN):
    """BDS-GCN; other fields are those of :class:`fglaudit.protocols.distributed_gcn.distributed_gcn.DistributedGCN`.

    Attributes:
        rate: probability with which a copy takes part in a step.
    """

    name: ClassVar[str] = "bds-gcn"
    shown: ClassVar[tuple[str, ...]] = ("rate",)

    rate: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate <= 1:
            raise FglauditError(f"rate is a probability in (0, 1]; got {self.rate:g}; use for example 0.5")

    @property
    def sampling_rate(self) -> float:
        return self.rate

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """A row may go out in any round: as many releases of rows count as there are rounds."""
        rows, *others = super().releases(graph)
        return (replace(rows, times=self.rounds + 1), *others)
