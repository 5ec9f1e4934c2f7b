"""The control: the best guess of unknown rows from prior knowledge alone, without reading a single message.

The prior is the one the attacks themselves use (:mod:`fglaudit.adversary.priors.feature_prior`), so an attack's
advantage over this guess is due to the messages. Discrete rows get their m most probable entries, with the m that has
the best mean F1 on the observer's own rows, each predicted from its own neighbours; none where most rows are empty.
Real-valued rows get the prior mean. An observer without any row knows only the number of features; all ones then has
the best expected F1 of all rows, binary or not, and the best cosine of real-valued ones whose entries are mostly
positive.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.rng import split
from fglaudit.view import View

_TRIAL_ROWS = 400


def prior_only(view: View, nodes: Tensor, rng: torch.Generator) -> Reconstruction:
    """Return a guess of the rows of ``nodes`` [R] from the side knowledge in ``view``.

    ``view.messages`` is not read.

    Args:
        nodes: global ids; -1 where the attack named none.
        rng: picks the own rows on which the number of entries is tuned.
    """
    nodes, copies = torch.unique_consecutive(nodes, return_inverse=True)  # a node stands once per sample
    guess = _guess(view, nodes, rng)
    return Reconstruction(guess.rows[copies], guess.nodes[copies], guess.confidence[copies])


def _guess(view: View, nodes: Tensor, rng: torch.Generator) -> Reconstruction:
    prior = feature_prior(view, nodes)
    confidence = torch.zeros(len(nodes))
    if not prior.informed:
        level = 1.0 / view.public.num_features if view.public.features is FeatureKind.SCALED_BINARY else 1.0
        return Reconstruction(torch.full(prior.mean.shape, level), nodes, confidence)
    if view.public.features is FeatureKind.REAL:
        return Reconstruction(prior.mean.float(), nodes, confidence)
    known = view.known_rows()
    picked = torch.randperm(len(known.nodes), generator=split(rng, "prior"))[:_TRIAL_ROWS]
    entries = best_entry_count(feature_prior(view, known.nodes[picked]).mean, known.x[picked] != 0)
    rows = torch.zeros(prior.mean.shape)
    rows.scatter_(1, prior.mean.topk(entries, dim=1).indices, prior.level)
    return Reconstruction(rows, nodes, confidence)


def best_entry_count(scores: Tensor, truth: Tensor) -> int:
    """Return m such that the m highest ``scores`` of a row [R, F] have the best mean F1 against ``truth`` [R, F];
    0 where a row without any entry has, whose F1 is 1 where the truth is empty too."""
    most = max(1, min(scores.shape[1], int(3 * truth.sum(1).double().mean().item()) + 1))
    order = scores.topk(most, dim=1).indices
    hits = truth.gather(1, order).double().cumsum(1)
    guessed = torch.arange(1, most + 1, device=scores.device)
    f1 = (2 * hits / (guessed + truth.sum(1, keepdim=True))).mean(0)
    empty = float((~truth.any(1)).double().mean().item())
    return 0 if empty > float(f1.max().item()) else int(f1.argmax().item()) + 1
