"""Attacks against feature rows that were randomised before anything was computed from them.

Messages then carry reports. An attack treats them as real-valued rows, with the observer's own reports as its own rows
(:func:`as_sent`), and estimates each node's report. The row behind it is decided by likelihood (:func:`decided`): the
mechanism and its parameters are public, so every entry of a report shifts the prior log odds of that entry by a known
amount. No row is ever proven, since a report is compatible with every row.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.adversary.expected_f1 import best_f1_bits
from fglaudit.adversary.feature_prior import FeaturePrior, feature_prior
from fglaudit.adversary.public_rules import norm_bound
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.privacy.mechanism import clip_rows
from fglaudit.view import FEATURE_ROWS, Noise, View

_AT_UNIT_NORM = 1e-3


def attack_reports(
    attack: Attack, view: View, rng: torch.Generator, device: torch.device
) -> Reconstruction | Inference:
    """Run ``attack`` on ``view``; where rows were randomised, on the reports, and decide the rows behind them."""
    noise = view.public.noise.get(FEATURE_ROWS)
    if noise is None or noise.distribution in attack.reads_noisy_rows:
        return attack.run(view, rng=rng, device=device)
    result = attack.run(as_sent(view), rng=rng, device=device)
    return decided(result, view, noise) if isinstance(result, Reconstruction) else result


def as_sent(view: View) -> View:
    """Return ``view`` in terms of reports; rows known beforehand become their expected reports."""
    if FEATURE_ROWS not in view.public.noise:
        return view
    facts = view.public.defense_parameters
    own = [dataclasses.replace(client, x=x) for client, x in zip(view.own, view.own_inputs, strict=True)]
    x, norm = view.auxiliary.x, facts.get("clip_norm")
    x = (x - facts["offset"]) / facts["factor"] if norm is None else clip_rows(x, norm_bound(view), str(norm).lower())
    messages = {name: other for name, other in view.public.noise.items() if name != FEATURE_ROWS}
    return dataclasses.replace(
        view,
        own=tuple(own),
        auxiliary=dataclasses.replace(view.auxiliary, x=x),
        public=dataclasses.replace(view.public, features=FeatureKind.REAL, noise=messages),
    )


def decided(result: Reconstruction, view: View, noise: Noise) -> Reconstruction:
    """Return the rows with the best expected F1 given the estimated reports, in the data set's own levels."""
    reports = _rescaled(result.rows.double(), _typical_norm(view, noise))
    prior = feature_prior(view, result.nodes)
    if view.public.features is FeatureKind.REAL:
        trust = prior.variance / (prior.variance + noise.std**2)
        rows = prior.mean + trust * (reports - prior.mean)
    else:
        odds = prior.mean.clamp(1e-6, 1 - 1e-6).logit() + log_likelihood_ratios(reports, view, noise, prior)
        bits = best_f1_bits(torch.sigmoid(odds))
        rows = (
            bits / bits.sum(1, keepdim=True).clamp(min=1) if view.public.features is FeatureKind.SCALED_BINARY else bits
        )
    unproven = torch.zeros(len(rows), dtype=torch.bool)
    return Reconstruction(rows.float(), result.nodes, 0.5 * result.confidence, unproven)


def log_likelihood_ratios(reports: Tensor, view: View, noise: Noise, prior: FeaturePrior) -> Tensor:
    """Return the log likelihood ratio of a non-zero entry against a zero one, for ``reports`` [R, F]."""
    facts = view.public.defense_parameters
    if noise.distribution == "multi-bit":
        sign: Tensor = ((reports - facts["center"]) / facts["step"]).clamp(-1, 1)
        return sign * float(facts["bit_epsilon"])
    order = 1 if noise.distribution == "laplace" else 2
    # The level of the ones in a row of typical size.
    level = min(prior.level, norm_bound(view) / max(prior.size, 1.0) ** (1 / order))
    if noise.distribution == "laplace":
        nearer: Tensor = reports.abs() - (reports - level).abs()
        return nearer / noise.scale
    projected: Tensor = reports * level - level**2 / 2
    return projected / noise.std**2


def _typical_norm(view: View, noise: Noise) -> float:
    """Return the typical L2 norm of a report."""
    facts, features = view.public.defense_parameters, view.public.num_features
    if noise.distribution == "multi-bit":
        squares = facts["center"] ** 2 * features + facts["step"] ** 2 * facts["sampled_features"]
    else:
        squares = noise.std**2 * features + norm_bound(view) ** 2
    return float(squares**0.5)


def _rescaled(rows: Tensor, typical: float) -> Tensor:
    """Return reports [R, F] with norm ``typical`` where a protocol had scaled rows down to norm one."""
    unit = (rows.norm(dim=1, keepdim=True) - 1).abs() < _AT_UNIT_NORM
    return torch.where(unit & (typical > 1), rows * typical, rows)
