"""BFV: exact whole numbers. Several fields share a slot (``fglaudit.he.fixed_point``), modulo a 57-bit prime.

A polynomial of degree 4096 has room for ciphertexts of 72 bits (a 56-bit and a 16-bit prime: SEAL's compression handles
full words better than two of 36 bits) beside a special prime that only key switching would use, and none is done. After
encryption about 10 bits of noise budget are left: enough for hundreds of additions, not for a product; products take
degree 8192.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, unknown
from fglaudit.he.codec import SharedKeyCodec
from fglaudit.he.fixed_point import SLOT_BITS, FixedPoint, pack, unpack
from fglaudit.he.keys import MOST_BITS, ClientKeys, Parameters, PublicContext, seal

PLAIN_BITS = SLOT_BITS + 1
PARAMETERS = {
    4096: Parameters("bfv", 4096, (56, 16, 20), 40_700, 81_600, PLAIN_BITS),
    8192: Parameters("bfv", 8192, (56, 46, 20), 118_400, 236_400, PLAIN_BITS),
    16384: Parameters("bfv", 16384, (56, 46, 20), 235_100, 469_900, PLAIN_BITS),
}
"""By polynomial degree."""


def bfv_parameters(degree: int) -> Parameters:
    """Return the parameters for slots of 57 bits.

    Raises:
        FglauditError: for a degree that is too small for such slots, or none at all.
    """
    if degree not in MOST_BITS:
        raise unknown("polynomial degree", str(degree), map(str, PARAMETERS))
    if degree not in PARAMETERS:
        raise FglauditError(
            f"slots of {PLAIN_BITS} bits need a polynomial degree of at least 4096: at 128 bits of security degree"
            f" {degree} allows {MOST_BITS[degree]} bits of primes in all; use degree: 4096"
        )
    return PARAMETERS[degree]


class Bfv(SharedKeyCodec):
    """See the module docstring.

    Args:
        degree: of the polynomials.
        fixed_point: how rows become whole numbers.
    """

    def __init__(self, degree: int, fixed_point: FixedPoint) -> None:
        self.fixed_point = fixed_point
        self.keys = ClientKeys(bfv_parameters(degree))
        self.server = PublicContext(self.keys.public_bytes())

    def check_budget(self, summands: int) -> None:
        """Raise unless the noise of a sum of ``summands`` ciphertexts leaves room.

        Measured in the worst case: a ciphertext is added to itself until it stands for as many."""
        total = self.keys.encrypt(self._plaintext(torch.full((self.parameters.slots,), 1)))
        doublings = max(summands - 1, 0).bit_length()
        for _ in range(doublings):
            self.server.evaluator.add_inplace(total, total)
        if self.keys.noise_budget(total) < 1:
            raise FglauditError(
                f"{summands} additions bring more noise than the budget of polynomial degree {self.parameters.degree}; "
                "use a larger degree, e.g. degree: 8192"
            )

    def quantise(self, values: Tensor, rows: Tensor) -> Tensor:
        return self.fixed_point.quantise(values, rows)

    def restore(self, fields: Tensor, rows: Tensor) -> Tensor:
        return self.fixed_point.restore(fields, rows)

    def encrypt(self, fields: Tensor, width: int) -> list[Any]:
        return [self.keys.encrypt(self._plaintext(slots)) for slots in pack(fields, width)]

    def decrypt(self, ciphertexts: Sequence[Any], width: int) -> Tensor:
        decode, modulus = self.keys.public.encoder.decode_uint64, self.server.plain_modulus
        read = [decode(self.keys.decrypt(ciphertext)) for ciphertext in ciphertexts]
        slots = torch.tensor(read, dtype=torch.long).view(-1, self.parameters.slots)
        if self.fixed_point.signed:
            slots = torch.where(slots > modulus // 2, slots - modulus, slots)
        return unpack(slots, width, signed=self.fixed_point.signed)

    def _plaintext(self, slots: Tensor) -> Any:
        plaintext = seal().Plaintext()
        self.keys.public.encoder.encode((slots % self.server.plain_modulus).tolist(), plaintext)
        return plaintext
