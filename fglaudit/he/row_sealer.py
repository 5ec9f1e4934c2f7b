"""How one payload travels as :class:`fglaudit.he.weighted_rows.WeightedRows`, and its cost, known before a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from fglaudit.context import Aggregate
from fglaudit.he.ckks import PRODUCTS, SUMS, Ckks
from fglaudit.he.keys import Parameters
from fglaudit.he.weighted_rows import RowScheme
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import sealed_tensor

ENCRYPTION_SECONDS = 2e-3
PRODUCT_SECONDS = 2e-4
DECRYPTION_SECONDS = 2e-3
"""Process time per ciphertext as ``bench encryption-protocols`` measures it, rounded up: for estimates alone."""


def parameters_for(aggregate: Aggregate) -> Parameters:
    """Return what the server's work takes: room for products or for sums alone."""
    return PRODUCTS if aggregate.weighted else SUMS


def weight_bound(aggregate: Aggregate) -> float:
    """Return the bound on the absolute weights of a row that its ciphertexts are made for."""
    if aggregate.weighted and aggregate.weight is not None:
        return aggregate.weight
    return float(aggregate.summands.max().item())


@dataclass(frozen=True)
class Cost:
    """Of one release of a payload, and of the training.

    Attributes:
        ciphertexts_up, ciphertexts_down: per release.
        products: of a ciphertext with a number, or additions of ciphertexts, per release.
        releases: in one training.
    """

    parameters: Parameters
    ciphertexts_up: int
    ciphertexts_down: int
    products: int
    releases: int

    @staticmethod
    def of(aggregate: Aggregate) -> Cost:
        parameters = parameters_for(aggregate)
        blocks = -(-aggregate.columns // parameters.slots)
        parts = torch.ones_like(aggregate.rows) if aggregate.parts is None else aggregate.parts
        uploads = int(aggregate.summands.sum().item()) if aggregate.uploads is None else aggregate.uploads
        made, first = torch.unique(aggregate.rows, return_inverse=True)
        per_row = torch.zeros_like(made).index_copy(0, first, parts)  # a row is made once for all its receivers
        products = int((per_row * aggregate.summands[made]).sum().item())
        down = int(parts.sum().item())
        return Cost(parameters, uploads * blocks, down * blocks, products * blocks, aggregate.releases)

    @property
    def gigabytes_up(self) -> float:
        """Of a training, all clients together."""
        return self.releases * self.ciphertexts_up * self.parameters.fresh_bytes / 1e9

    @property
    def gigabytes_down(self) -> float:
        return self.releases * self.ciphertexts_down * self.parameters.full_bytes / 1e9

    @property
    def seconds(self) -> float:
        """Rough process time of a training."""
        moved = self.ciphertexts_up * ENCRYPTION_SECONDS + self.ciphertexts_down * DECRYPTION_SECONDS
        return self.releases * (moved + self.products * PRODUCT_SECONDS)

    def beyond(self, most_gigabytes: float, name: str) -> str | None:
        """Return why the training is too large, with the figures, or None."""
        total = self.gigabytes_up + self.gigabytes_down
        if total <= most_gigabytes:
            return None
        return (
            f"{name} takes {total:.3g} GB of ciphertexts ({self.gigabytes_up:.3g} up, {self.gigabytes_down:.3g} down,"
            f" in {self.releases * (self.ciphertexts_up + self.ciphertexts_down)} ciphertexts) and about"
            f" {self.seconds / 3600:.2g} hours of one core; the limit is most_gigabytes: {most_gigabytes:g}; take fewer"
            " rounds or a smaller graph, or raise it"
        )


class RowSealer:
    """Seals one payload.

    Args:
        largest: bound on the absolute values that clients send.
    """

    def __init__(self, aggregate: Aggregate, largest: float) -> None:
        parts = torch.ones_like(aggregate.rows) if aggregate.parts is None else aggregate.parts
        opened = int(parts.sum().item()) * aggregate.columns * aggregate.releases
        weight = weight_bound(aggregate)
        codec = Ckks(parameters_for(aggregate), largest=largest * weight, weight=weight, opened=opened)
        self.scheme = RowScheme(codec, products=aggregate.weighted, largest=largest, weight=weight)
        self.blocks = Cost.of(aggregate).ciphertexts_up

    @property
    def errors(self) -> tuple[float, float]:
        """Standard deviation of the flooding noise; encoding adds no error of its own."""
        return self.scheme.codec.flooding, 0.0

    def seal(self, batch: MessageBatch) -> MessageBatch:
        """Encrypt every floating-point field, a row of the leading axis at a time."""
        tensors = dict(batch.payload.tensors())
        for name, value in tensors.items():
            if value.is_floating_point():
                tensors[name] = sealed_tensor(self.scheme.encrypted(value.flatten(1)), tuple(value.shape), value.dtype)
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors))
