"""From rows as FedGAT's messages carry them to rows as the data set has them.

FedGAT scales every feature row to norm at most one (Assumption 3), as it states in ``Attention.rows``. Rows whose
non-zero entries are equal survive that: the largest entry is the level, half of it separates ones from zeros. Under
noise every number of ones m is tried: it fixes the level (``1 / sqrt(m)`` for a 0/1 row of norm one, ``1 / m`` for one
normalised to sum one), and with it the posterior of every entry. Averaged over m by likelihood, the posteriors give the
row with the best expected F1, which for a row that is settled is the row itself. A real-valued row longer than one has
lost its length; it is returned as sent. Columns that a defense left out are guessed from the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, stated, unused_columns
from fglaudit.facts import ROWS, Absent, Clipped, Sealed
from fglaudit.graph import FeatureKind, positions
from fglaudit.payloads import Payload, RawFeatures
from fglaudit.privacy.mechanism import clip_rows
from fglaudit.view import Auxiliary, View

NEGLIGIBLE = 1e-4
"""Entries below this, relative to the largest entry of all rows, are rounding errors."""
_MOST_ONES = 256
_ROWS_AT_ONCE = 1024


def as_sent(view: View, rows: Tensor) -> Tensor:
    """Return ``rows`` [R, F] as they enter messages where nothing is random about that."""
    clip, used = clip_of_rows(view), rows.masked_fill(unused_columns(view), 0.0)
    if clip is not None:
        used = clip_rows(used, clip.bound, clip.norm.lower())
    scaled: Tensor = used / used.norm(dim=1, keepdim=True).clamp(min=1)
    return scaled


def known_rows_as_sent(view: View) -> Auxiliary:
    """Return the observer's own and auxiliary rows as they entered the messages.

    These are the uploaded rows where they were recorded, else rows changed by the public rules.
    """
    known = view.known_rows()
    x = as_sent(view, known.x)
    position = positions(known.nodes, view.public.num_nodes)
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    for batch, payload in view.sent(RawFeatures):
        sent = torch.isin(batch.senders, mine)[batch.entry_messages()] & (position[payload.nodes] >= 0)
        uploaded = payload.x[sent]
        x[position[payload.nodes[sent]]] = uploaded / uploaded.norm(dim=1, keepdim=True).clamp(min=1)
    return Auxiliary(known.nodes, x, known.y)


def sent_as_held(view: View, *payloads: type[Payload]) -> bool:
    """Whether ``payloads`` arrive as they were made, of rows as their owners hold them in every entry."""
    sent = [fact for payload in payloads for fact in stated(view, payload)]
    changed = any(fact.target == ROWS for fact in view.public.facts)
    return not changed and all(isinstance(fact, Sealed | Absent) for fact in sent)


def as_bits(rows: Tensor) -> Tensor:
    """Return the ones of noise-free discrete ``rows`` [R, F]."""
    top = rows.amax(1, keepdim=True)
    floor = NEGLIGIBLE * rows.max() if rows.numel() else 0.0
    return (rows > 0.5 * top) & (top > floor)


def to_levels(view: View, rows: Tensor, nodes: Tensor, std: Tensor, *, unit_ball: bool) -> Tensor:
    """Return ``rows`` [R, F] in the data set's own levels.

    Args:
        nodes: whose rows they are [R], for the prior; -1 where unknown. Used for noisy rows and columns left out.
        std: standard deviation of the noise on every entry of a row [R].
        unit_ball: whether they were scaled to norm at most one after all else.
    """
    kind, unused = view.public.features, unused_columns(view)
    if len(rows) == 0 or (kind is FeatureKind.REAL and not bool(unused.any())):
        return rows
    if bool((std == 0).all()) and not bool(unused.any()):
        bits = as_bits(rows)
    else:
        known = feature_prior(view, nodes)
        prior = known.mean.double()
        if kind is not FeatureKind.REAL and not known.informed:  # nothing is known of columns that are left out
            prior = prior.masked_fill(unused, 0.0)
        if kind is FeatureKind.REAL:
            return torch.where(unused, prior.to(rows), rows)
        prior = prior.clamp(1e-6, 1 - 1e-6)
        levels = _Levels(clip_of_rows(view), unit_ball, kind is FeatureKind.SCALED_BINARY)
        blocks = [slice(low, low + _ROWS_AT_ONCE) for low in range(0, len(rows), _ROWS_AT_ONCE)]
        bits = torch.cat([best_f1_bits(_decided(rows[b], prior[b], std[b].double(), levels, unused)) for b in blocks])
    found = bits.to(rows.dtype)
    return found / found.sum(1, keepdim=True).clamp(min=1) if kind is FeatureKind.SCALED_BINARY else found


@dataclass(frozen=True)
class _Levels:
    """Level of the entries of a row with so many ones.

    Attributes:
        clip: of rows, before they were used.
        unit_ball: whether rows were scaled to norm at most one after that.
        scaled: whether entries were one over their number before.
    """

    clip: Clipped | None
    unit_ball: bool
    scaled: bool

    def of(self, ones: int) -> float:
        """Return the level of the entries of a row with ``ones`` ones."""
        level = 1 / ones if self.scaled else 1.0
        if self.clip is not None:
            level = min(level, self.clip.bound / (ones if self.clip.norm == "L1" else ones**0.5))
        return min(level, ones**-0.5) if self.unit_ball else level


def _decided(rows: Tensor, prior: Tensor, std: Tensor, levels: _Levels, unused: Tensor) -> Tensor:
    """Return the posterior probabilities of ones [R, F] of ``rows`` [R, F], by the ``prior`` in ``unused`` columns."""
    if bool((std == 0).all()):
        return torch.where(unused, prior, as_bits(rows).double())
    return torch.where(unused, prior, _chances(rows.double(), prior.masked_fill(unused, 1e-6), std, levels))


def _chances(rows: Tensor, prior: Tensor, std: Tensor, levels: _Levels) -> Tensor:
    """Return the posterior probabilities of ones [R, F].

    Args:
        rows: [R, F].
        prior: prior probabilities [R, F].
        std: of the noise on each row [R].
    """
    odds, variance = prior.logit(), std.square().clamp(min=1e-12)[:, None]
    count, spread = prior.sum(1), (prior * (1 - prior)).sum(1) + 1.0
    chances = torch.zeros_like(rows)
    total = torch.full((len(rows),), -math.inf, dtype=torch.double)
    for ones in range(1, min(_MOST_ONES, rows.shape[1]) + 1):
        level = levels.of(ones)
        gain = (rows * level - level**2 / 2) / variance + odds
        chance = gain.sigmoid()
        # A row of m ones that the entries do not add up to is no row of m ones.
        miss = (chance.sum(1) - ones).square() / (2 * (chance * (1 - chance)).sum(1) + 0.5)
        explained = (torch.nn.functional.softplus(gain) - torch.nn.functional.softplus(odds)).sum(1)
        weight = explained - miss - (ones - count).square() / (2 * spread)
        new = torch.logaddexp(total, weight)
        chances = chances * (total - new).exp()[:, None] + chance * (weight - new).exp()[:, None]
        total = new
    return chances
