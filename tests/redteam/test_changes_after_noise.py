"""What an honest defense does to noisy values is post-processing: nothing of it may refute what the noise gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from bench.redteam.cases import citations
from fglaudit.context import Context
from fglaudit.facts import GRADIENTS, ROWS, Additive, Clipped, Fact, Field, KeptColumns, Scaled, before_noise
from fglaudit.graph import ClientGraph
from fglaudit.guarantees import Word
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.privacy.accounting import Relation
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.rng import derive
from fglaudit.wire.observing.merged_values import merges

SUMS = Field("NeighborSums", "sums", "up")
STD = 2.5
GRAPH = citations()
UNSTATED: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "the largest half alone": lambda noisy, rng: noisy * (noisy.abs() >= noisy.abs().median(1, keepdim=True).values),
    "half of all dropped": lambda noisy, rng: noisy * (torch.rand(noisy.shape, generator=rng) < 0.5),
    "nothing below zero": lambda noisy, rng: noisy.relu(),
    "rounded": lambda noisy, rng: (4 * noisy).round() / 4,
    "brought to a length": lambda noisy, rng: noisy / noisy.norm(dim=1, keepdim=True).clamp(min=1.0),
    "neighbours' means": lambda noisy, rng: (noisy + noisy.roll(1, 1)) / 2,
    "a factor for every call": lambda noisy, rng: noisy * (0.5 + 3 * torch.rand(1, generator=rng)),
    "a coin for every call": lambda noisy, rng: noisy * (torch.rand(1, generator=rng) < 0.5),
}
"""What is done to noisy values and not stated."""


class Session(DefenseSession):
    """Gaussian noise on sums of clipped rows, then ``after``: as is stated, or by a name and not stated."""

    def __init__(self, after: Fact | str) -> None:
        self.after = after

    def changes(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return dataclasses.replace(client, x=client.x / client.x.norm(dim=-1, keepdim=True).clamp(min=1.0))

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        sent = batch.payload
        if not isinstance(sent, NeighborSums) or bool((batch.senders == SERVER).all()):
            return sent
        noisy = sent.sums + STD * torch.randn(sent.sums.shape, generator=rng)
        if isinstance(self.after, str):
            return dataclasses.replace(sent, sums=UNSTATED[self.after](noisy, rng))
        if isinstance(self.after, Scaled):
            return dataclasses.replace(sent, sums=self.after.offset + self.after.factor * noisy)
        assert isinstance(self.after, Clipped)
        if self.after.norm == "elementwise":
            return dataclasses.replace(sent, sums=noisy.clamp(-self.after.bound, self.after.bound))
        order = 2 if self.after.norm == "L2" else 1
        length = torch.linalg.vector_norm(noisy, order, dim=1, keepdim=True)
        return dataclasses.replace(sent, sums=noisy * (self.after.bound / length.clamp(min=self.after.bound)))

    def facts(self) -> tuple[Fact, ...]:
        stated = (Clipped(ROWS, "L2", 1.0, "row"), Additive(SUMS, "gaussian", STD))
        return stated if isinstance(self.after, str) else (*stated, self.after)

    def guarantee(self) -> Guarantee:
        about = Relation.ZERO_OUT
        return Guarantee("noise", delta=1e-5, unit="node", relation=about, adjacency=about.of("one node's features"))


@dataclass(frozen=True)
class NoisyThen(Defense):
    name: ClassVar[str] = "noisy-then"

    after: Fact | str

    def bind(self, context: Context) -> DefenseSession:
        return Session(self.after)


@pytest.mark.parametrize(
    "after",
    [
        Clipped(SUMS, "elementwise", 3.0),
        Clipped(SUMS, "L2", 2.0),
        Clipped(SUMS, "L1", 2.0),
        *UNSTATED,
    ],
    ids=str,
)
def test_what_is_done_to_noisy_values_refutes_nothing(after: Fact | str) -> None:
    recording, _ = record_training(GRAPH, FedGCN(hops=1, rounds=3), NoisyThen(after), empirical=True)
    verdict = recording.verdict
    assert verdict.word is (Word.CLAIMED if isinstance(after, str) else verdict.word)
    assert verdict.word is not Word.REFUTED, verdict.reason


@pytest.mark.parametrize("after", [Scaled(SUMS, factor=0.1), Scaled(SUMS, offset=3.0, factor=-0.5)], ids=str)
def test_what_is_scaled_after_the_noise_is_verified(after: Fact) -> None:
    recording, _ = record_training(GRAPH, FedGCN(hops=1, rounds=3), NoisyThen(after), empirical=True)
    assert recording.verdict.word is Word.VERIFIED, recording.verdict.reason


def test_different_values_that_leave_as_one_were_merged() -> None:
    values, noise = torch.randn(2, 40, 12, generator=derive(0, "merged")).unbind()
    assert merges(values, (values + noise).relu())
    assert merges(values, (values + noise).round())
    assert not merges(values, values + noise)
    assert not merges(values.sign(), values.sign() + noise[:1])  # equal values leave alike under one draw
    assert not merges(values, values + noise.sign())


@pytest.mark.parametrize("count", [100, 192, 5000])
@pytest.mark.parametrize("step", [0.2, 0.03, 0.003])
def test_values_and_noise_on_one_grid_were_merged_however_fine_it_is(step: float, count: int) -> None:
    values, noise = torch.randn(2, count, generator=derive(0, "grid"), dtype=torch.float64).unbind()
    steps = step * (10 * noise / step).round()
    assert merges(values.float(), (step * (values / step).round() + steps).float())
    assert not merges(values.float(), (values + steps).float())
    assert not merges(values.sign(), (values.sign() + 10 * noise).float())


def test_facts_before_noise_are_those_of_values_without_any() -> None:
    noise = Additive(Field("Latents", "latent"), "gaussian", 1.0)
    own, other = Clipped(Field("Latents"), "L2", 1.0), KeptColumns(Field("Jacobians"), (0,))
    rows = Clipped(ROWS, "L2", 1.0)
    assert before_noise([own, noise, own, other, rows]) == (own, noise, other, rows)
    assert before_noise([Additive(GRADIENTS, "gaussian", 1.0), Clipped(GRADIENTS, "L2", 1.0), rows])[1:] == (rows,)
