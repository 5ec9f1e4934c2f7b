"""Protocols small enough for ciphertexts and pretended seals."""

from __future__ import annotations

from fedgat_runs import SMALL

from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgt.fedgt import FedGT

MATRICES = FedGAT(**{**SMALL, "path": "matrices"})
TINY_GT = FedGT(
    similarity="fedavg",
    hidden=8,
    heads=2,
    feed_forward=8,
    neighbors=3,
    global_nodes=2,
    encoding=2,
    candidates=8,
    rounds=3,
    dropout=0.0,
)
