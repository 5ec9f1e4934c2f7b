"""What differs between two replays with equal draws: which fields, and by how much where a sensitivity is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fglaudit.empirical.fields.forced_replay import Trace
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.privacy.accounted import Noised

Sent = tuple[str, bool, str]
"""A payload, whether the server sent it, and one of its fields."""
PRESENCE = "presence"
"""The field that stands for who sends to whom, how often, and how long messages are."""


@dataclass
class Moves:
    """What moved.

    Attributes:
        fields: of messages.
        rows, gradients: whether prepared rows and sums of gradients did.
        accuracy: whether reported accuracies did.
    """

    fields: set[Sent] = field(default_factory=set)
    rows: bool = False
    gradients: bool = False
    accuracy: bool = False

    def named(self) -> list[str]:
        """Return what moved, in words."""
        words = [f"{payload}.{name} from {'the server' if by else 'clients'}" for payload, by, name in self.fields]
        also = {"rows": self.rows, "gradients": self.gradients}
        return sorted(words) + [name for name, moved in also.items() if moved]

    def of(self, noised: Noised) -> bool:
        """Whether what ``noised`` is about moved."""
        if noised.payload in ("rows", "gradients"):
            return self.rows if noised.payload == "rows" else self.gradients
        return any(sent[:2] == (noised.payload, noised.by_server) for sent in self.fields)


def moves(one: Trace, other: Trace) -> Moves:
    """Return what differs between two replays, up to the message at which they part ways."""
    found = Moves()
    found.rows = any(k != j or unequal(a, b) for (k, a), (j, b) in zip(one.rows, other.rows, strict=False))
    found.gradients = any(unequal(a, b) for a, b in zip(one.updates, other.updates, strict=False))
    if one.accuracy is not None and other.accuracy is not None:
        found.accuracy = unequal(one.accuracy, other.accuracy)
    for batch, again in zip(one.batches, other.batches, strict=False):
        if not aligned(batch, again):
            found.fields.add((type(batch.payload).__name__, _by_server(batch), PRESENCE))
            return found
        fields = again.payload.tensors()
        for name, value in batch.payload.tensors().items():
            if unequal(value, fields[name]):
                found.fields.add((type(batch.payload).__name__, _by_server(batch), name))
    if len(one.batches) != len(other.batches):
        longer = max(one.batches, other.batches, key=len)
        extra = longer[min(len(one.batches), len(other.batches))]
        found.fields.add((type(extra.payload).__name__, _by_server(extra), PRESENCE))
    return found


def aligned(one: MessageBatch, other: MessageBatch) -> bool:
    """Whether two batches are of the same kind, parties and lengths."""
    if type(one.payload) is not type(other.payload) or one.round != other.round:
        return False
    pairs = [(one.senders, other.senders), (one.receivers, other.receivers)]
    if one.splits is not None and other.splits is not None:
        pairs.append((one.splits, other.splits))
    fields = other.payload.tensors()
    shapes = all(v.shape == fields[n].shape and v.dtype == fields[n].dtype for n, v in one.payload.tensors().items())
    return shapes and all(torch.equal(a.cpu(), b.cpu()) for a, b in pairs)


def unequal(one: Tensor, other: Tensor) -> bool:
    """Whether any number differs; NaN equals itself."""
    if one.shape != other.shape:
        return True
    differs = one != other
    if one.is_floating_point():
        differs &= ~(one.isnan() & other.isnan())
    return bool(differs.any())


def largest_step(one: Trace, other: Trace, noised: Noised, *, joint: bool) -> tuple[float, float]:
    """Return how far what ``noised`` is about moved in one release, in its norm, and how much of that may be roundoff.

    Args:
        joint: whether the sensitivity is that of all messages of a round together, not of each.
    """
    if noised.payload == "rows":
        pairs = [(a.flatten(0, -2), b.flatten(0, -2)) for (_, a), (_, b) in zip(one.rows, other.rows, strict=False)]
        return _largest([_norms(a, b, noised) for a, b in pairs if a.shape == b.shape])
    if noised.payload == "gradients":  # after the first step models differ, and all gradients with them
        steps = list(zip(one.updates, other.updates, strict=False))[:1]
        return _largest([_norms(a.flatten()[None], b.flatten()[None], noised) for a, b in steps])
    by_round: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for batch, again in zip(one.batches, other.batches, strict=False):
        if not aligned(batch, again):
            break
        if type(batch.payload).__name__ != noised.payload or _by_server(batch) is not noised.by_server:
            continue
        fields = again.payload.tensors()
        parts = [
            _norms(v.flatten(1), fields[n].flatten(1), noised)
            for n, v in batch.payload.tensors().items()
            if v.is_floating_point()
        ]
        by_round.setdefault(batch.round, []).append(_joined(parts, noised))
    counted = list(by_round.values())
    if noised.payload == ModelUpdate.__name__:
        counted = _until_moved(counted)
    rounds = [_all_together(parts, noised) for parts in counted] if joint else []
    return _largest(rounds if joint else [part for parts in counted for part in parts])


def _until_moved(rounds: list[list[tuple[Tensor, Tensor]]]) -> list[list[tuple[Tensor, Tensor]]]:
    """Return the rounds up to the first in which something moved: a session clips changes of models around the model
    that it released itself, and from the next round on that is another one than receivers are given in a replay."""
    for number, parts in enumerate(rounds):
        if any(bool((norms > 0).any()) for norms, _ in parts):
            return rounds[: number + 1]
    return rounds


def _norms(one: Tensor, other: Tensor, noised: Noised) -> tuple[Tensor, Tensor]:
    """Return the norm of the difference of every row [n], and bounds on its roundoff."""
    norms, off = one.new_zeros(2, len(one), dtype=torch.float64)
    moved = (one != other).any(1)  # one record moves few rows; NaN is unequal to itself, and looked at below
    if bool(moved.any()):
        norms[moved], off[moved] = _norms_of_moved(one[moved], other[moved], noised)
    return norms, off


def _norms_of_moved(one: Tensor, other: Tensor, noised: Noised) -> tuple[Tensor, Tensor]:
    difference = (one.double() - other.double()).abs()
    infinite = ~difference.isfinite()
    difference = torch.where(infinite, torch.where(one.isnan() & other.isnan(), 0.0, torch.inf), difference)
    order = torch.inf if noised.elementwise else 1 if noised.distribution == "laplace" else 2
    size = torch.maximum(one.abs(), other.abs()).double().nan_to_num(0.0, 0.0, 0.0)
    eps = torch.finfo(one.dtype).eps if one.dtype.is_floating_point else 0.0
    off = 4 * eps * torch.where(difference > 0, size, 0.0)
    return torch.linalg.vector_norm(difference, ord=order, dim=1), torch.linalg.vector_norm(off, ord=order, dim=1)


def _joined(parts: list[tuple[Tensor, Tensor]], noised: Noised) -> tuple[Tensor, Tensor]:
    """Return the norms of messages that are made of several fields."""
    order = torch.inf if noised.elementwise else 1 if noised.distribution == "laplace" else 2
    norms, off = (torch.stack(list(column)) for column in zip(*parts, strict=True))
    return torch.linalg.vector_norm(norms, ord=order, dim=0), torch.linalg.vector_norm(off, ord=order, dim=0)


def _all_together(parts: list[tuple[Tensor, Tensor]], noised: Noised) -> tuple[Tensor, Tensor]:
    """Return the norm of all messages of a round as one."""
    order = torch.inf if noised.elementwise else 1 if noised.distribution == "laplace" else 2
    norms, off = (torch.cat(list(column)) for column in zip(*parts, strict=True))
    return (
        torch.linalg.vector_norm(norms, ord=order)[None],
        torch.linalg.vector_norm(off, ord=order)[None],
    )


def _largest(parts: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """Return the largest norm, and the roundoff that goes with it."""
    best = (0.0, 0.0)
    for norms, off in parts:
        if len(norms):
            at = int((norms - off).argmax())
            found = float(norms[at]), float(off[at])
            best = max(best, found, key=lambda pair: pair[0] - pair[1] if math.isfinite(pair[0]) else math.inf)
    return best


def _by_server(batch: MessageBatch) -> bool:
    return bool((batch.senders == SERVER).all())
