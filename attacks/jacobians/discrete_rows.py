"""Zeros and ones behind hidden representations: a search over rows for those that repeat them to the last digits.

Gauss-Newton steps (:mod:`fglaudit.attacks.jacobians.encoder_inversion`) treat entries as real numbers, of which the
representations of slowly moving weights determine few. Of a discrete row one only needs to be told from others: with
few features all rows there can be are compared; with more, entries are flipped one at a time, two at a time where that
helps no more, from the rows found so far and from random ones, until the representations are met or nothing is gained.
A row that meets them while none does that differs in one entry is as good as certain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.jacobians.clipped_outputs import clipped
from fglaudit.attacks.jacobians.encoder_inversion import FITS
from fglaudit.attacks.jacobians.hidden_history import HiddenHistory

MOST_FEATURES = 256
"""Beyond so many features the search takes long and finds little."""
_LISTED = 1 << 31
"""Up to so many multiplications all rows there can be are compared."""
_COARSE, _NEAREST = 4, 64
"""Rounds by which these are compared first, and rows of each node that are compared by all rounds."""
_RESTARTS = 8
_PAIRED = 12
"""Entries, those whose flips harm least, of which two are flipped together."""
_NUMBERS_AT_ONCE = 1 << 23
_EXACT = 1e-4
"""Largest error of representations, relative to their size, with which rows can be told apart by them."""


def find_bits(history: HiddenHistory, start: Tensor, chance: Tensor, scaled: bool, rng: torch.Generator) -> Found:
    """Return the discrete rows that explain ``history`` best.

    Args:
        start: first guess of the ones [N, F].
        chance: prior probabilities of ones [N, F], of which further starts are drawn.
        scaled: whether rows are divided by their number of ones.
    """
    search = _Search(history, scaled)
    features = start.shape[1]
    every = features < 31 and 2**features * features * _COARSE * search.w1.shape[2] <= _LISTED
    size = len(start) if every else max(1, _NUMBERS_AT_ONCE // (features * search.numbers))
    parts = [
        search.listed(part, features) if every else search.best(part, start, chance, rng)
        for part in torch.split(torch.arange(len(start), device=start.device), max(1, size))
    ]
    bits, misfit, rival = (torch.cat(column) for column in zip(*parts, strict=True))
    limit = FITS * history.error
    precise = history.error <= _EXACT * history.values.square().mean((1, 2)).sqrt()
    fits = (misfit.sqrt() <= limit) & precise
    return Found(search.levels(bits), fits, fits & (rival.sqrt() > limit))


@dataclass(frozen=True)
class Found:
    """Discrete rows [N, F]; which explain their representations [N], and which of these with no other beside [N]."""

    rows: Tensor
    fits: Tensor
    alone: Tensor


class _Search:
    """Flips of entries of bits [n, F], and the mean squared misfit of the representations after each."""

    def __init__(self, history: HiddenHistory, scaled: bool) -> None:
        self.history, self.scaled = history, scaled
        self.w1 = torch.stack([m.w1 for m in history.models]).double()  # [T, F, H]
        self.w2 = torch.stack([m.w2 for m in history.models]).double()
        self.numbers = self.w1.shape[0] * self.w1.shape[2]
        self.places = torch.arange(self.w1.shape[1], device=self.w1.device)

    def levels(self, bits: Tensor) -> Tensor:
        """Return ``bits`` [..., F] as rows."""
        return bits / bits.sum(-1, keepdim=True).clamp(min=1) if self.scaled else bits

    def misfits(self, part: Tensor, sums: Tensor, ones: Tensor) -> Tensor:
        """Return mean squared misfits [n, M].

        Args:
            part: nodes [n].
            sums: inputs of the hidden units by M rows of ones each [n, M, T, H].
            ones: their numbers [n, M].
        """
        if self.scaled:
            sums = sums / ones.clamp(min=1)[..., None, None]
        predicted = torch.einsum("nmth,thc->nmtc", sums.relu(), self.w2)
        off: Tensor = self.history.values[part][:, None] - clipped(predicted, self.history.clip)
        return off.square().mean((2, 3))

    def best(self, part: Tensor, start: Tensor, chance: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return bits [n, F] of the nodes ``part`` [n], their misfit and the least after one more flip [n]."""
        features = start.shape[1]
        bits, least = self._descend(part, start[part].double())
        for _ in range(_RESTARTS):
            open_ = (least.sqrt() > FITS * self.history.error[part]).nonzero().squeeze(1)
            if not len(open_):
                break
            drawn = torch.rand(len(open_), features, generator=rng, dtype=torch.double).to(bits)
            found, misfit = self._descend(part[open_], (drawn < chance[part[open_]]).to(bits))
            better = misfit < least[open_]
            bits[open_[better]], least[open_[better]] = found[better], misfit[better]
        return bits, least, self._flips(part, bits)[0].amin(1)

    def listed(self, part: Tensor, features: int) -> tuple[Tensor, Tensor, Tensor]:
        """Compare all rows there can be: by a few rounds first, then those that come nearest by all."""
        some = torch.linspace(0, len(self.w1) - 1, min(_COARSE, len(self.w1))).round().long().to(self.w1.device)
        codes = torch.arange(2**features, device=self.w1.device)
        kept = min(_NEAREST, len(codes))
        near = torch.full((len(part), kept), torch.inf, dtype=torch.double, device=codes.device)
        best = torch.zeros(len(part), kept, dtype=torch.long, device=codes.device)
        values = self.history.values[part][:, some].flatten(1)
        for block in torch.split(codes, max(kept, _NUMBERS_AT_ONCE // (len(some) * self.w1.shape[2]))):
            rows = self.levels((block[:, None] >> self.places & 1).double())
            hidden = torch.einsum("mf,tfh->mth", rows, self.w1[some]).relu()
            sent = clipped(torch.einsum("mth,thc->mtc", hidden, self.w2[some]), self.history.clip).flatten(1)
            off = torch.cdist(values, sent, compute_mode="donot_use_mm_for_euclid_dist")
            near, at = torch.cat([near, off], 1).topk(kept, dim=1, largest=False)
            best = torch.cat([best, block.expand(len(part), -1)], 1).gather(1, at)
        bits = (best[..., None] >> self.places & 1).double()  # [n, kept, F]
        least = torch.empty(len(part), 2, dtype=torch.double, device=codes.device)
        place = torch.empty(len(part), 2, dtype=torch.long, device=codes.device)
        size = max(1, _NUMBERS_AT_ONCE // (kept * self.numbers))
        for few in torch.split(torch.arange(len(part), device=codes.device), size):
            sums = torch.einsum("nmf,tfh->nmth", bits[few], self.w1)
            misfit = self.misfits(part[few], sums, bits[few].sum(2))
            least[few], place[few] = misfit.topk(2, dim=1, largest=False)
        return bits[torch.arange(len(part), device=codes.device), place[:, 0]], least[:, 0], least[:, 1]

    def _flips(self, part: Tensor, bits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the misfits after each flip [n, F], and the sums that they start from [n, T, H] with the signs of the
        flips [n, F]."""
        sums = torch.einsum("nf,tfh->nth", bits, self.w1)
        sign = 1 - 2 * bits
        after = sums[:, None] + sign[..., None, None] * self.w1.transpose(0, 1)
        return self.misfits(part, after, bits.sum(1, keepdim=True) + sign), sums, sign

    def _descend(self, part: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
        """Return bits [n, F] that no flip of one or two entries improves, and their misfits [n]."""
        bits = bits.clone()
        sums = torch.einsum("nf,tfh->nth", bits, self.w1)[:, None]
        least = self.misfits(part, sums, bits.sum(1, keepdim=True)).squeeze(1)
        first, second = torch.triu_indices(_PAIRED, _PAIRED, offset=1, device=bits.device)
        live = torch.arange(len(part), device=bits.device)
        for _ in range(3 * bits.shape[1]):
            if not len(live):
                break
            single, sums, sign = self._flips(part[live], bits[live])
            value, at = single.min(1)
            places = torch.stack([at, at], 1)
            stuck = (value >= least[live]).nonzero().squeeze(1)
            if len(stuck):
                near = single[stuck].topk(_PAIRED, dim=1, largest=False).indices
                two = torch.stack([near[:, first], near[:, second]], 2)  # [s, pairs, 2]
                signs = sign[stuck][:, None].expand(-1, two.shape[1], -1).gather(2, two)
                moved = (signs[..., None, None] * self.w1.transpose(0, 1)[two]).sum(2)
                ones = bits[live[stuck]].sum(1, keepdim=True) + signs.sum(2)
                pair, which = self.misfits(part[live[stuck]], sums[stuck][:, None] + moved, ones).min(1)
                value[stuck], places[stuck] = pair, two[torch.arange(len(stuck), device=bits.device), which]
            better = value < least[live]
            live, places = live[better], places[better]
            least[live] = value[better]
            bits[live] = torch.where(
                torch.zeros_like(bits[live]).scatter(1, places, 1.0) > 0, 1 - bits[live], bits[live]
            )
        return bits, least
