"""From numbers to ciphertexts and back, by scheme: what differs between bfv and ckks once rows are laid out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fglaudit.he.keys import ClientKeys, Parameters, PublicContext


class Codec(ABC):
    """Ciphertexts of numbers. ``server`` holds no key; whatever needs one is done with ``keys``, by clients.

    Attributes:
        keys: the clients' shared key.
        server: the server's context, rebuilt from the bytes that are shipped to it.
    """

    keys: ClientKeys
    server: PublicContext

    @property
    def parameters(self) -> Parameters:
        return self.keys.parameters

    @abstractmethod
    def quantise(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return what is encrypted for ``values`` [R, D] of rows ``rows`` [R]."""

    @abstractmethod
    def restore(self, fields: Tensor, rows: Tensor) -> Tensor:
        """Return the float64 values [R, D] that decrypted ``fields`` [R, D] of rows ``rows`` [R] stand for."""

    @abstractmethod
    def encrypt(self, fields: Tensor, width: int) -> list[Any]:
        """Return the ciphertexts of ``fields`` [C, slots x fields per slot]."""

    @abstractmethod
    def decrypt(self, ciphertexts: Sequence[Any], width: int) -> Tensor:
        """Return the fields [C, slots x fields per slot] of ``ciphertexts``."""
