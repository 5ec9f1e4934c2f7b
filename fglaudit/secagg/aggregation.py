"""One secure aggregation among n clients, some of whom drop out.

Bonawitz et al., CCS 2017, figure 4, with an honest-but-curious server.

Round 0: everybody publishes two keys. 1: everybody sends everybody else, through the server and encrypted, shares of
its mask key and of its seed. 2: clients that are still there send
``words + own stream + sum over others of +- the pair's stream``. 4: they reveal the shares of the seeds of clients that
are there and of the mask keys of clients that are not; the server puts t of each together and takes off what is left of
the masks once everything is added up. Signatures and round 3, which bind a server that lies, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.secagg.masks import SEED_BYTES, add_mask, add_pair_masks, add_stream
from fglaudit.secagg.member import PUBLIC_BYTES, SEALED_SHARE_BYTES, Member, PublicKeys
from fglaudit.secagg.shares import BYTES, join

_NUMBER_BYTES = 8


@dataclass(frozen=True)
class ServerState:
    """What the server holds besides the masked words.

    Attributes:
        publics: keys by member.
        routed: encrypted shares by (sender, receiver).
        seeds: own streams of the survivors; mask_keys: of the others. Filled when shares are revealed.
    """

    publics: dict[int, PublicKeys]
    routed: dict[tuple[int, int], bytes]
    seeds: dict[int, bytes]
    mask_keys: dict[int, X25519PrivateKey]


class Aggregation:
    """Keys are exchanged when it is made.

    Args:
        size: n, at least 2.
        survivors: numbers below n of those who send their words.
        threshold: t, how many must be left and reveal their shares.

    Raises:
        FglauditError: if fewer than t, or fewer than two, are left.
    """

    def __init__(self, size: int, survivors: Sequence[int], threshold: int) -> None:
        if size < 2:
            raise FglauditError(
                f"a sum hides a client among others, so at least two must take part; got {size}; raise the number of"
                " clients"
            )
        if len(survivors) < max(threshold, 2):
            raise FglauditError(
                f"secure aggregation needs {max(threshold, 2)} of {size} clients to the end; {size - len(survivors)}"
                f" dropped out and {len(survivors)} are left; lower `dropouts` or `threshold`"
            )
        self.size, self.threshold = size, threshold
        self.survivors = tuple(sorted(survivors))
        self.members = [Member(number) for number in range(size)]
        publics = {member.number: member.publics() for member in self.members}
        routed = {
            (member.number, receiver): sealed
            for member in self.members
            for receiver, sealed in member.share(publics, threshold).items()
        }
        for (sender, receiver), sealed in routed.items():
            self.members[receiver].receive(sender, sealed)
        self.server = ServerState(publics, routed, {}, {})

    def setup_bytes(self) -> tuple[int, int]:
        """Return the bytes (up, down) of keys and encrypted shares of every member."""
        others = (self.size - 1) * (PUBLIC_BYTES + SEALED_SHARE_BYTES)
        return PUBLIC_BYTES + (self.size - 1) * SEALED_SHARE_BYTES, others

    def reveal_bytes(self) -> tuple[int, int]:
        """Return the bytes (up, down) of the list of survivors and the revealed shares of every survivor."""
        return self.size * BYTES, len(self.survivors) * _NUMBER_BYTES

    def mask(self, number: int, words: Tensor, field: int) -> None:
        """Have a member add its masks to ``words`` [...] in place."""
        self.members[number].mask(words, field)

    def reveal(self) -> None:
        """Have the survivors reveal their shares; the server puts t of them together."""
        survivors = frozenset(self.survivors)
        revealed = {number: self.members[number].reveal(survivors) for number in self.survivors}
        chosen = self.survivors[: self.threshold]
        owners = range(self.size)
        secrets = join({holder: [revealed[holder][owner] for owner in owners] for holder in chosen})
        for owner, secret in zip(owners, secrets, strict=True):
            raw = secret.to_bytes(SEED_BYTES, "big")
            if owner in survivors:
                self.server.seeds[owner] = raw
            else:
                self.server.mask_keys[owner] = X25519PrivateKey.from_private_bytes(raw)

    def remainder(self, shape: tuple[int, ...], dtype: torch.dtype, field: int) -> Tensor:
        """Return what masks leave in the sum of the survivors' words; the server computes it after :meth:`reveal`."""
        left = torch.zeros(shape, dtype=dtype)
        for seed in self.server.seeds.values():
            add_stream(left, seed, field, 1)
        publics = {number: self.server.publics[number].masks for number in self.survivors}
        for (
            number,
            key,
        ) in self.server.mask_keys.items():  # what the survivors added for it is minus what it would have added
            add_pair_masks(left, field, number, key, publics, -1)
        return left

    def expose(self, number: int, words: Tensor, field: int, pooled: Sequence[int]) -> None:
        """Take the masks off the ``words`` [...] of one member in place, as the server and t ``pooled`` members can."""
        held = {holder: self.members[holder].held()[number] for holder in pooled}
        key, seed = (secret.to_bytes(SEED_BYTES, "big") for secret in join(held))
        publics = {other: keys.masks for other, keys in self.server.publics.items()}
        add_mask(words, field, number, seed, X25519PrivateKey.from_private_bytes(key), publics, -1)
