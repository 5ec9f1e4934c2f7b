"""Distributed GCN: hidden states of nodes, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.payloads.base import Payload
from fglaudit.shapes import RowIds, RowValues


@dataclass(frozen=True)
class HiddenStates(Payload):
    """Distributed GCN: first-layer outputs of nodes of which the receiver holds a neighbour.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        values: after the activation [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues


@dataclass(frozen=True)
class HiddenGradients(Payload):
    """Distributed GCN: gradient of the sender's losses with respect to the hidden states that it was sent.

    Attributes:
        nodes: the receiver's nodes [rows], 8 bytes each on the wire.
        values: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues
