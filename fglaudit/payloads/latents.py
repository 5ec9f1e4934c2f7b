"""nFedGNN: latents of users, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from fglaudit.payloads.base import Payload


@dataclass(frozen=True)
class Latents(Payload):
    """nFedGNN: first-layer latents of users, one user (one node) per message; the sender is the user.

    Attributes:
        values: ``W_i x_i`` [P, D]; D is heads x hidden for attention.
    """

    values: Float[Tensor, "messages dimensions"]


@dataclass(frozen=True)
class LatentGradients(Payload):
    """nFedGNN: gradient of the server's loss with respect to the receiver's latent.

    Attributes:
        values: [P, D].
    """

    values: Float[Tensor, "messages dimensions"]
