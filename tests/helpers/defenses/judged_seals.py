"""Verdicts on what travels sealed, and rows that a stream is XORed to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.judge import judge
from fglaudit.guarantees import Outcome, Verdict
from fglaudit.interfaces import Defense
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.sealing import SealedRows
from fglaudit.testing import CPU, example_graph, record

PROTOCOL = FedGCN(hops=1, rounds=3, hidden=200)
"""Models are long enough to carry a key."""


def verdict_of(defense: Defense, *, quick: bool = False) -> Verdict:
    return judged(defense, quick=quick)[0]


def judged(defense: Defense, *, quick: bool = False) -> tuple[Verdict, str]:
    """Return the verdict, and what is said of the sums, which travel sealed."""
    run = record(PROTOCOL, example_graph(nodes=30), defense)
    counted, unstated = run.channel.counted, run.truth.unstated
    verdict, fields = judge(
        PROTOCOL, run.graph, defense, run.session, counted, unstated, seed=0, device=CPU, quick=quick
    )
    (sums,) = (f for f in fields if (f.observer, f.payload, f.field) == ("server", "NeighborSums", "sums"))
    return verdict, f"{sums.state}, {sums.reason}"


def outcomes(verdict: Verdict) -> dict[str, Outcome]:
    return {audit.name: audit.outcome for audit in verdict.audits}


@dataclass(frozen=True)
class Xored(SealedRows):
    """Rows in fixed point, with a stream XORed to their bits; sums are taken of what they hide."""

    words: Tensor
    stream: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.words.shape[0], self.words.shape[1]

    @property
    def values(self) -> Tensor:
        return (self.words ^ self.stream).double() / 2**20

    @staticmethod
    def of(values: Tensor, stream: Tensor) -> Xored:
        return Xored((values.double() * 2**20).round().long() ^ stream, stream)

    def combine(self, weights: Tensor) -> SealedRows:
        total = torch.sparse.mm(weights, self.values)
        return Xored.of(total, self.stream[:1].expand(len(total), -1))

    def add(self, other: SealedRows) -> SealedRows:
        assert isinstance(other, Xored)
        return Xored.of(self.values + other.values, self.stream)

    def wire_bytes(self, splits: Tensor) -> Tensor:
        return splits.diff() * self.words.shape[1] * 8
