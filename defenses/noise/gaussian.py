"""Gaussian mechanism on a feature-bearing payload, calibrated jointly over everything one node's features enter.

Every feature row is scaled to L2 norm at most ``clip`` before anything is computed from it; the protocol states how far
a row of norm 1 moves all messages of one release together (``Release.gain``, a bound on the column norms of the
aggregation matrix); the noise is calibrated to ``gain x clip`` over all releases. The guarantee is about one node's
feature row (zeroed out or not), with edges and labels public.

Who adds the noise: the clients to what they send; but where a payload is made by the server from rows that it received
in the clear (``Release.by_server``: FedGAT's matrices and vectors), the server, which is then trusted, and the
guarantee holds against clients alone. Fields that do not depend on features (``Release.fields``: parts of FedGAT's
masks) get none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context, Release, Unit
from fglaudit.defenses.noise.noisy_messages import NoiseSession, release_named
from fglaudit.errors import FglauditError
from fglaudit.facts import ROWS, Clipped, Fact
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, PayloadName, payload_type
from fglaudit.privacy.accounting import Relation, check_budget
from fglaudit.privacy.mechanism import Mechanism, calibrated, check_clip, clip_rows
from fglaudit.privacy.strength import weaker_budget


class _Session(NoiseSession):
    clips_messages: ClassVar[bool] = False

    def __init__(self, defense: Gaussian, release: Release, gain: float) -> None:
        relation, adjacency = neighbors(release)
        norm = release.row_norm or defense.clip
        mechanism = calibrated(
            "gaussian", norm, relation,
            epsilon=defense.epsilon, delta=defense.delta, releases=release.times, gain=gain,
        )  # fmt: skip
        promise = Guarantee(
            mechanism=f"gaussian sigma={mechanism.scale:.4g} on {defense.on}, sensitivity {mechanism.sensitivity:.4g}",
            epsilon_claimed=defense.epsilon,
            epsilon_accounted=mechanism.epsilon(defense.delta, release.times) if release.covers_training else None,
            delta=defense.delta,
            unit=defense.unit,
            adjacency=adjacency,
            relation=relation,
            releases=release.times,
            server_trusted=release.by_server,
            labels=release.row_norm is not None and release.unit == "node",  # models have them: see `neighbors`
        )
        super().__init__({release: mechanism}, promise)
        self.clip = None if release.row_norm else defense.clip

    def facts(self) -> tuple[Fact, ...]:
        clipped = () if self.clip is None else (Clipped(ROWS, "L2", self.clip, "row"),)
        return (*clipped, *super().facts())

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Scale every feature row to norm at most ``clip``, unless the protocol bounds what it sums itself."""
        return client if self.clip is None else dataclasses.replace(client, x=clip_rows(client.x, self.clip))

    def prepares(self) -> bool:
        return self.clip is not None

    def bounded(self, batch: MessageBatch, value: Tensor, mechanism: Mechanism) -> Tensor:
        return value  # made of clipped rows


def neighbors(release: Release) -> tuple[Relation, str]:
    """Return what happens to one record between neighbouring data sets, and the adjacency in words.

    Rows that a defense clips are zeroed out. Where the protocol bounds what it sums (``Release.row_norm``) a row may
    become any other, and turn what is summed around; an edge comes or goes. What enters models too, with labels, is
    described as ``dp-sgd`` describes it, so that the two add up.
    """
    if release.row_norm is None:
        return Relation.ZERO_OUT, Relation.ZERO_OUT.of("one node's feature row")
    if release.unit == "edge":
        return Relation.ADD_OR_REMOVE, "one edge added or removed; features and labels public"
    if release.unit == "node":
        return Relation.REPLACE, "one node's features and label replaced; edges and who trains public"
    return Relation.REPLACE, Relation.REPLACE.of(f"the feature row of one {release.unit}")


@dataclass(frozen=True)
class Gaussian(Defense):
    """Clip feature rows and add calibrated Gaussian noise to ``on``.

    Attributes:
        epsilon, delta: the guarantee over the whole training.
        clip: L2 norm every feature row is scaled down to; not used where the protocol bounds what it sums itself.
        unit: what one record is; must be the unit in which the protocol states its sensitivity.
        on: name of the payload that gets the noise.
    """

    name: ClassVar[str] = "gaussian"
    shown: ClassVar[tuple[str, ...]] = ("epsilon", "clip")

    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    unit: Unit = "node"
    on: PayloadName = "NeighborSums"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_clip(self.clip)
        payload_type(self.on)

    def unsupported(self, context: Context) -> str | None:
        release = release_named(context, self.on)
        if release is None:
            return (
                f"{context.protocol} sends no {self.on} with these settings, so noise on it protects nothing"
                f"{context.sent_words()}"
            )
        if release.gain is None:
            return f"no sensitivity bound is known for {self.on} of {context.protocol}: {release.why}"
        if release.unit != self.unit:
            return f"{context.protocol} states the sensitivity of {self.on} per {release.unit}, not per {self.unit}"
        return None

    def weakened(self, factor: float) -> Gaussian:
        """Return it with more epsilon. The clip stays: it scales whole rows, and the noise grows with it."""
        return dataclasses.replace(self, epsilon=weaker_budget(self.epsilon, factor))

    def bind(self, context: Context) -> DefenseSession:
        release, reason = release_named(context, self.on), self.unsupported(context)
        if reason is not None or release is None or release.gain is None:
            raise FglauditError(f"gaussian noise cannot be calibrated: {reason}; use another defense or payload")
        return _Session(self, release, release.gain)
