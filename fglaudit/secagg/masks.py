"""Masks: pseudorandom words from seeds (ChaCha20), and the seeds that two clients agree on (X25519 and HKDF)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

SEED_BYTES = 32
_CHUNK = 2**18
"""Bytes of mask made at a time: they stay in the cache until they are added."""
_ZEROS = memoryview(bytes(_CHUNK))


def agreed(private: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """Return the seed that the holder of ``private`` and the one of ``public`` share for ``purpose``."""
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(SHA256(), SEED_BYTES, None, b"fglaudit secure aggregation: " + purpose).derive(secret)


def add_stream(words: Tensor, seed: bytes, field: int, sign: int) -> None:
    """Add (sign 1) or subtract (-1) the stream of ``seed`` to contiguous ``words`` [...] in place, modulo their size.

    Args:
        field: every masked tensor of a message has a stream of its own.
    """
    stream = Cipher(ChaCha20(seed, field.to_bytes(16, "big")), mode=None).encryptor()
    buffer = bytearray(_CHUNK)
    mask = torch.frombuffer(buffer, dtype=words.dtype)
    for part in torch.split(words.view(-1), len(mask)):
        stream.update_into(_ZEROS[: len(part) * words.element_size()], buffer)
        part.add_(mask[: len(part)], alpha=sign)


def add_mask(
    words: Tensor,
    field: int,
    client: int,
    seed: bytes,
    private: X25519PrivateKey,
    publics: Mapping[int, bytes],
    sign: int,
) -> None:
    """Add (or subtract) all masks of ``client`` to ``words`` [...] in place: its own stream, and one per other client.

    Args:
        seed: of its own stream.
        private: its key for masks.
        publics: public keys for masks of all clients of the aggregation.
    """
    add_stream(words, seed, field, sign)
    add_pair_masks(words, field, client, private, publics, sign)


def add_pair_masks(
    words: Tensor, field: int, client: int, private: X25519PrivateKey, publics: Mapping[int, bytes], sign: int
) -> None:
    """Add to ``words`` [...], in place, the streams that ``client`` shares with each client of ``publics``.

    Of a pair, the one with the lower number adds the stream and the other subtracts it.
    """
    for other, public in publics.items():
        if other != client:
            add_stream(words, agreed(private, public, b"mask"), field, sign if client < other else -sign)
