"""CKKS: real numbers, approximately, in N / 2 slots; sums, and products with public numbers.

What decrypts is the value plus the ciphertext's noise, and that noise reveals the secret key to an observer of both (Li
and Micciancio 2021). Values are therefore opened only with noise of their own on top (noise flooding), drawn from the
operating system: with ``t`` the largest ciphertext noise of a slot, ``m`` the numbers opened in the whole training and
Gaussian noise of standard deviation sigma, what is opened differs from (value + fresh noise) by at most ``t sqrt(m) /
(2 sigma)`` in statistical distance (the divergence of two Gaussians at distance t is ``t^2 / (2 sigma^2)``, adds up
over m numbers, and Pinsker's inequality). sigma makes that 2^-40.

So the scale must leave 40 bits and half the bits of m below the precision that is asked for: 2^90 here, which takes N =
8192. Sums of up to 1000 messages with 2^22 numbers opened are then exact to about 1e-6 at most, measured in the tests.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.he.codec import SharedKeyCodec
from fglaudit.he.keys import ClientKeys, Parameters, PublicContext, seal

SUMS = Parameters("ckks", 8192, (60, 60, 20), 131_300, 262_300)
"""Enough for sums."""
PRODUCTS = Parameters("ckks", 8192, (60, 60, 60, 20), 196_900, 393_400)
"""Enough for one product of each summand with a public number."""
SCALE_BITS = 90
WEIGHT_BITS = 40
STATISTICAL_BITS = 40
ERROR_STD = 3.2
"""Of the coefficients of a fresh ciphertext's noise; SEAL's."""
_TAIL = 8
"""Standard deviations that noise never exceeds: once in 10^15 slots."""


def secure_normal(shape: tuple[int, ...]) -> Tensor:
    """Return float64 standard Gaussian numbers from the operating system's randomness, which nobody can predict."""
    count = math.prod(shape)
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return torch.from_numpy(ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53)).view(shape)


def flooding_of(parameters: Parameters, weight: float, opened: int) -> float:
    """Return the standard deviation of the noise with which values must be opened; see the module docstring."""
    noise = _TAIL * weight * ERROR_STD * math.sqrt(parameters.degree) / 2.0**SCALE_BITS
    return 2.0 ** (STATISTICAL_BITS - 1) * noise * math.sqrt(opened)


class Ckks(SharedKeyCodec):
    """See the module docstring.

    Args:
        parameters: ``SUMS`` or ``PRODUCTS``.
        largest: bound on the absolute values of totals.
        weight: bound on the sum of the absolute weights of a total's summands; for plain sums their number.
        opened: numbers that are opened in the whole training, by all clients.

    Attributes:
        flooding: standard deviation of the noise that values are opened with.

    Raises:
        FglauditError: if totals are too large for the primes.
    """

    def __init__(self, parameters: Parameters, *, largest: float, weight: float, opened: int) -> None:
        self.keys = ClientKeys(parameters)
        self.server = PublicContext(self.keys.public_bytes())
        room = sum(parameters.prime_bits[:-1]) - SCALE_BITS - 2
        if parameters is PRODUCTS:
            room -= WEIGHT_BITS
        if largest > 2.0**room:
            raise FglauditError(
                f"features outside the range of ckks: totals up to 2^{room} fit its primes; got {largest:g}; scale them"
            )
        self.flooding = flooding_of(parameters, weight, opened)

    def quantise(self, values: Tensor, rows: Tensor) -> Tensor:
        exact = values.double()
        if not bool(torch.isfinite(exact).all()):
            raise FglauditError("features outside the range of ckks: a value is not finite; clean the data")
        return exact

    def restore(self, fields: Tensor, rows: Tensor) -> Tensor:
        return fields

    def encrypt(self, fields: Tensor, width: int = 0) -> list[Any]:
        """Return the ciphertexts of ``fields`` [C, N / 2]."""
        return [self.keys.encrypt(self._plaintext(values)) for values in fields]

    def decrypt(self, ciphertexts: Sequence[Any], width: int = 0) -> Tensor:
        """Return the numbers [C, N / 2] with flooding noise on every one of them."""
        slots, decode = self.parameters.slots, self.keys.public.encoder.decode_double
        read = [decode(self.keys.decrypt(ciphertext)) for ciphertext in ciphertexts]
        exact = torch.tensor(read, dtype=torch.double).view(-1, slots)
        return exact + self.flooding * secure_normal(tuple(exact.shape))

    def weighted_sum(self, ciphertexts: Sequence[Any], weights: Sequence[float]) -> Any:
        """Return the ciphertext of ``sum_k weights[k] ciphertexts[k]``: at least one summand, no weight of 0."""
        api, evaluator, total = seal(), self.server.evaluator, None
        for ciphertext, weight in zip(ciphertexts, weights, strict=True):
            factor, product = api.Plaintext(), api.Ciphertext()
            self.server.encoder.encode(float(weight), ciphertext.parms_id(), 2.0**WEIGHT_BITS, factor)
            evaluator.multiply_plain(ciphertext, factor, product)
            if total is None:
                total = product
            else:
                evaluator.add_inplace(total, product)
        return total

    def _plaintext(self, values: Tensor) -> Any:
        plaintext = seal().Plaintext()
        self.keys.public.encoder.encode(values.tolist(), 2.0**SCALE_BITS, plaintext)
        return plaintext
