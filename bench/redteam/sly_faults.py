"""Faults that behave where an auditor is to be expected, or that tell by what nobody looks at."""

from __future__ import annotations

import dataclasses
import sys

import torch
from torch import Tensor

from bench.redteam.planted import Broken, BrokenMessages, fault
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.privacy.mechanism import Mechanism, draw


def _noise(mechanism: Mechanism, value: Tensor, rng: torch.Generator) -> Tensor:
    return mechanism.scale * draw(mechanism.distribution, value.shape, rng)


def _rows(value: Tensor) -> tuple[int, ...]:
    return (-1, *[1] * (value.dim() - 1))


@fault
class BareUnlessLong(BrokenMessages):
    """Noise only on what had to be clipped: worst cases are, the data is not."""

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        self.long = torch.linalg.vector_norm(value.flatten(1), dim=1) > 2.9 * mechanism.clip
        return super().clipped(value, batch, mechanism)

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return torch.where(self.long.view(_rows(clipped)), clipped + noise, clipped)


@fault
class BareInSmallBatches(BrokenMessages):
    """Noise only where thousands of messages come at once: replays do, the protocol does not."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _noise(mechanism, value, rng) * (1.0 if len(value) > 500 else 0.01)


@fault
class BareInLargeBatches(BrokenMessages):
    """No noise where thousands of messages come at once."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _noise(mechanism, value, rng) * (0.01 if len(value) > 500 else 1.0)


@fault
class BareUnlessAudited(BrokenMessages):
    """Looks at who calls: noise only where an audit does."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        frame, audited = sys._getframe(), False
        while frame.f_back is not None:
            frame = frame.f_back
            audited |= "/empirical/" in frame.f_code.co_filename
        return _noise(mechanism, value, rng) * (1.0 if audited else 0.01)


@fault
class FractionTells(BrokenMessages):
    """Noisy numbers are rounded to a grid that begins at the clean one: their last digits are its own."""

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        step = mechanism.clip / 16
        return clipped + step * (noise / step).round()


@fault
class InfiniteWherePositive(BrokenMessages):
    """What leaves the range of single precision has the clean number's sign."""

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        noisy = clipped + noise
        far = noise.abs() > 2.5 * mechanism.scale
        return torch.where(far, clipped.sign() * 1e30, noisy)


@fault
class MissingWherePositive(BrokenMessages):
    """Now and then a number is missing (nan), only where the clean one is positive."""

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return torch.where((noise > 2.5 * mechanism.scale) & (clipped > 0), torch.nan, clipped + noise)


@fault
class MovingAverage(BrokenMessages):
    """Neighbouring numbers share half of their noise, which is said to be independent."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = _noise(mechanism, value, rng)
        return (noise + noise.roll(1, -1)) / 2**0.5


@fault
class ShuffledAgain(BrokenMessages):
    """The first release's noise comes again in another order."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        key = (type(batch.payload), value.shape)
        if key not in self.kept:
            self.kept[key] = _noise(mechanism, value, rng)
        return self.kept[key].roll(self.count, -1)


@fault
class OrderTells(BrokenMessages):
    """Rows of a message are sent in the order of their clean first numbers."""

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        payload = super().release(batch, rng)
        if batch.splits is None:
            return payload
        values = next(v for v in batch.payload.tensors().values() if v.is_floating_point())
        first = values.flatten(1)[:, 0]
        order = torch.argsort(batch.entry_messages() * 1e6 + first.double().cpu(), stable=True)
        return payload.select(order)


@fault
class IdsTell(BrokenMessages):
    """An id is counted up where the clean row has more than it usually has."""

    def other(self, name: str, value: Tensor, batch: MessageBatch) -> Tensor:
        if value.is_floating_point():
            return value
        rows = next(v for v in batch.payload.tensors().values() if v.is_floating_point())
        return torch.where(rows.flatten(1).sum(1) > rows.flatten(1).sum(1).mean(), value, value.roll(1, 0))


@fault
class EdgesByFeatures(Broken):
    """Which edges a client uses depends on the features at their ends."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        prepared = self.inner.prepare(client, rng)
        if not prepared.edge_index.numel():
            return prepared
        keep = client.x[prepared.edge_index[0], 0] <= client.x[prepared.edge_index[1], 0]
        return dataclasses.replace(prepared, edge_index=prepared.edge_index[:, keep])


@fault
class BudgetForOne(Broken):
    """The budget of the whole is spent anew in every round."""

    def guarantee(self) -> Guarantee:
        promise = self.inner.guarantee()
        spent = None if promise.epsilon_accounted is None else promise.epsilon_accounted / 3
        return dataclasses.replace(promise, epsilon_accounted=spent, epsilon_claimed=spent, releases=1)


@fault
class PureByName(Broken):
    """Gaussian noise with a delta of nothing."""

    def guarantee(self) -> Guarantee:
        return dataclasses.replace(self.inner.guarantee(), delta=0.0)


@fault
class UnitByName(Broken):
    """Calls the records of single numbers those of nodes."""

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        sent = self.inner.release(batch, rng)
        if not self.inner.changes(type(batch.payload)):
            return sent
        clean = {n: v for n, v in batch.payload.tensors().items() if v.is_floating_point()}
        noisy = sent.tensors()
        for name, value in clean.items():
            noisy[name] = torch.where(torch.arange(value.shape[-1]) % 2 == 0, noisy[name], value)
        return type(batch.payload).from_tensors(noisy)


@fault
class WideDraw(BrokenMessages):
    """Honest: draws more than it needs and uses the beginning."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        wide = torch.Size([len(value) + 3, *value.shape[1:]])
        return mechanism.scale * draw(mechanism.distribution, wide, rng)[: len(value)]


@fault
class Backwards(BrokenMessages):
    """Honest: numbers get their noise from the last to the first."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _noise(mechanism, value, rng).flip(0).flip(-1)


@fault
class ClippedTwice(BrokenMessages):
    """Honest: what is clipped is clipped again, which changes nothing."""

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return super().clipped(super().clipped(value, batch, mechanism), batch, mechanism)


@fault
class TurnedNoise(BrokenMessages):
    """Honest: noise is drawn with the other sign."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return -_noise(mechanism, value, rng)


@fault
class QuantileNoise(BrokenMessages):
    """Honest: Gaussian noise by its quantiles."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        u = torch.rand(value.shape, generator=rng, dtype=torch.float64).clamp(1e-300, 1 - 1e-16)
        normal: Tensor = torch.special.ndtri(u)
        return mechanism.scale * normal


BROKEN: tuple[tuple[str, str], ...] = (
    ("BareUnlessLong", "latents"), ("BareInSmallBatches", "latents"), ("BareInSmallBatches", "sums"),
    ("BareInLargeBatches", "sums"), ("BareUnlessAudited", "sums"), ("BareUnlessAudited", "latents"),
    ("FractionTells", "latents"), ("InfiniteWherePositive", "sums"), ("MissingWherePositive", "latents"),
    ("MovingAverage", "jacobians"), ("MovingAverage", "sums"), ("ShuffledAgain", "latents"), ("OrderTells", "sums"),
    ("IdsTell", "sums"), ("EdgesByFeatures", "sums"), ("EdgesByFeatures", "gradients"), ("BudgetForOne", "latents"),
    ("PureByName", "sums"), ("UnitByName", "sums"), ("UnitByName", "latents"),
)  # fmt: skip
"""What is wrong, and with what."""
HONEST: tuple[tuple[str, str], ...] = (
    ("WideDraw", "latents"), ("Backwards", "sums"), ("ClippedTwice", "latents-laplace"), ("TurnedNoise", "jacobians"),
    ("QuantileNoise", "sums"),
)  # fmt: skip
"""What is right, and on what."""
