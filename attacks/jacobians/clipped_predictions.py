"""Predictions of GFL-APPNP's model from hidden representations that were clipped to a norm before they were sent.

A clip takes the length of a message and leaves its direction, so the node's own part of its logits was ``a`` times as
long and its neighbours' sum about ``b`` times as long, with unknown a, b >= 1. Neither is known better than the other:
predictions are averaged over both, each spread evenly in its logarithm over the same range. Lengths that everybody lost
alike cancel where classes are compared; what is left open is how sure a prediction is, and how much of it is the
node's own. A message that is shorter than the bound was not clipped, and has the factor 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.adversary.modelled import message_clip
from fglaudit.attacks.jacobians.encoder import finite_batches
from fglaudit.facts import Clipped, Fact
from fglaudit.payloads import HiddenRepresentations
from fglaudit.view import View

_FACTORS = tuple(2 ** (step / 3) for step in range(7))
"""By which representations, or sums of them, may have been shortened: 1 to 4."""


def scaling_clip(fact: Fact) -> bool:
    """Whether ``fact`` scales whole hidden representations down to a norm, which keeps their directions."""
    return isinstance(fact, Clipped) and fact.norm != "elementwise" and message_clip(fact, HiddenRepresentations)


def maybe_clipped(view: View, rounds: set[int], noise: float) -> Tensor:
    """Return which nodes [N] sent a representation in ``rounds`` that may have been clipped, as far as ``view`` has
    their messages.

    Args:
        noise: standard deviation of the noise on an entry.
    """
    may = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    clip = KnownClip.of(view, HiddenRepresentations)
    if clip is None:
        return may
    for batch in finite_batches(view, HiddenRepresentations):
        if batch.round in rounds:
            (values,) = batch.payload.tensors().values()
            may[batch.senders] |= ~clip.unclipped(values.double(), noise)
    return may


def mean_prediction(own: Tensor, sums: Tensor, clipped: Tensor) -> Tensor:
    """Return class probabilities [N, C], averaged over the lengths that a clip may have taken.

    Args:
        own, sums: the node's part of its logits as it was sent, and its neighbours' [N, C].
        clipped: which nodes' representations may have been clipped [N]; sums are of clipped ones if any is.
    """
    factors = torch.tensor(_FACTORS, dtype=own.dtype)
    lengths = torch.where(clipped[:, None], factors, 1.0)  # [N, K]
    shared = factors if bool(clipped.any()) else torch.ones(1, dtype=own.dtype)
    longer = (lengths[..., None] * own[:, None])[:, :, None]  # [N, K, 1, C]
    probabilities: Tensor = (longer + (shared[:, None] * sums[:, None])[:, None]).softmax(3).mean((1, 2))
    return probabilities
