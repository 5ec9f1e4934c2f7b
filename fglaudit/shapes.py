"""Tensor shapes, named once.

Axis names are the same everywhere: ``nodes`` (N), ``features`` (F), ``edges`` (E), ``messages`` (P: one entry per
message of a batch), ``rows`` (rows of a ragged payload), ``samples`` (S: of a node that has several; no axis where each
node has one label). Tests check these annotations at run time; in production they are documentation.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int64
from torch import Tensor

NodeLabels = Int64[Tensor, "nodes *samples"]
NodeIds = Int64[Tensor, " nodes"]
NodeMask = Bool[Tensor, "nodes *samples"]
Degrees = Int64[Tensor, " nodes"]
EdgeIndex = Int64[Tensor, "2 edges"]
BoundaryEdges = Int64[Tensor, "2 boundary"]
RemoteIds = Int64[Tensor, " remote"]
Parties = Int64[Tensor, " messages"]
RowSplits = Int64[Tensor, " messages+1"]
RowIds = Int64[Tensor, " rows"]
RowValues = Float[Tensor, "rows features"]
