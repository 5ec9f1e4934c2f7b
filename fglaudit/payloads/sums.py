"""Sums of rows over neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.payloads.base import Payload
from fglaudit.shapes import RowIds, RowValues


@dataclass(frozen=True)
class NeighborSums(Payload):
    """Weighted sums of neighbour features, one row per node.

    Upwards: row (m, i) is ``sum over neighbours j of i at client m of A_ij x_j``; downwards: ``sum over all j``.

    Attributes:
        nodes: the node each sum belongs to [rows], 8 bytes each on the wire.
        sums: [rows, F].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues


@dataclass(frozen=True)
class HopSums(Payload):
    """Rows after some steps of propagation over the whole graph: what a neighbour at another client needs for the next.

    Upwards from a node's owner, downwards to the clients of its neighbours. What was propagated is nobody's feature
    row: public codes, or values that were released before.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        sums: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues


@dataclass(frozen=True)
class EmbeddingSums(Payload):
    """Sums of short rows over neighbourhoods, one row per node: aggregation perturbation.

    Upwards: row (m, i) is ``sum over neighbours j of i at client m of h_j``, every ``h_j`` of norm 1 at most; downwards
    ``sum over all j``, to the owner of i.

    Attributes:
        nodes: the node i each sum belongs to [rows], 8 bytes each on the wire.
        sums: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues
