"""BFV without one secret key: every client holds a share, and a sum opens with all of them alone (OpenFHE).

Asharov et al., Multiparty computation with low communication ... via threshold FHE, EUROCRYPT 2012: the public key is
the sum of what every client makes of its share, so anybody encrypts and nobody decrypts alone. To open a sum for its
receiver every other client sends a partial decryption, flooded with noise; the receiver adds its own, which it sends to
nobody, so that not even the server, through which the others travel, can open what it passes on.

Ciphertexts are larger than under a shared key (:mod:`fglaudit.he.bfv`): both polynomials travel, as there is no secret
key to encrypt with, and flooding needs a modulus of 240 bits, hence polynomials of degree 16384. Slots hold 48 bits:
OpenFHE 1.6.1 decodes plaintext moduli beyond 51 bits wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.he.codec import Codec
from fglaudit.he.fixed_point import FixedPoint, pack, unpack
from fglaudit.he.keys import Parameters
from fglaudit.he.openfhe_process import OpenFhe

SLOT_BITS = 48
WIDTHS = (4, 8, 14, 18, 28)
"""Of fields, in bits, of which a slot holds 12, 6, 3, 2 and 1."""
_PRIME_BITS = 60


class ThresholdBfv(Codec):
    """See the module docstring. Ciphertexts are bytes, as they travel.

    Args:
        parties: clients that hold a share each.
        fixed_point: how rows become whole numbers.
        summands: bound on the ciphertexts in a sum.
    """

    def __init__(self, parties: int, fixed_point: FixedPoint, summands: int) -> None:
        self.parties, self.fixed_point = parties, fixed_point
        self._openfhe = OpenFhe(parties, SLOT_BITS, max(parties, summands))

    @cached_property
    def parameters(self) -> Parameters:
        """Raises FglauditError if OpenFHE chose parameters below 128 bits of security."""
        said = self._openfhe.described
        primes = (_PRIME_BITS,) * -(-said["modulus_bits"] // _PRIME_BITS)
        size = said["ciphertext"]
        return Parameters("bfv", said["degree"], primes, size, size, said["plain_modulus"].bit_length())

    @property
    def share_bytes(self) -> int:
        """Of a partial decryption of one ciphertext."""
        return int(self._openfhe.described["share"])

    @property
    def key_bytes(self) -> int:
        """Of the public key, which every client gets from the one before it, completes and passes on."""
        return len(self._openfhe.public[1])

    def quantise(self, values: Tensor, rows: Tensor) -> Tensor:
        return self.fixed_point.quantise(values, rows)

    def restore(self, fields: Tensor, rows: Tensor) -> Tensor:
        return self.fixed_point.restore(fields, rows)

    def encrypt(self, fields: Tensor, width: int) -> list[bytes]:
        slots = pack(fields, width, SLOT_BITS).contiguous()
        return self._openfhe.ask("encrypt", [slots.numpy().tobytes()])[1]

    def total(self, ciphertexts: Sequence[bytes]) -> bytes:
        return self._openfhe.ask("add", list(ciphertexts))[1][0]

    def decrypt(self, ciphertexts: Sequence[bytes], width: int) -> Tensor:
        slots = self.opened_by(range(self.parties), ciphertexts)
        return unpack(slots, width, SLOT_BITS, signed=self.fixed_point.signed)

    def opened_by(self, holders: Sequence[int], ciphertexts: Sequence[bytes]) -> Tensor:
        """Return the slots [C, N] that the shares of ``holders`` make of ``ciphertexts``: numbers at random unless
        all clients are among them."""
        if not ciphertexts:
            return torch.zeros(0, self.parameters.slots, dtype=torch.long)
        (blob,) = self._openfhe.ask("open", list(ciphertexts), holders=list(holders))[1]
        slots = torch.frombuffer(bytearray(blob), dtype=torch.long).view(len(ciphertexts), -1)
        modulus = self._openfhe.described["plain_modulus"]
        slots = slots % modulus
        return torch.where(slots > modulus // 2, slots - modulus, slots) if self.fixed_point.signed else slots

    def check_budget(self, summands: int) -> None:
        """Raise unless a sum of ``summands`` ciphertexts opens to what was added, in the worst case."""
        most = torch.full((1, self.parameters.slots), (1 << SLOT_BITS) // max(1, summands) - 1)
        (one,) = self._openfhe.ask("encrypt", [most.numpy().tobytes()])[1]
        total = self.total([one] * summands) if summands > 1 else one
        if not torch.equal(self.opened_by(range(self.parties), [total]), summands * most):
            raise FglauditError(
                f"sums of {summands} ciphertexts must open to what was added, with {self.parties} shares; OpenFHE's do"
                " not; use homomorphic-encryption"
            )

    def public_bytes(self) -> bytes:
        return b"".join(self._openfhe.public)

    def key_material(self) -> list[tuple[bytes, tuple[int, ...]]]:
        shares = self._openfhe.ask("secrets", [])[1]
        words = [np.frombuffer(share[: 8 * 4096], dtype=np.uint64).tolist() for share in shares]
        return [(share, tuple(first)) for share, first in zip(shares, words, strict=True)]

    def spent(self) -> tuple[float, float]:
        """Return processor seconds and peak gigabytes of OpenFHE's process so far."""
        said = self._openfhe.ask("spent", [])[0]
        return said["seconds"], said["peak_gb"]
