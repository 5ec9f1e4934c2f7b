"""What a decoder reads of an upload: a sketch of each layer's change, and statistics that no order of units alters.

Hidden units of two models have no common order, unless both started from the same one: shadow clients here start from
the very models that the attacked clients received, so that changes can be compared entry by entry. The **sketch** of a
layer is its change itself where that is short, else a CountSketch (Charikar, Chen and Farach-Colton, ICALP 2002):
every entry is added, with a random sign, to one of some thousand places, which keeps inner products. The
**statistics** are sizes, sparsity and spectrum of a layer's change: sorted, so invariant to the order of units (after
Ganju et al., CCS 2018, section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.uploads.means import ModelRound
from fglaudit.nn.weights import unflatten
from fglaudit.structure import Training
from fglaudit.view import View

_PLACES = 1024
_QUANTILES = 16
_VALUES = 8
"""Singular values that are read of a layer."""
_NARROW = 128
"""Side up to which a layer's spectrum is computed."""
_TINY = 1e-12
_ROUNDED = 1e-6
"""Share of the trace below which an eigenvalue of a matrix in float32 is rounding, another one on other hardware."""


@dataclass(frozen=True)
class UpdateReader:
    """Turns rounds of models into features, the same way for all clients.

    Attributes:
        view: whose layout and training are read.
        places, signs: of every entry of a model in the sketch [D].
        width: numbers in the sketch.
    """

    view: View
    places: Tensor
    signs: Tensor
    width: int

    @staticmethod
    def of(view: View, rng: torch.Generator) -> UpdateReader:
        """Return a reader whose sketch is drawn by ``rng``."""
        places, signs, width = [], [], 0
        for shape in view.public.layout.values():
            size = math.prod(shape)
            short = size <= _PLACES
            places.append(width + (torch.arange(size) if short else torch.randint(_PLACES, (size,), generator=rng)))
            signs.append(torch.ones(size) if short else torch.randint(2, (size,), generator=rng) * 2.0 - 1)
            width += min(size, _PLACES)
        return UpdateReader(view, torch.cat(places), torch.cat(signs), width)

    def sketch(self, models: ModelRound) -> Tensor:
        """Return the sketches [K, width] of K clients' changes."""
        change = self._change(models)
        places, signs = self.places.to(change.device), self.signs.to(change)
        return change.new_zeros(len(change), self.width).index_add_(1, places, change * signs)

    def statistics(self, models: ModelRound) -> Tensor:
        """Return the statistics [K, s] of K clients' changes."""
        layers = unflatten(self._change(models), self.view.public.layout).values()
        return torch.cat([of_layer(layer.flatten(2) if layer.dim() > 2 else layer) for layer in layers], 1)

    def _change(self, models: ModelRound) -> Tensor:
        """Return changes [K, D] without what weight decay alone does to a model in steps of SGD."""
        change, stated = models.change.float(), self.view.public.structure.get(Training)
        if stated is None or stated.optimizer != "sgd" or not stated.weight_decay:
            return change
        left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
        return change - (left - 1) * models.received.float()


def of_layer(change: Tensor) -> Tensor:
    """Return the statistics of one layer's changes [K, in, out] or [K, D]."""
    flat = change.flatten(1)
    largest = flat.abs().amax(1, keepdim=True).clamp(min=_TINY)
    one, two = (flat / largest).abs().sum(1, keepdim=True), (flat / largest).norm(dim=1, keepdim=True)
    parts = [(largest * two).clamp(min=_TINY).log(), (one.clamp(min=_TINY) / two.clamp(min=_TINY)).log()]
    if change.dim() == 3:
        parts += [_spread(change.norm(dim=2)), _spread(change.norm(dim=1))]
        if min(change.shape[1:]) <= _NARROW:
            gram = change.mT @ change if change.shape[2] <= change.shape[1] else change @ change.mT
            trace = gram.diagonal(dim1=1, dim2=2).sum(1).clamp(min=_TINY)[:, None, None]
            # Not eigvalsh: without vectors it is another algorithm on the CPU than on devices.
            values = torch.linalg.eigh(gram / trace).eigenvalues
            parts.append(values.flip(1)[:, :_VALUES].clamp(min=_ROUNDED).log())
    return torch.cat(parts, 1)


def _spread(norms: Tensor) -> Tensor:
    """Return what lengths [K, n] say in whatever order: their quantiles, in units of the largest, how many there are of
    a notable size, and over how many their squares are spread."""
    norms = norms / norms.amax(1, keepdim=True).clamp(min=_TINY)
    at = torch.linspace(0, 1, _QUANTILES, device=norms.device)
    notable = [(norms > share).double().mean(1).clamp(min=1 / norms.shape[1]).log() for share in (1e-3, 1e-2, 1e-1)]
    effective = norms.square().sum(1).square() / norms.pow(4).sum(1).clamp(min=_TINY)
    total = norms.square().sum(1).clamp(min=_TINY)
    columns = torch.stack([*(n.to(norms) for n in notable), effective.clamp(min=_TINY).log(), total.log()], 1)
    return torch.cat([norms.quantile(at, dim=1).T, columns], 1)
