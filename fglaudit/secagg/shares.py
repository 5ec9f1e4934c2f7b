"""Threshold secret sharing (Shamir, How to share a secret, CACM 1979) of 32-byte secrets.

Share i of a secret is the value at i of a random polynomial of degree t - 1 whose value at 0 is the secret: t shares
determine it, fewer say nothing. Of the libraries at hand none shares 32 bytes at once at a usable speed, hence these
lines.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**256 + 297
"""The smallest prime above all 32-byte secrets."""
BYTES = 33
"""Of one share."""


def split(values: Sequence[int], threshold: int, holders: int) -> list[list[int]]:
    """Return shares [holders][values]; any ``threshold`` holders can recover ``values``, each below 2^256."""
    polynomials = [[value, *(secrets.randbelow(PRIME) for _ in range(threshold - 1))] for value in values]
    return [[_evaluate(polynomial, holder + 1) for polynomial in polynomials] for holder in range(holders)]


def join(shares: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the values of which ``shares`` are shares, by holder: Lagrange's interpolation at 0.

    With fewer shares than the threshold the result means nothing.
    """
    points = [holder + 1 for holder in shares]
    weights = []
    for i in points:
        above = below = 1
        for j in points:
            if j != i:
                above = above * j % PRIME
                below = below * (j - i) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return [
        sum(weight * share for weight, share in zip(weights, column, strict=True)) % PRIME
        for column in zip(*shares.values(), strict=True)
    ]


def _evaluate(polynomial: Sequence[int], at: int) -> int:
    total = 0
    for coefficient in reversed(polynomial):
        total = (total * at + coefficient) % PRIME
    return total
