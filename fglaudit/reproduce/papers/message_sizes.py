"""FedGCN's Tables 5 and 6: parameters of the encryption, and bytes of an array in the clear and encrypted.

The paper's library and parameters are others (PALISADE, CKKS at polynomial degree 4096). Ours are those of the defense
``homomorphic-encryption``: ckks for real numbers, bfv with counts of four bits, 14 to a slot, for what the paper calls
Boolean packing. Counted are fresh ciphertexts as a client sends them.
"""

from __future__ import annotations

import math
import re

from fglaudit.he.bfv import PARAMETERS
from fglaudit.he.ckks import SCALE_BITS, SUMS
from fglaudit.he.fixed_point import SLOT_BITS
from fglaudit.reproduce.published import Published
from fglaudit.reproduce.trainings import Measured

METRICS = ("message-size", "he-ring-dimension", "he-multiplicative-depth", "he-scale-factor-bits")
_POWERS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9}
_COUNT_BITS = 4


def figure(row: Published) -> Measured | str:
    """Return our figure for ``row``."""
    match row.metric:
        case "he-ring-dimension":
            return Measured(SUMS.degree)
        case "he-multiplicative-depth":
            return Measured(0)  # sums alone
        case "he-scale-factor-bits":
            return Measured(SCALE_BITS)
    size = re.fullmatch(r"array size (\d+)([kMB]?)", row.setting)
    if size is None:
        return f"no array size in {row.setting!r}"
    numbers = int(size[1]) * _POWERS[size[2]]
    match row.method:
        case "plaintext (bool)":
            return Measured(numbers)
        case "plaintext (long and double)":
            return Measured(8 * numbers)
        case "CKKS":
            return Measured(math.ceil(numbers / SUMS.slots) * SUMS.fresh_bytes)
    packed = PARAMETERS[4096]
    slots = math.ceil(numbers / (SLOT_BITS // _COUNT_BITS))
    return Measured(math.ceil(slots / packed.slots) * packed.fresh_bytes)
