"""From numbers to ciphertexts and back, by scheme: what differs between bfv and ckks once rows are laid out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fglaudit.he.keys import ClientKeys, Parameters, PublicContext, seal


class Codec(ABC):
    """Ciphertexts of numbers, of which the server only makes totals; whatever needs a key is done by clients."""

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """Of the scheme."""

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

    @abstractmethod
    def total(self, ciphertexts: Sequence[Any]) -> Any:
        """Return the sum of at least two ``ciphertexts``, which stay as they are. Takes no key."""

    @abstractmethod
    def public_bytes(self) -> bytes:
        """Return all that the server is given."""

    @abstractmethod
    def key_material(self) -> list[tuple[bytes, tuple[int, ...]]]:
        """Return every secret key, or share of one, behind what is the same for all, and the first of its 64-bit words:
        for audits alone, which search for it in what others see."""


class SharedKeyCodec(Codec):
    """A codec of SEAL's, under one key for all clients.

    Attributes:
        keys: the clients' shared key.
        server: the server's context, rebuilt from the bytes that are shipped to it; it holds no key.
    """

    keys: ClientKeys
    server: PublicContext

    @property
    def parameters(self) -> Parameters:
        return self.keys.parameters

    def total(self, ciphertexts: Sequence[Any]) -> Any:
        summed = seal().Ciphertext()
        self.server.evaluator.add_many(list(ciphertexts), summed)
        return summed

    def public_bytes(self) -> bytes:
        return self.keys.public_bytes()

    def key_material(self) -> list[tuple[bytes, tuple[int, ...]]]:
        blob, words = self.keys.key_material()
        return [(blob[_HEADER:], words)]


_HEADER = 64
"""Bytes at the start of a saved key that are the same for all keys."""
