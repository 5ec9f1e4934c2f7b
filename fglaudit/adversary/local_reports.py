"""Attacks against feature rows that were randomised before anything was computed from them.

Messages then carry reports. An attack treats them as real-valued rows, with the observer's own reports as its own rows
(:func:`as_sent`), and estimates each node's report. The row behind it is decided by likelihood (:func:`decided`): the
mechanism and its parameters are public, so every entry of a report shifts the prior log odds of that entry by a known
amount. No row is ever proven, since a report is compatible with every row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.adversary.modelled import decides
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import FeaturePrior, feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, known_as_used, noise_of_rows, norm_bound, unused_columns
from fglaudit.adversary.running.contained import contained
from fglaudit.facts import MULTI_BIT, ROWS, Additive, Fact, Randomised
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.view import View

_AT_UNIT_NORM = 1e-3
_LARGEST_SQUARE = 1.0
"""Of an entry, for rows that were not clipped."""


def attack_reports(
    attack: Attack, view: View, rng: torch.Generator, device: torch.device
) -> Reconstruction | Inference:
    """Run ``attack`` on ``view``; where rows were randomised, on the reports, and decide the rows behind them."""
    if not runs_on_reports(attack, view.public.facts):
        with contained(attack):
            return attack.run(view, rng=rng, device=device)
    with contained(attack):
        result = attack.run(as_sent(view), rng=rng, device=device)
    return decided(result, view) if isinstance(result, Reconstruction) else result


def runs_on_reports(attack: Attack, facts: Sequence[Fact]) -> bool:
    """Whether rows were randomised, and ``attack`` does not reckon with it itself."""
    return any(_randomises(fact) and not isinstance(fact, attack.reads_noisy_rows) for fact in facts)


def before_reports(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the facts about rows up to the last that randomised them: what reports are made by."""
    last = max((i for i, fact in enumerate(facts) if _randomises(fact)), default=-1)
    return tuple(fact for fact in facts[: last + 1] if fact.target == ROWS)


def _randomises(fact: Fact) -> bool:
    return isinstance(fact, Additive | Randomised) and fact.target == ROWS


def as_sent(view: View) -> View:
    """Return ``view`` in terms of reports; rows known beforehand become their expected reports."""
    noise = noise_of_rows(view)
    if noise is None:
        return view
    own = [dataclasses.replace(client, x=x) for client, x in zip(view.own, view.own_inputs, strict=True)]
    x = known_as_used(view, view.auxiliary.x)
    if isinstance(noise, Randomised) and noise.kind == MULTI_BIT:
        x = (x - noise.parameter("offset")) / noise.parameter("factor")
    made_by = before_reports(view.public.facts)
    rest = tuple(fact for fact in view.public.facts if fact not in made_by)
    return dataclasses.replace(
        view,
        own=tuple(own),
        own_inputs=(),
        auxiliary=dataclasses.replace(view.auxiliary, x=x),
        public=dataclasses.replace(view.public, features=FeatureKind.REAL, facts=rest),
    )


def decided(result: Reconstruction, view: View) -> Reconstruction:
    """Return the rows with the best expected F1 given the estimated reports, in the data set's own levels.

    Where it is not known how reports follow from rows, the reports are returned, and nothing is proven.
    """
    noise = noise_of_rows(view)
    unproven = torch.zeros(len(result.rows), dtype=torch.bool)
    if noise is None or not (isinstance(noise, Additive) or decides(noise)):
        return dataclasses.replace(result, proven=unproven)
    reports = _rescaled(result.rows.double(), _typical_norm(view, noise))
    prior = feature_prior(view, result.nodes)
    unused = unused_columns(view).to(reports.device)
    if view.public.features is FeatureKind.REAL:
        std = noise.std if isinstance(noise, Additive) else float(noise.parameter("std"))
        trust = prior.variance / (prior.variance + std**2)
        rows = prior.mean + torch.where(unused, 0.0, trust * (reports - prior.mean))
    else:
        ratios = log_likelihood_ratios(reports, view, noise, prior)
        odds = prior.mean.clamp(1e-6, 1 - 1e-6).logit() + torch.where(unused, 0.0, ratios)
        bits = best_f1_bits(torch.sigmoid(odds))
        rows = (
            bits / bits.sum(1, keepdim=True).clamp(min=1) if view.public.features is FeatureKind.SCALED_BINARY else bits
        )
    return Reconstruction(rows.float(), result.nodes, 0.5 * result.confidence, unproven)


def log_likelihood_ratios(reports: Tensor, view: View, noise: Additive | Randomised, prior: FeaturePrior) -> Tensor:
    """Return the log likelihood ratio of a non-zero entry against a zero one, for ``reports`` [R, F]."""
    if isinstance(noise, Randomised):
        sign: Tensor = ((reports - noise.parameter("center")) / noise.parameter("step")).clamp(-1, 1)
        return sign * float(noise.parameter("bit_epsilon"))
    clip = clip_of_rows(view)
    order = 1 if clip is not None and clip.norm == "L1" else 2
    # The level of the ones in a row of typical size.
    level = min(prior.level, norm_bound(view) / max(prior.size, 1.0) ** (1 / order))
    if noise.distribution == "laplace":
        nearer: Tensor = reports.abs() - (reports - level).abs()
        return nearer / noise.scale
    projected: Tensor = reports * level - level**2 / 2
    return projected / noise.std**2


def _typical_norm(view: View, noise: Additive | Randomised) -> float:
    """Return the typical L2 norm of a report."""
    features = view.public.num_features
    if isinstance(noise, Randomised):
        squares = noise.parameter("center") ** 2 * features
        squares += noise.parameter("step") ** 2 * noise.parameter("sampled_features")
    else:
        squares = noise.std**2 * features + min(norm_bound(view) ** 2, _LARGEST_SQUARE * features)
    return float(squares**0.5)


def _rescaled(rows: Tensor, typical: float) -> Tensor:
    """Return reports [R, F] with norm ``typical`` where a protocol had scaled rows down to norm one."""
    unit = (rows.norm(dim=1, keepdim=True) - 1).abs() < _AT_UNIT_NORM
    return torch.where(unit & (typical > 1), rows * typical, rows)
