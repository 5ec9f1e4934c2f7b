"""Random numbers without hidden state: every draw comes from a ``torch.Generator`` that somebody passed.

A *key* makes a stream secret. Without one the stream depends on public numbers alone, so that anybody who knows the
seed can draw the same noise again and subtract it; and torch's CPU generator takes no more than 32 bits of a seed. A
keyed stream therefore fills the generator's whole state from the key. It stays a Mersenne Twister: guessing the key is
hopeless, but the generator is no cryptographic one, and whoever sees enough of its raw output can predict it.
"""

from __future__ import annotations

import hashlib
import secrets

import torch

KEY_BYTES = 16
_WORDS = 624  # of the Mersenne Twister's state, each of 32 bits in 64
_FIRST = 3  # 64-bit words that torch keeps before them: seed, position and flags, next


class KeyedGenerator(torch.Generator):
    """A generator whose children are as secret as itself."""

    key: bytes = b""


def derive(seed: int, *path: str | int, key: bytes = b"") -> torch.Generator:
    """Return a CPU generator for one purpose, e.g. ``derive(cell.seed, "partition")``.

    The state depends on ``seed``, ``key`` and every element of ``path`` and on nothing else, so two purposes never
    share a stream and adding a draw for one purpose changes no other. Draw on the CPU and move the result: the same
    seed then gives the same numbers on every device.

    Args:
        key: that only those know who may know the stream; empty: the stream is public.
    """
    name = repr((seed, *path)).encode()
    digest = hashlib.blake2b(name, digest_size=8, key=key).digest()
    generator = KeyedGenerator() if key else torch.Generator()
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    if isinstance(generator, KeyedGenerator):
        generator.key = key
        _fill(generator, hashlib.shake_256(key + b"|" + name).digest(4 * _WORDS))
    return generator


def unforeseen() -> torch.Generator:
    """Return a generator that nobody can draw again, for what no record depends on and no plugin may foresee."""
    return derive(0, "unforeseen", key=secrets.token_bytes(KEY_BYTES))


def as_published(seed: int) -> torch.Generator:
    """Return a generator seeded as other people's code seeds theirs, to draw what they drew."""
    return torch.Generator().manual_seed(seed)


def _fill(generator: torch.Generator, words: bytes) -> None:
    """Replace the whole state of a freshly seeded ``generator``."""
    state = generator.get_state()
    drawn = torch.frombuffer(bytearray(words), dtype=torch.uint8).view(_WORDS, 4)
    place = state[8 * _FIRST : 8 * (_FIRST + _WORDS)].view(_WORDS, 8)
    place[:, :4] = drawn
    place[:, 4:] = 0
    generator.set_state(state)


def moved(rng: torch.Generator, device: torch.device | str) -> torch.Generator:
    """Return a generator on ``device`` that is seeded as the unused ``rng`` is, and as secret."""
    if isinstance(rng, KeyedGenerator) and torch.device(device).type == "cpu":
        return derive(rng.initial_seed(), "moved", key=rng.key)
    return torch.Generator(device).manual_seed(rng.initial_seed())


def copied(rng: torch.Generator) -> torch.Generator:
    """Return a generator that draws, and splits into, what ``rng`` would from here on; ``rng`` itself stays put."""
    again = KeyedGenerator(rng.device) if isinstance(rng, KeyedGenerator) else torch.Generator(rng.device)
    again.set_state(rng.get_state())
    if isinstance(again, KeyedGenerator) and isinstance(rng, KeyedGenerator):
        again.key = rng.key
    return again


def split(rng: torch.Generator, purpose: str) -> torch.Generator:
    """Return an independent child of ``rng`` for ``purpose``; ``rng`` itself moves on by one draw.

    A child's key follows from its parent's and not the other way round: who is handed a generator, a plugin say, knows
    nothing of those that others draw from.
    """
    seed = int(torch.randint(2**62, (1,), generator=rng).item())
    return derive(seed, purpose, key=_below(getattr(rng, "key", b""), seed))


def _below(key: bytes, seed: int) -> bytes:
    return hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=KEY_BYTES, key=key).digest() if key else b""


def undrawn_seed(rng: torch.Generator) -> int | None:
    """Return the seed of ``rng``, on the CPU, if it is as it was seeded; None where it gave numbers since."""
    seed = rng.initial_seed()
    return seed if torch.equal(rng.get_state(), torch.Generator().manual_seed(seed).get_state()) else None


def drew_one_word(start: torch.Generator, now: torch.Generator) -> bool:
    """Return whether ``now``, which began as ``start``, gave 32 bits since and no more: no seed made of them is a
    secret, whoever has a few hours tries them all."""
    again = copied(start)
    torch.empty(1, dtype=torch.int32, device=again.device).random_(generator=again)
    return torch.equal(again.get_state(), now.get_state())
