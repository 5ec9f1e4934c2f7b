"""The random numbers of an attack: a function of what its observer has, and of nothing else.

A cell's seed draws the partition, the first weights, the defense's noise. A generator made from that seed would let an
attack search the few seeds that anybody uses and draw all of it again. So an attack's generator is made from the
messages that it reads: whoever has the messages can make it, and learns nothing from it. The same recording gives the
same numbers, another one gives others.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from fglaudit.interfaces import Attack
from fglaudit.payloads import is_repeated
from fglaudit.rng import derive
from fglaudit.view import View

_ENTRIES = 2**16
"""Of every tensor that enter."""


def attack_stream(attack: Attack, view: View, purpose: str) -> torch.Generator:
    """Return the generator of ``attack`` on ``view`` for ``purpose``."""
    return derive(0, purpose, type(attack).name, view.observer.name, _digest(attack, view))


def _digest(attack: Attack, view: View) -> str:
    """Return a digest of the first batch of every payload that ``attack`` reads."""
    seen = hashlib.blake2b(digest_size=16)
    for payload in type(attack).reads():
        batch = next(iter(view.messages.of(payload)), None)
        if batch is None:
            continue
        for name, value in sorted(batch.payload.tensors().items()):
            seen.update(f"{payload.__name__} {name} {tuple(value.shape)}".encode())
            seen.update(_bytes(value))
    return seen.hexdigest()


def _bytes(value: Tensor) -> bytes:
    part = (value[:1] if is_repeated(value) else value).flatten()[:_ENTRIES].contiguous().cpu()
    return part.view(torch.uint8).numpy().tobytes()
