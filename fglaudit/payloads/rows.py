"""Rows of nodes, as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.payloads.base import Payload
from fglaudit.shapes import RowIds, RowValues


@dataclass(frozen=True)
class RawFeatures(Payload):
    """Feature rows in the clear, with the nodes they belong to; 8 bytes per node id on the wire.

    Attributes:
        nodes: [rows].
        x: [rows, F].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    x: RowValues


@dataclass(frozen=True)
class Embeddings(Payload):
    """Layer outputs of nodes that the receiver needs for the next layer.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        values: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues


@dataclass(frozen=True)
class ClassReports(Payload):
    """The class that a node reports of itself, one-hot: from its owner to the server, and on to neighbours' owners.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        values: [rows, C].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues
