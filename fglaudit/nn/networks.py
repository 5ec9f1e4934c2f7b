"""The networks of FedGCN's clients: all average over neighbours, so that sums of features are all they need.

``gcn`` is that of Kipf and Welling (2017). ``gcn-batchnorm`` normalises every hidden layer over a client's rows before
the activation (Hu et al. 2020, for ogbn-arxiv). ``sage`` is GraphSAGE with the aggregator that its authors call GCN
(Hamilton et al. 2017, section 3.3): the mean over a node and its neighbours, with one weight. Their mean aggregator has
a second weight for the node itself and would need its neighbours' features, which sums do not give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fglaudit.errors import unknown


@dataclass(frozen=True)
class Network:
    """A network by what sets it apart.

    Attributes:
        means: whether layers average over closed neighbourhoods; else symmetric weights.
        batch_norm: whether hidden layers are normalised over a client's rows.
    """

    means: bool = False
    batch_norm: bool = False


GCN = Network()
NetworkName = Literal["gcn", "gcn-batchnorm", "sage"]
NETWORKS: dict[NetworkName, Network] = {
    "gcn": GCN,
    "gcn-batchnorm": Network(batch_norm=True),
    "sage": Network(means=True),
}


def network(name: NetworkName) -> Network:
    """Return the network called ``name``.

    Raises:
        FglauditError: there is none.
    """
    if name not in NETWORKS:
        raise unknown("network", name, tuple(NETWORKS))
    return NETWORKS[name]
