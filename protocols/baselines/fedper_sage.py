"""FedPer over GraphSAGE (Arivazhagan et al. 2019, arXiv:1912.00818), a row of FedGT's Tables 1 and 2 (section 5.1).

Clients share the base layers of one network and keep the layers above them, which classify, at home: the server
averages base layers alone, weighted by training nodes. FedGT's authors take the first of GraphSAGE's two layers as the
base.

What is observed: the server sees every client's base layers in every round, clients see the averages. A head never
leaves its client.

Choices where the papers are silent: all heads start from the same weights; training is as in ``fedavg-sage``, base and
head in the same steps, with Adam's moments kept; every client tests the averaged base under its own head, and the round
with the best validation accuracy counts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from fglaudit.errors import FglauditError
from fglaudit.nn.weights import Layout
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage


@dataclass(frozen=True)
class FedPerSage(FedAvgSage):
    """FedPer over GraphSAGE; other fields are those of
    :class:`fglaudit.protocols.baselines.fedavg_sage.FedAvgSage`.

    Attributes:
        base_layers: how many layers, from the input on, are shared.
    """

    name: ClassVar[str] = "fedper-sage"
    shown: ClassVar[tuple[str, ...]] = ("base_layers",)

    base_layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.base_layers < self.layers:
            raise FglauditError(
                f"fedper-sage shares at least one of its {self.layers} layers and keeps at least one at home; got "
                f"base_layers {self.base_layers}; use fedavg-sage to share all"
            )

    def shared(self, num_inputs: int, num_classes: int) -> Layout:
        weights_and_biases = 2 * self.base_layers
        return dict(itertools.islice(self.layout(num_inputs, num_classes).items(), weights_and_biases))
