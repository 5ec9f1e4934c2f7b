"""Guesses at which of two neighbouring inputs a mechanism was called with: by distance, or learned from its answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.empirical.audits.distinguisher import RELEASES, WIDTH, features, learned, lowest_bits
from fglaudit.empirical.mechanisms.calls import Seen
from fglaudit.empirical.mechanisms.inputs import Neighbors
from fglaudit.rng import derive

NEARNESS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared distances": lambda seen, given: -(seen - given).square().sum(-1),
    "absolute distances": lambda seen, given: -(seen - given).abs().sum(-1),
    "equal entries": lambda seen, given: (seen == given).double().sum(-1),
}
"""How near an answer [..., C] is to an input [C]: the best guess under Gaussian and Laplace noise, and where rows are
let through as they are."""
TESTS = len(NEARNESS) + 5
"""Most guesses at one pair, for the correction: these, regression, trees, trees on the lowest bits, and values and
whole answers that were seen before."""
FINEST_SEEN = 2.0**-16
"""How near numbers are that count as the same, in standard deviations; how single precision rounds is finer."""


def guesses(there: Seen, gone: Seen, pair: Neighbors, seed: int) -> list[tuple[str, Tensor, Tensor]]:
    """Return by test the scores of both worlds [n]; those of learned ones on the half that was not learned from."""
    there, gone = _alike(there, gone)
    found: list[tuple[str, Tensor, Tensor]] = []
    if (inputs := _as_answers(pair, there.values.shape[-1])) is not None:
        for name, near in NEARNESS.items():
            in_, out = ((near(one.values, inputs[0]) - near(one.values, inputs[1])).sum(1) for one in (there, gone))
            found.append((name, in_, out))
    scale = float(torch.cat([there.values, gone.values]).nan_to_num(0.0, 0.0, 0.0).std()) or 1.0
    worlds = [_features(one, pair, scale).nan_to_num(0.0, 1e30, -1e30) for one in (there, gone)]
    found += learned(worlds[0], worlds[1], seed, linear=True)
    found += _seen_before(there, gone, seed)
    # How numbers round depends on their size: compared between opposite inputs alone, where sizes are alike.
    if pair.opposite and there.floating == 32:
        in_, out = (lowest_bits(one.values.nan_to_num(0.0)) for one in (there, gone))
        found += [(f"{name} on lowest bits", a, b) for name, a, b in learned(in_, out, seed, linear=False)]
    return [(name, a.nan_to_num(0.0, 1e30, -1e30), b.nan_to_num(0.0, 1e30, -1e30)) for name, a, b in found]


def _seen_before(there: Seen, gone: Seen, seed: int) -> list[tuple[str, Tensor, Tensor]]:
    """Return as scores of the second half how much oftener its values came in the first half of either world: of single
    numbers, whose logarithms of odds add up where they are independent, and of whole answers. Keys and counts tell so,
    noise that is rounded before it is added, since what is left over is the input's, and noise from few seeds."""
    half = len(there.values) // 2
    known = [one.values.flatten(1).nan_to_num(2e30, 1e30, -1e30) for one in (there, gone)]
    step = torch.cat(known).std(0) * FINEST_SEEN
    steps = torch.where(step > 0, step, 1.0)
    worlds = [(values / steps).round() for values in known]
    chosen = torch.arange(steps.numel()).view(there.values.shape[1:])[:RELEASES, :WIDTH].flatten()
    # One number for every whole answer, the same for equal ones.
    weights = torch.rand(steps.numel() + there.lengths.shape[1], generator=derive(seed, "whole"), dtype=torch.double)
    whole = [
        (torch.cat([values, one.lengths.double()], 1) * weights).sum(1, keepdim=True)
        for values, one in zip(worlds, (there, gone), strict=True)
    ]
    found = []
    for name, seen in (("values", [values[:, chosen] for values in worlds]), ("whole answers", whole)):
        first = [one[:half].T.contiguous().sort(1).values for one in seen]
        there_, gone_ = ([torch.log(_counts(part, one[half:]) + 1).sum(1) for part in first] for one in seen)
        found.append((f"{name} seen before", there_[0] - there_[1], gone_[0] - gone_[1]))
    return found


def _counts(known: Tensor, asked: Tensor) -> Tensor:
    """Return how often each number of ``asked`` [n, C] is in its row of ``known`` [C, m], which is sorted."""
    wanted = asked.T.contiguous()
    found = torch.searchsorted(known, wanted, right=True) - torch.searchsorted(known, wanted)
    return found.T.double()


def _alike(*worlds: Seen) -> tuple[Seen, ...]:
    """Return both worlds with answers of one length, zeros after the shorter ones."""
    longest = max(one.values.shape[-1] for one in worlds)
    return tuple(
        dataclasses.replace(one, values=torch.nn.functional.pad(one.values, (0, longest - one.values.shape[-1])))
        for one in worlds
    )


def _as_answers(pair: Neighbors, numbers: int) -> tuple[Tensor, Tensor] | None:
    """Return both inputs [C] where answers have as many numbers as these, or their sums over rows where as many as one
    row; None elsewhere."""
    inputs = pair.present.double(), pair.absent.double()
    if all(given.numel() == numbers for given in inputs):
        return inputs[0].flatten(), inputs[1].flatten()
    if all(given.dim() == 2 and given.shape[1] == numbers for given in inputs):
        return inputs[0].sum(0), inputs[1].sum(0)
    return None


def _features(seen: Seen, pair: Neighbors, scale: float) -> Tensor:
    """Return what models learn from [copies, n]."""
    whole = seen.values.sum(1)
    parts = [
        features(seen.values, scale),
        seen.lengths.double(),
        (~torch.isfinite(seen.values)).sum((1, 2))[:, None].double(),
        torch.stack([whole.sum(1), whole.square().sum(1), whole.abs().amax(1)], 1) if whole.shape[1] else whole,
    ]
    for given in _as_answers(pair, seen.values.shape[-1]) or ():
        parts += [near(seen.values, given).sum(1)[:, None] for near in NEARNESS.values()]
    return torch.cat(parts, 1)
