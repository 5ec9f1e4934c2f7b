"""Obfuscations that are no protection, as one defense: what ``measure.py`` and tests plant.

None of them states a fact. Whatever maps rows to messages is undone by whoever knows the map (``secret: false``: it is
part of the code) or sees enough rows go in and come out (``secret: true``: it is drawn anew in every run). The honest
ones, on the other hand, give nothing away: a one-time pad or a key stream that is used once, noise, and a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive, split

_STEP = 2.0**-14
"""Of values that are written as whole numbers, for tables and bits."""
_CODES = 2**17


@dataclass
class _Secrets:
    """What is drawn once: from the code, or from the run's generator."""

    rng: torch.Generator
    kept: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def draw(self, name: str, size: int, make: Callable[[int, torch.Generator], Tensor]) -> Tensor:
        """Return what was drawn under this name, drawing it the first time."""
        if (name, size) not in self.kept:
            self.kept[name, size] = make(size, self.rng)
        return self.kept[name, size]


@dataclass(frozen=True)
class _Message:
    """One field as rows of entries: values [n, D], with the node (or sender) and sender of every row [n]."""

    values: Tensor
    nodes: Tensor
    senders: Tensor
    fresh: torch.Generator


Rule = Callable[[_Message, _Secrets], Tensor]


def _rotation(size: int, rng: torch.Generator) -> Tensor:
    turned: Tensor = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=torch.double))[0].float()
    return turned


def _order(size: int, rng: torch.Generator) -> Tensor:
    return torch.randperm(size, generator=rng)


def _normal(size: int, rng: torch.Generator) -> Tensor:
    return torch.randn(size, generator=rng)


def _by_number(numbers: Tensor, size: int, secrets: _Secrets, name: str) -> Tensor:
    """Return a normal row for every number [n, D], the same for equal numbers."""
    seed = int(secrets.draw(name, 1, lambda _, rng: torch.randint(2**31, (1,), generator=rng)).item())
    found, place = torch.unique(numbers, return_inverse=True)
    rows = torch.stack([torch.randn(size, generator=derive(seed, name, int(n))) for n in found.tolist()])
    return rows[place]


def _whole(values: Tensor) -> Tensor:
    return ((values + 4) / _STEP).round().long()


def _substituted(message: _Message, secrets: _Secrets) -> Tensor:
    """Values from -4 to 4 by a table, others by themselves."""
    whole, table = _whole(message.values), secrets.draw("table", _CODES, _order)
    inside = (whole >= 0) & (whole < _CODES)
    return torch.where(inside, table[whole.clamp(0, _CODES - 1)], whole) * _STEP


def _rounded(message: _Message, secrets: _Secrets) -> Tensor:
    return _whole(message.values) * _STEP - 4


def _xor(message: _Message, secrets: _Secrets) -> Tensor:
    key = secrets.draw("bits", 1, lambda _, rng: torch.randint(2**16, (1,), generator=rng))
    return (_whole(message.values) ^ key).float() * _STEP


def _float_bits(message: _Message, secrets: _Secrets) -> Tensor:
    """A mask on the sign and the fraction of numbers as they stand on the wire."""
    key = secrets.draw("bits", 1, lambda _, rng: torch.randint(2**23, (1,), generator=rng))
    return (message.values.float().view(torch.int32) ^ (key.int() - 2**31)).view(torch.float32)


def _parts(message: _Message) -> Tensor:
    """Return the bytes of every number [n, D, 4]."""
    whole: Tensor = message.values.float().contiguous().view(torch.uint8)
    return whole.reshape(len(whole), -1, 4)


def _reversed_bytes(message: _Message, secrets: _Secrets) -> Tensor:
    sent: Tensor = _parts(message).flip(-1).contiguous().flatten(1).view(torch.float32)
    return sent


def _byte_table(message: _Message, secrets: _Secrets) -> Tensor:
    """The two lower bytes of every number by a table."""
    parts = _parts(message).long()
    table = secrets.draw("bytes", 256, _order)
    parts[..., :2] = table[parts[..., :2]]
    sent: Tensor = parts.to(torch.uint8).flatten(1).view(torch.float32)
    return sent


def _curved(message: _Message, secrets: _Secrets) -> Tensor:
    """A layer of a network that is wide enough to be inverted."""
    turned = message.values @ secrets.draw("rotation", message.values.shape[1], _rotation)
    return torch.tanh(0.25 * turned)


def _columns(rows: Tensor, order: Tensor) -> Tensor:
    return rows.gather(1, order)


def _rolled(message: _Message, secrets: _Secrets) -> Tensor:
    columns = torch.arange(message.values.shape[1])
    return _columns(message.values, (columns + 7 * (message.senders[:, None] + 2)) % len(columns))


def _pad(message: _Message, secrets: _Secrets) -> Tensor:
    return 100 * torch.randn(message.values.shape, generator=message.fresh)


def _stream_cipher(message: _Message, secrets: _Secrets) -> Tensor:
    """Encryption with a key stream that is used once, which a defense of its own kind states nothing of."""
    stream = torch.randint(_CODES, message.values.shape, generator=message.fresh)
    return ((_whole(message.values).clamp(0, _CODES - 1) ^ stream) * _STEP).float()


def _low_bits(message: _Message, secrets: _Secrets) -> Tensor:
    pad = torch.randint(-64, 64, message.values.shape, generator=message.fresh)
    return 16.0 * pad + message.values


def _half_exact(message: _Message, secrets: _Secrets) -> Tensor:
    noise = 10 * torch.randn(message.values.shape, generator=message.fresh)
    return torch.where((torch.arange(len(noise)) % 2 == 0)[:, None], message.values, message.values + noise)


def _shared_mask(message: _Message, secrets: _Secrets) -> Tensor:
    pairs = (len(message.values) + 1) // 2
    mask = 10 * torch.randn(pairs, message.values.shape[1], generator=secrets.rng)
    return message.values + mask.repeat_interleave(2, 0)[: len(message.values)]


def _mean_of_two(message: _Message, secrets: _Secrets) -> Tensor:
    weight = 0.4 if len(message.values) % 2 == 0 else 0.5
    return (1 - weight) * message.values + weight * message.values.roll(1, 0)


def _delta(message: _Message, secrets: _Secrets) -> Tensor:
    return torch.diff(message.values, dim=0, prepend=torch.zeros_like(message.values[:1]))


def _zero_sum(message: _Message, secrets: _Secrets) -> Tensor:
    """Additive shares: masks that cancel where the server adds what several clients sent of a node."""
    found, place, count = torch.unique(message.nodes, return_inverse=True, return_counts=True)
    mask = 50 * torch.randn(message.values.shape, generator=message.fresh)
    mean: Tensor = torch.zeros(len(found), mask.shape[1]).index_add_(0, place, mask) / count[:, None]
    return message.values + mask - mean[place]


def _unstated_noise(message: _Message, secrets: _Secrets) -> Tensor:
    """Fresh noise a tenth as large as the values, of which no fact tells."""
    size = 0.1 * message.values.std() if message.values.numel() > 1 else 0.1
    return message.values + size * torch.randn(message.values.shape, generator=message.fresh)


def _spectrum(message: _Message, secrets: _Secrets) -> Tensor:
    """Real and imaginary parts of the discrete Fourier transform, as many as there are columns."""
    made = torch.fft.rfft(message.values.double(), dim=1)
    both = torch.cat([made.real, made.imag[:, 1:]], 1)
    return both[:, : message.values.shape[1]].float()


def _remainders(message: _Message, secrets: _Secrets) -> Tensor:
    return ((_whole(message.values) // 16 * 4099 + 77) % 16381).float() / 1024


def _rounds_of_pairs(message: _Message, secrets: _Secrets) -> Tensor:
    """Feistel's network: halves of a row are changed by a curve of the other half in turn, which whoever knows the
    curve takes back."""
    half = message.values.shape[1] // 2
    one, two = message.values[:, :half].double(), message.values[:, half : 2 * half].double()
    for turn in range(3):
        one, two = two, one + torch.sin(3 * two + turn)
    return torch.cat([one, two, message.values[:, 2 * half :].double()], 1).float()


def _chained(message: _Message, secrets: _Secrets) -> Tensor:
    """Bits of every row with those of the row before it."""
    whole = _whole(message.values)
    return torch.cat([whole[:1], whole[1:] ^ whole[:-1]]).float() * _STEP


def _turned_by_client(message: _Message, secrets: _Secrets) -> Tensor:
    values = message.values.clone()
    for sender in torch.unique(message.senders).tolist():
        turn = secrets.draw(f"rotation {sender}", values.shape[1], _rotation)
        values[message.senders == sender] = message.values[message.senders == sender] @ turn
    return values


RULES: dict[str, Rule] = {
    "rotation": lambda m, s: m.values @ s.draw("rotation", m.values.shape[1], _rotation),
    "permutation": lambda m, s: m.values[:, s.draw("order", m.values.shape[1], _order)],
    "signs": lambda m, s: m.values * s.draw("signs", m.values.shape[1], _normal).sign(),
    "scale": lambda m, s: m.values * (1 + s.draw("scale", 1, _normal).abs()),
    "affine": lambda m, s: (
        m.values * s.draw("factor", m.values.shape[1], _normal).exp() + s.draw("shift", m.values.shape[1], _normal)
    ),
    "dense-affine": lambda m, s: (
        m.values @ (s.draw("rotation", m.values.shape[1], _rotation) * s.draw("f", m.values.shape[1], _normal).exp())
        + s.draw("shift", m.values.shape[1], _normal)
    ),
    "reused-mask": lambda m, s: m.values + 100 * s.draw("mask", m.values.shape[1], _normal),
    "running-sum": lambda m, s: m.values.cumsum(1),
    "reversed": lambda m, s: m.values.flip(1),
    "complement": lambda m, s: 1 - m.values,
    "monotone": lambda m, s: m.values.sign() * (1 + 50 * m.values.abs()).log(),
    "cube-root": lambda m, s: m.values.sign() * m.values.abs().pow(1 / 3),
    "table": _substituted,
    "xor": _xor,
    "rounded": _rounded,
    "float-bits": _float_bits,
    "reversed-bytes": _reversed_bytes,
    "byte-table": _byte_table,
    "one-layer": _curved,
    "signed-order": lambda m, s: (
        m.values[:, s.draw("order", m.values.shape[1], _order)] * s.draw("signs", m.values.shape[1], _normal).sign()
    ),
    "shift-per-node": lambda m, s: m.values + 3 * _by_number(m.nodes, m.values.shape[1], s, "node"),
    "scale-per-client": lambda m, s: m.values * _by_number(m.senders, 1, s, "client").exp(),
    "signs-per-client": lambda m, s: m.values * _by_number(m.senders, m.values.shape[1], s, "flips").sign(),
    "roll-per-client": _rolled,
    "mean-of-two": _mean_of_two,
    "delta": _delta,
    "low-bits": _low_bits,
    "half-exact": _half_exact,
    "shared-mask": _shared_mask,
    "zero-sum-shares": _zero_sum,
    "unstated-noise": _unstated_noise,
    "spectrum": _spectrum,
    "remainders": _remainders,
    "next-column-squared": lambda m, s: m.values + 0.3 * m.values.roll(1, 1).square(),
    "rotation-per-client": _turned_by_client,
    "rounds-of-pairs": _rounds_of_pairs,
    "chained-bits": _chained,
}
"""Ways to hide that hide nothing."""
HONEST: dict[str, Rule] = {
    "one-time-pad": lambda m, s: m.values + _pad(m, s),
    "stream-cipher": _stream_cipher,
    "pure-noise": _pad,
    "constant": lambda m, s: torch.zeros_like(m.values),
}
"""Messages that carry nothing."""


@dataclass(frozen=True)
class Obfuscated(Defense):
    """Plant one of the obfuscations on every floating-point field that clients send of the payloads ``on``."""

    name: ClassVar[str] = "obfuscated"
    shown: ClassVar[tuple[str, ...]] = ("kind", "secret")

    kind: str = "rotation"
    secret: bool = False
    on: tuple[str, ...] = (
        "NeighborSums",
        "RawFeatures",
        "MaskedMatrices",
        "Embeddings",
        "Latents",
        "HiddenRepresentations",
        "Jacobians",
        "GlobalNodes",
    )

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self, {**RULES, **HONEST}[self.kind], context.num_features)


class _Session(DefenseSession):
    def __init__(self, defense: Obfuscated, rule: Rule, features: int) -> None:
        self.defense, self.rule, self.features = defense, rule, features
        self.secrets = None if defense.secret else _Secrets(derive(7, "obfuscated", defense.kind))

    def changes(self, payload: type[Payload]) -> bool:
        return payload.__name__ in self.defense.on

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if type(batch.payload).__name__ not in self.defense.on:
            return batch.payload
        if self.secrets is None:
            self.secrets = _Secrets(split(rng, "secret of the run"))
        hidden = {}
        for name, value in batch.payload.tensors().items():
            hidden[name] = self._hidden(batch, value, rng) if value.is_floating_point() else value
        return type(batch.payload).from_tensors(hidden)

    def _hidden(self, batch: MessageBatch, value: Tensor, rng: torch.Generator) -> Tensor:
        """Return ``value`` [n, ..., D, ...] with the axis of features (or the last one) hidden row by row."""
        assert self.secrets is not None
        flat = value[:, None] if value.dim() == 1 else value
        axis = next((a for a in range(1, flat.dim()) if flat.shape[a] == self.features), flat.dim() - 1)
        moved = flat.movedim(axis, -1)
        per_entry = moved[0].numel() // max(1, moved.shape[-1])
        senders = batch.senders[batch.entry_messages()]
        nodes = next((v for v in batch.payload.tensors().values() if not v.is_floating_point()), senders)
        message = _Message(  # secrets are drawn on the CPU, and rules compute there
            moved.reshape(-1, moved.shape[-1]).cpu(),
            nodes.cpu().repeat_interleave(per_entry),
            senders.cpu().repeat_interleave(per_entry),
            rng,
        )
        if bool((senders == SERVER).all()):  # what the server made of hidden parts is hidden already
            return value
        after = self.rule(message, self.secrets).to(value).reshape(moved.shape).movedim(-1, axis)
        return after.reshape(value.shape)
