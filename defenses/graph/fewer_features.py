"""Send fewer features: outside a public random subset every entry is zero before anything is computed from it.

The subset is drawn from a seed, without looking at any data, and is known to everybody. What is kept is not protected
at all: every attack reads it as before. A rate of exactly rebuilt rows falls to nothing as soon as one feature of a row
is not sent, however much of the row is known; judge this defense by F1 or precision and recall.

Rows keep their width (the others are zero), so that models and messages keep their shapes; counted bytes are an upper
bound of what a sender of the kept columns needs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.errors import FglauditError
from fglaudit.facts import ROWS, Fact, KeptColumns
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import NeighborSums, RawFeatures
from fglaudit.privacy.strength import check_factor
from fglaudit.rng import derive


class _Session(DefenseSession):
    def __init__(self, kept: Tensor) -> None:
        self.kept = kept

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Return the client with all features but the kept ones set to zero."""
        x = torch.zeros_like(client.x).index_copy(-1, self.kept, client.x.index_select(-1, self.kept))
        return dataclasses.replace(client, x=x)

    def facts(self) -> tuple[Fact, ...]:
        return (KeptColumns(ROWS, tuple(self.kept.tolist())),)

    def guarantee(self) -> Guarantee:
        return Guarantee(
            mechanism=f"{len(self.kept)} public features are sent as they are; exact whole rows say nothing here"
        )


@dataclass(frozen=True)
class FewerFeatures(Defense):
    """Only a public random subset of the features is ever used or sent. No epsilon is promised.

    Attributes:
        share: of the features that is kept, in (0, 1); at least one feature is.
        subset: seed of the random subset, which is public; ``seed`` is taken for it.
    """

    name: ClassVar[str] = "fewer-features"
    shown: ClassVar[tuple[str, ...]] = ("share",)
    also: ClassVar[Mapping[str, str]] = {"seed": "subset", "code_seed": "subset"}

    share: float = 0.25
    subset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise FglauditError(
                f"share is the part of the features that is sent, in (0, 1); got {self.share:g}; use for example 0.25"
            )

    def unsupported(self, context: Context) -> str | None:
        if not any(release.payload in (NeighborSums, RawFeatures) for release in context.releases):
            return (
                f"{context.protocol} sends neither feature rows nor their sums; attacks on what it sends take features"
                " that are never used for zeros, and would prove wrong rows"
            )
        return None

    def weakened(self, factor: float) -> FewerFeatures:
        """Return it with a larger share of the features."""
        check_factor(factor)
        return dataclasses.replace(self, share=min(1 - (1 - self.share) * factor, math.nextafter(1.0, 0.0)))

    def bind(self, context: Context) -> DefenseSession:
        order = torch.randperm(context.num_features, generator=derive(self.subset, "feature-subset"))
        return _Session(order[: max(1, round(self.share * context.num_features))].sort().values)
