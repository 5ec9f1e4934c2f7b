"""One client in one aggregation (Bonawitz et al., figure 4): its keys, the shares it holds for others, its masks.

What leaves a member are the results of ``publics``, ``share``, ``mask`` and ``reveal``. Keys and seeds are of the
operating system's randomness and live for one aggregation: a client that dropped out has its key put together by the
server, which would open what it sent under the same key before. No result depends on them, because masks cancel
exactly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.secagg.masks import SEED_BYTES, add_mask, agreed
from fglaudit.secagg.shares import BYTES, split

PUBLIC_BYTES = 2 * 32
SEALED_SHARE_BYTES = 2 * BYTES + 16
"""Shares of the key and of the seed, and the authentication tag."""


@dataclass(frozen=True)
class PublicKeys:
    """X25519 keys of a member: for masks, and for the shares that others send it through the server."""

    masks: bytes
    shares: bytes


_DRAWN: WeakKeyDictionary[Member, tuple[object, ...]] = WeakKeyDictionary()
"""Keys and seed of members, as they were drawn."""


class Member:
    """A client; ``number`` is its place among those of the aggregation."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._mask_key = X25519PrivateKey.generate()
        self._share_key = X25519PrivateKey.generate()
        self._seed = os.urandom(SEED_BYTES)
        self._channels: dict[int, ChaCha20Poly1305] = {}
        self._publics: Mapping[int, PublicKeys] = {}
        self._held: dict[int, tuple[int, int]] = {}
        self._revealed = False
        _DRAWN[self] = self._mask_key, self._share_key, self._seed

    def publics(self) -> PublicKeys:
        """Return what everybody may know (round 0)."""
        return PublicKeys(*(key.public_key().public_bytes_raw() for key in (self._mask_key, self._share_key)))

    def share(self, publics: Mapping[int, PublicKeys], threshold: int) -> dict[int, bytes]:
        """Return the shares of the own mask key and seed for every other member, encrypted for it (round 1)."""
        self._publics = publics
        self._channels = {
            other: ChaCha20Poly1305(agreed(self._share_key, keys.shares, b"shares"))
            for other, keys in publics.items()
            if other != self.number
        }
        secrets = [int.from_bytes(self._mask_key.private_bytes_raw(), "big"), int.from_bytes(self._seed, "big")]
        parts = split(secrets, threshold, len(publics))
        self._held[self.number] = (parts[self.number][0], parts[self.number][1])
        return {
            other: channel.encrypt(
                _nonce(self.number),
                b"".join(part.to_bytes(BYTES, "big") for part in parts[other]),
                _route(self.number, other),
            )
            for other, channel in self._channels.items()
        }

    def receive(self, sender: int, sealed: bytes) -> None:
        """Keep the shares that ``sender`` sent.

        Raises:
            cryptography.exceptions.InvalidTag: if they were made or changed by anyone else.
        """
        plain = self._channels[sender].decrypt(_nonce(sender), sealed, _route(sender, self.number))
        self._held[sender] = (int.from_bytes(plain[:BYTES], "big"), int.from_bytes(plain[BYTES:], "big"))

    def mask(self, words: Tensor, field: int) -> None:
        """Add the own masks to ``words`` [...] in place (round 2)."""
        publics = {number: keys.masks for number, keys in self._publics.items()}
        add_mask(words, field, self.number, self._seed, self._mask_key, publics, 1)

    def reveal(self, survivors: frozenset[int]) -> dict[int, int]:
        """Return, by member, the share of its seed if it is among ``survivors``, else of its mask key (round 4).

        Raises:
            FglauditError: if asked twice: both kinds together would open a member's message.
        """
        if self._revealed:
            raise FglauditError("shares are revealed once per aggregation; they were asked for again; start a new one")
        self._revealed = True
        return {owner: seed if owner in survivors else key for owner, (key, seed) in self._held.items()}

    def key_material(self) -> tuple[bytes, bytes, bytes]:
        """Return key for masks, key for shares, and seed: for audits alone, which search for them in what others
        see."""
        keys = (key.private_bytes_raw() for key in (self._mask_key, self._share_key))
        return (*keys, self._seed)  # type: ignore[return-value]

    def own_keys(self) -> bool:
        """Whether keys and seed are still those that it drew: for audits alone, others are of nobody knows how many
        bits."""
        keys = self._mask_key, self._share_key, self._seed
        return all(key is drawn for key, drawn in zip(keys, _DRAWN.get(self, (None,) * 3), strict=True))

    def held(self) -> Mapping[int, tuple[int, int]]:
        """Return the shares (mask key, seed) by owner that this member could betray."""
        return self._held


def _nonce(sender: int) -> bytes:
    """Unique per key: two members share one, and each encrypts once with it."""
    return sender.to_bytes(12, "big")


def _route(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(8, "big") + receiver.to_bytes(8, "big")
