"""Random numbers without hidden state: every draw comes from a ``torch.Generator`` that somebody passed."""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *path: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose, e.g. ``derive(cell.seed, "partition")``.

    The state depends on ``seed`` and every element of ``path`` and on nothing else, so two purposes never share a
    stream and adding a draw for one purpose changes no other. Draw on the CPU and move the result: the same seed then
    gives the same numbers on every device.
    """
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator


def split(rng: torch.Generator, purpose: str) -> torch.Generator:
    """Return an independent child of ``rng`` for ``purpose``; ``rng`` itself moves on by one draw."""
    seed = int(torch.randint(2**62, (1,), generator=rng).item())
    return derive(seed, purpose)
