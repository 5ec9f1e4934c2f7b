"""First-layer weights of N users with one feature row each, restricted to the columns that the row touches.

User i holds ``W_i`` [F, D] and sends ``x_i W_i``. The gradient of a loss with respect to ``W_i`` is ``x_i g_i'``: the
rows of ``W_i`` where ``x_i`` is zero are never read and their gradient is zero, so leaving them out changes no message
of the user. Stored are the rows at the non-zero entries of all users, ``[e, D]`` for e entries in the whole graph
(Cora: 49216 instead of 2708 x 1433).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.errors import require_known, require_least
from fglaudit.federated.training import OPTIMIZERS
from fglaudit.sparse_tensors import csr

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, those of its paper and of torch."""
_CHUNK = 2**18  # numbers that one update touches at a time: its temporaries stay in the cache


@dataclass(frozen=True)
class Stepping:
    """How a gradient changes weights.

    Attributes:
        optimizer: "adam" (moments kept over rounds) or "sgd".
        weight_decay: L2 penalty ``weight_decay / 2 ||W||^2``, as part of the gradient.
    """

    optimizer: str
    learning_rate: float
    weight_decay: float

    def __post_init__(self) -> None:
        require_known(self, optimizer=OPTIMIZERS)
        require_least(self, learning_rate=0, weight_decay=0)

    def torch_optimizer(self, weights: list[Tensor]) -> torch.optim.Optimizer:
        """Return the same optimizer for whole tensors."""
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.SGD
        return kind(weights, lr=self.learning_rate, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class Entries:
    """The non-zero entries of a feature matrix [N, F] in row-major order: ``x[user, column] = value`` [e].

    Attributes:
        start: [N + 1], where the entries of each user begin.
    """

    user: Tensor
    column: Tensor
    value: Tensor
    start: Tensor

    @staticmethod
    def of(x: Tensor) -> Entries:
        """Return the entries of ``x`` [N, F]."""
        user, column = x.nonzero(as_tuple=True)
        start = torch.zeros(len(x) + 1, dtype=torch.long, device=x.device)
        torch.cumsum(torch.bincount(user, minlength=len(x)), 0, out=start[1:])
        return Entries(user, column, x[user, column], start)

    @staticmethod
    def idle(x: Tensor) -> Entries:
        """Return one user with every column of ``x`` [N, F] and the value 0: only weight decay changes its weights."""
        columns = torch.arange(x.shape[1], device=x.device)
        start = torch.tensor([0, x.shape[1]], device=x.device)
        return Entries(torch.zeros_like(columns), columns, x.new_zeros(x.shape[1]), start)

    @property
    def num_users(self) -> int:
        return len(self.start) - 1

    def dropped(self, share: float, rng: torch.Generator) -> Tensor:
        """Return the values [e] after dropout with probability ``share``; the others are scaled by 1 / (1 - share)."""
        if share == 0:
            return self.value
        kept = torch.rand(len(self.value), generator=rng, device=self.value.device) >= share
        return self.value * kept / (1 - share)

    def products(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return ``sum over entries e of user i of values[e] rows[e]`` as [N, D]; values [e], rows [e, D]."""
        return csr(self.start, torch.arange(len(values), device=values.device), values, len(values)) @ rows


class UserWeights:
    """The touched rows of all users' weights and the state of their optimizers.

    Args:
        entries: where the users' features are not zero.
        rows: first weights at the entries [e, D]; changed in place from here on.
    """

    def __init__(self, entries: Entries, rows: Tensor, stepping: Stepping) -> None:
        self.entries = entries
        self.rows = rows
        self._stepping = stepping
        self._steps = torch.zeros(entries.num_users, dtype=torch.long, device=rows.device)
        if stepping.optimizer == "adam":
            self._mean, self._square = torch.zeros_like(rows), torch.zeros_like(rows)

    def latents(self, values: Tensor) -> Tensor:
        """Return ``x_i W_i`` [N, D] for features with the given ``values`` [e]."""
        return self.entries.products(values, self.rows)

    def step(self, values: Tensor, gradients: Tensor, active: Tensor | None = None) -> None:
        """Let users take one step on the loss whose gradient by their latent is ``gradients`` [N, D].

        Args:
            values: the features [e] that the latents were computed from.
            active: mask [N] of the users that step; the others keep weights and optimizer as they are. None: all.
        """
        self._steps += 1 if active is None else active.long()
        for part in self._parts(active):
            rows, users = self.rows[part], self.entries.user[part]
            gradient = (values[part].unsqueeze(1) * gradients[users]).add_(rows, alpha=self._stepping.weight_decay)
            change = gradient if self._stepping.optimizer == "sgd" else self._adam(part, users, gradient)
            if isinstance(part, slice):
                rows.sub_(change, alpha=self._stepping.learning_rate)
            else:
                self.rows[part] = rows.sub_(change, alpha=self._stepping.learning_rate)

    def _parts(self, active: Tensor | None) -> Iterator[slice | Tensor]:
        """Yield the entries to change, about ``_CHUNK`` numbers at a time."""
        size = max(1, _CHUNK // max(1, self.rows.shape[1]))
        if active is None:
            yield from (slice(low, low + size) for low in range(0, len(self.rows), size))
        else:
            yield from torch.split(active[self.entries.user].nonzero().squeeze(1), size)

    def _adam(self, part: slice | Tensor, users: Tensor, gradient: Tensor) -> Tensor:
        """Return Adam's direction [n, D] for a gradient [n, D] at entries of ``users`` [n]."""
        mean, square = self._mean[part], self._square[part]  # views of a slice, copies of chosen entries
        mean.lerp_(gradient, 1 - BETA_1)
        square.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        if not isinstance(part, slice):
            self._mean[part], self._square[part] = mean, square
        steps = self._steps.to(gradient.dtype)
        correction_1 = (1 - BETA_1**steps)[users].unsqueeze(1)
        correction_2 = (1 - BETA_2**steps).sqrt()[users].unsqueeze(1)
        return (mean / correction_1).div_(square.sqrt().div_(correction_2).add_(EPSILON))
