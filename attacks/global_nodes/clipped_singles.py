"""Measurements of single nodes behind a clip of every coordinate, as in FedGT's own defense.

A coordinate ``mu = r + w (h - r)`` is sent as ``clip(mu) + noise``. Given the prior of rows, ``h = W_x x + W_p p + b``
has a known mean and variance in every coordinate, and so has mu: the clip's linear response
(:mod:`fglaudit.adversary.uploads.clipped_uploads`, Bussgang's theorem) turns what was sent into mu with an error of
known size,

    mu' = E mu + (sent - E clip(mu)) / slope,    variance of its error = (rest + noise^2) / slope^2,

which is small where mu lies well inside the bound and large where the clip left only a sign. Coordinates are weighted
by the inverse of their errors before the encoding is projected out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.uploads.clipped_uploads import UploadClip

_LEAST_SLOPE = 1e-6


@dataclass(frozen=True)
class Layer:
    """The input layer of the clients behind U global nodes.

    Attributes:
        features: W_x [U, F, d].
        encoding: W_p [U, p, d].
        bias: b [U, d].
    """

    features: Tensor
    encoding: Tensor
    bias: Tensor

    def images(self, chance: Tensor, encoding_variance: float) -> tuple[Tensor, Tensor]:
        """Return mean and variance of h [U, d] for rows whose entries are ones with probability ``chance`` [F].

        Args:
            encoding_variance: of an entry of p, whose mean is 0.
        """
        mean = torch.einsum("f,ufd->ud", chance, self.features) + self.bias
        spread = torch.einsum("f,ufd->ud", chance * (1 - chance), self.features.square())
        return mean, spread + encoding_variance * self.encoding.square().sum(1)


def unclipped(
    received: Tensor, uploaded: Tensor, weight: Tensor, image: tuple[Tensor, Tensor], clip: UploadClip, std: float
) -> tuple[Tensor, Tensor]:
    """Return mu' and the deviation of its error [U, d].

    Args:
        received, uploaded: r, and what was sent [U, d].
        weight: w [U, 1].
        image: mean and variance of h [U, d].
        std: of the noise on an entry.
    """
    mean, spread = received + weight * (image[0] - received), weight * image[1].sqrt()
    response = clip.response(mean, spread.clamp(min=1e-12))
    slope = response.slope.clamp(min=_LEAST_SLOPE)
    error = (response.rest + std**2).sqrt() / slope
    return mean + (uploaded - response.mean) / slope, error


def weighted(values: Tensor, error: Tensor, layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Return measurements [U, M], their matrix [U, M, F] and deviation [U] without what the encoding can add.

    Args:
        values: h as it was measured, without the bias [U, d].
        error: deviation of its error [U, d].
    """
    size = error.median(1, keepdim=True).values.clamp(min=1e-12)
    scale = size / error.clamp(min=1e-6 * size)
    encoding = layer.encoding * scale[:, None]
    basis = torch.linalg.qr(encoding.mT, mode="complete").Q[:, :, encoding.shape[1] :]
    projected = torch.einsum("ud,udm->um", values * scale, basis)
    matrix = torch.einsum("ufd,udm->umf", layer.features * scale[:, None], basis)
    return projected, matrix, size.squeeze(1)
