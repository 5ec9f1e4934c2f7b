"""From uploads to a property: ridge regression, learned on shadow clients and calibrated on whole federations.

How a client differs from the mean of its federation is decoded from how its upload does (:func:`deviations`): what
sets the attacked clients apart from the shadow clients altogether (other rows, other numbers of training nodes) then
makes no difference. The mean itself is decoded from uploads as they are (:func:`level`). Of several sets of features
(the sketch of a change, the same at length 1, statistics) that is taken, with that penalty, which has the smallest
error on federations that the regression did not learn from.

How far clients are apart differs from federation to federation, and where they are all alike a decoder sees little but
its own noise. So the predictions of a federation are shrunk towards its mean (James and Stein, 1961), the more the less
they spread: by what was best, in shadow federations that were left out, for predictions of such a spread.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import GroupKFold, cross_val_predict
from torch import Tensor

from fglaudit.adversary.group_means import less_group_means
from fglaudit.attacks.models.shadow_clients import ShadowClients, Uploads

PENALTIES = tuple(10.0**power for power in range(-1, 7))
_FOLDS = 5
_TINY = 1e-12


SKETCHES, DIRECTIONS, STATISTICS = range(3)


def deviations(found: ShadowClients, truth: Tensor, sets: tuple[int, ...]) -> Tensor:
    """Return by how much the property of the attacked clients differs from their mean [S, d], as learned from the
    property of the shadow clients [M, d] with the ``sets`` of features."""
    groups = found.federation
    alone = torch.zeros(len(found.attacked.clients), dtype=torch.long)
    target = less_group_means(truth.double(), groups)
    mine = [less_group_means(part, groups) for part in _features(found.shadow, sets)]
    theirs = [less_group_means(part, alone) for part in _features(found.attacked, sets)]
    answer, tried = _predicted(mine, theirs, target, groups)
    return answer * _kept(tried, target, groups, answer)


def explained(found: ShadowClients, truth: Tensor, sets: tuple[int, ...]) -> float:
    """Return which share of the variance of a property of shadow clients [M, d] within their federations is explained
    in federations that the decoder did not learn from; 0 and less where it explains nothing."""
    target = less_group_means(truth.double(), found.federation)
    mine = [less_group_means(part, found.federation) for part in _features(found.shadow, sets)]
    _, tried = _predicted(mine, [part[:1] for part in mine], target, found.federation)
    return 1 - float((tried - target).square().sum().item()) / float(target.square().sum().item())


def level(found: ShadowClients, truth: Tensor, sets: tuple[int, ...]) -> Tensor:
    """Return the mean over the attacked clients of their property [d], as :func:`deviations` does."""
    mean = truth.double().mean(0)
    mine, theirs = _features(found.shadow, sets), _features(found.attacked, sets)
    centre = [part.mean(0) for part in mine]
    mine = [part - middle for part, middle in zip(mine, centre, strict=True)]
    theirs = [part - middle for part, middle in zip(theirs, centre, strict=True)]
    answer, _ = _predicted(mine, theirs, truth.double() - mean, found.federation)
    return mean + answer.mean(0)


def _predicted(mine: list[Tensor], theirs: list[Tensor], target: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return predictions for attacked clients [S, d], and for shadow clients [M, d] by regressions that did not learn
    from their federation: of the set of features ``mine`` [M, f] and ``theirs`` [S, f] that does best."""
    cuts = list(GroupKFold(min(_FOLDS, len(torch.unique(groups)))).split(target, groups=groups))
    best, answer, tried = -np.inf, target[:0], target
    for inputs, asked in zip(mine, theirs, strict=True):
        spread = inputs.square().mean(0).sqrt().clamp(min=_TINY)
        # Nobody is further out than shadow clients are: a line says nothing of what lies beyond.
        outer = (inputs / spread).abs().amax(0)
        rows, within = inputs / spread, torch.minimum(asked / spread, outer).maximum(-outer)
        chosen = RidgeCV(PENALTIES, cv=cuts, scoring="neg_mean_squared_error", fit_intercept=False)
        chosen.fit(rows.numpy(), target.numpy())
        if chosen.best_score_ > best:
            best = chosen.best_score_
            answer = torch.from_numpy(chosen.predict(within.numpy())).reshape(len(asked), -1)
            again = Ridge(chosen.alpha_, fit_intercept=False)
            unseen = cross_val_predict(again, rows.numpy(), target.numpy(), cv=cuts)
            tried = torch.from_numpy(unseen).reshape(target.shape)
    return answer, tried


def _kept(tried: Tensor, target: Tensor, groups: Tensor, answer: Tensor) -> float:
    """Return which share of the predictions ``answer`` [S, d] is kept, given predictions [M, d] for federations that
    were left out, and what was true of these [M, d]."""
    count = int(groups.max().item()) + 1
    sizes = torch.bincount(groups, minlength=count)
    spread, meets = (
        torch.zeros(count, dtype=torch.double).index_add_(0, groups, (tried * other).sum(1)) / sizes
        for other in (tried, target)
    )
    best = meets / spread.clamp(min=_TINY)
    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted.fit(spread.numpy(), best.numpy(), sample_weight=(spread * sizes).clamp(min=_TINY).numpy())
    seen = answer.square().sum(1).mean().item()
    # Nor are predictions further apart than any that were tried.
    most = min(1.0, math.sqrt(float(spread.max().item()) / max(seen, _TINY)))
    return most * float(fitted.predict([seen])[0])


def _features(uploads: Uploads, sets: tuple[int, ...]) -> list[Tensor]:
    sketches = uploads.sketches.double()
    directions = sketches / sketches.norm(dim=1, keepdim=True).clamp(min=_TINY)
    return [(sketches, directions, uploads.statistics.double())[one] for one in sets]
