"""Local gradient steps of T clients' two-layer perceptrons at once, compensated by other clients' Jacobians.

Client k minimises the mean cross-entropy of ``softmax(s_k h(x; W_k) + C_k)`` over its rows,
``h(x; W) = relu(x W1) W2``. With residuals ``r_b = softmax - onehot`` the gradient of GFL-APPNP's equation (15b) is
``sum_b r_b (s_k dh(x_b)/dW + dC_k)``.

W1 itself is not updated between two averagings: all steps of client k stay in the span of its own rows and of the
received Jacobian, ``W1_k = W1 - rate (x_k' U + sum_c R_c dC_k[c])``, so only ``x_k W1_k`` [B, H], U [B, H] and R [C]
are tracked. The cost of a step does not depend on the number of features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError
from fglaudit.federated.example_gradients import private_mean
from fglaudit.federated.node_clients import Rows
from fglaudit.interfaces import LocalUpdate
from fglaudit.nn.weights import Layout, unflatten
from fglaudit.structure import Training


class Compensation(Protocol):
    """The others' Jacobians as T clients know them: ``dC_k / dW1`` [T, C, F, H] and ``dC_k / dW2`` [T, C, H, C]."""

    def against(self, x: Tensor) -> Tensor:
        """Return ``x_b' dC_k[c] / dW1`` [T, B, C, H] for rows x [T, B, F]."""
        ...

    def first(self, residuals: Tensor) -> Tensor:
        """Return ``sum_c R_c dC_k[c] / dW1`` [T, F, H] for residuals [T, C]."""
        ...

    def second(self, residuals: Tensor) -> Tensor:
        """Return ``sum_c R_c dC_k[c] / dW2`` [T, H, C]."""
        ...


@dataclass(frozen=True)
class LocalSteps:
    """How clients train between two averagings.

    Attributes:
        steps: gradient steps I.
        rate: learning rate.
        batch_size: rows drawn without replacement for each step; 0, or as many as a client has, for all of them.
        passes: whether each of the I steps is a whole pass over a client's rows in batches, the last one left out if it
            is smaller.
    """

    steps: int
    rate: float
    batch_size: int = 0
    passes: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise FglauditError(f"local_steps must be at least 1; got {self.steps}; 1 averages after every step")
        if self.rate < 0 or self.batch_size < 0:
            raise FglauditError(
                f"learning_rate and batch_size must not be negative; got {self.rate:g} and {self.batch_size};"
                " batch_size: 0 is all rows"
            )

    def training(self) -> Training:
        """Return what attacks may know of it."""
        return Training("sgd", self.rate, local_steps=self.steps)

    def batches(self, present: Tensor, rng: torch.Generator) -> Tensor:
        """Return the weight of every row in every step's mean, [steps or 1, T, B]; all 0 in steps that a client with
        few rows does not take."""
        counts = present.sum(1, keepdim=True)
        if self.batch_size == 0 or self.batch_size >= present.shape[1]:
            return (present / counts).unsqueeze(0)
        order = torch.rand(self.steps, *present.shape, generator=rng).to(present.device)
        rank = torch.where(present, order, 2.0).argsort(2).argsort(2)
        size = counts.clamp(max=self.batch_size)
        if not self.passes:
            return (rank < size) / size
        each = torch.div(counts, size, rounding_mode="floor")
        batch = torch.arange(present.shape[1] // self.batch_size, device=present.device).view(-1, 1, 1, 1)
        low = batch * size
        chosen = (rank >= low) & (rank < low + size) & (batch < each)
        return (chosen / size).transpose(0, 1).flatten(0, 1)

    def run(
        self,
        rows: Rows,
        first: Tensor,
        second: Tensor,
        scale: Tensor,
        offset: Tensor,
        others: Compensation | None,
        rng: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Train.

        Args:
            first, second: the models to start from, [T, F, H] and [T, H, C].
            scale: s_k [T].
            offset: C_k [T, C].
            others: dC_k; None where there is none.
            rng: draws the batches.

        Returns:
            The models after the last step, of the same shapes.
        """
        weight = self.batches(rows.present, rng).to(first).unsqueeze(3)
        start = rows.x @ first
        gram = rows.x @ rows.x.transpose(1, 2)
        s = scale.view(-1, 1, 1)
        jacobian = others.against(rows.x) if others is not None else None
        pulled = torch.zeros_like(start)
        residuals = torch.zeros_like(offset)
        w2 = second
        for step in range(max(self.steps, len(weight))):
            moved = gram @ pulled
            if jacobian is not None:
                moved = moved + torch.einsum("tc,tbch->tbh", residuals, jacobian)
            before = start - self.rate * moved
            active = before.relu()
            logits = s * (active @ w2) + offset.unsqueeze(1)
            r = (logits.softmax(2) - rows.target) * weight[min(step, len(weight) - 1)]
            total = r.sum(1)
            pulled = pulled + s * (r @ w2.transpose(1, 2)) * (before > 0)
            change = s * (active.transpose(1, 2) @ r)
            if others is not None:
                change = change + others.second(total)
            w2 = w2 - self.rate * change
            residuals = residuals + total
        moved = rows.x.transpose(1, 2) @ pulled
        if others is not None:
            moved = moved + others.first(residuals)
        return first - self.rate * moved, w2

    def run_private(
        self, rows: Rows, models: Tensor, layout: Layout, update: LocalUpdate, rng: torch.Generator
    ) -> Tensor:
        """Train without compensation on gradients after the defense's ``update``; return the models [T, D].

        Noise on W1 leaves the span of the rows, so W1 itself is updated.

        Args:
            models: the models to start from [T, D].
            rng: draws the batches.
        """
        weight = self.batches(rows.present, rng)
        labels = rows.target.argmax(2)

        def losses(vectors: Tensor) -> Tensor:
            first, second = unflatten(vectors, layout).values()
            outputs = (rows.x @ first).relu() @ second
            return functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)

        for step in range(max(self.steps, len(weight))):
            batch = weight[min(step, len(weight) - 1)] > 0
            models = models - self.rate * private_mean(losses, models, batch, update)
        return models
