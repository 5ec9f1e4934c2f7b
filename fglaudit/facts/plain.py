"""Plain numbers and words in place of what behaves like them.

A number of an author's own class may answer one operation otherwise than another, or say another value than it has: an
accountant that multiplies it and an audit that divides by it would not reckon with the same noise. So whatever is
stated is kept as Python's own numbers and words, by value.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch

_PLAIN = (type(None), bool, int, float, str)
_SCALARS = (np.generic, torch.Tensor)


def plain(value: Any) -> Any:
    """Return ``value`` as Python's own number, word or tuple of these; anything else as it is."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, _SCALARS) and value.ndim == 0:
        return value.item()
    if isinstance(value, Decimal | Fraction):
        return float(value)
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    return value


def make_plain(stated: Any) -> None:
    """Turn the fields of ``stated``, a frozen dataclass that was just made, into plain ones."""
    for name, value in vars(stated).items():
        if type(value) not in _PLAIN:
            object.__setattr__(stated, name, plain(value))
