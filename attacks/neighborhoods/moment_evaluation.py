"""Moments of neighbourhoods that a FedGAT client evaluates from its messages, for weights it chooses (equation 12).

An operator ``D(b)`` is linear in the weights b. In the matrix variant ``F^(n) = K1' D^n K1`` and ``E^(n) = K1' D^n
K2``; in the vector variant D is ``b' M2 mask4`` and its powers are elementwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks.neighborhoods.embedding_assignment import FIRST_ROUNDS
from fglaudit.attacks.neighborhoods.modelled_facts import allowed_in_assignment
from fglaudit.attacks.neighborhoods.planting import masked_payload, plant_masked_pairs
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows, missing_messages
from fglaudit.attacks.neighborhoods.row_assignment import assign_rows
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Embeddings, MaskedMatrices, MaskedVectors, ModelUpdate, Payload, RawFeatures
from fglaudit.view import View

_NUMBERS_AT_ONCE = 1 << 24
_NOTHING = 1e-18
"""Sum of squared lengths below which all rows of a neighbourhood are zero: what float32 leaves of masks is below it."""


@dataclass(frozen=True)
class Evaluator(ABC):
    """Evaluates the moments of P neighbourhoods of ``size`` rows."""

    size: int

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the tensors."""

    @abstractmethod
    def weigh(self, b: Tensor) -> Tensor:
        """Return the operators [P, q, ...] of weights ``b`` [P, q, F]."""

    @abstractmethod
    def mixed(self, along: Tensor, toward: Tensor, order: int) -> Tensor:
        """Return ``sum_j (a' h_j)^order (b' h_j) h_j`` [P, q, F].

        Args:
            along: operators of q weights b [P, q, ...].
            toward: operator of one a [P, 1, ...].
        """

    @abstractmethod
    def spread(self, toward: Tensor) -> Tensor:
        """Return the root of the power sum ``F^(2)`` of one operator ``toward`` [P]."""

    @abstractmethod
    def moments(self, operators: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of orders 1 and 2, each [P, q, F]."""

    @abstractmethod
    def energy(self) -> Tensor:
        """Return ``sum_j |h_j|^2`` [P]."""

    @abstractmethod
    def center(self) -> Tensor:
        """Return ``F^(1) / b`` for weights b1 = e_s, b2 = 0: the row of the node itself [P, F]."""

    @abstractmethod
    def at(self, index: Tensor) -> Evaluator:
        """Return the evaluator of some of the neighbourhoods."""


@dataclass(frozen=True)
class _Matrices(Evaluator):
    m1: Tensor  # [P, F, 2b, 2b] as sent
    m2: Tensor  # [P, F, 2b, 2b] as sent
    k1: Tensor  # [P, 2b]
    k2: Tensor  # [P, 2b, F]

    @property
    def device(self) -> torch.device:
        return self.k2.device

    def weigh(self, b: Tensor) -> Tensor:
        flat, width = self.m2.flatten(2), self.m2.shape[-1]
        total = torch.zeros(*b.shape[:2], width**2, dtype=torch.double, device=b.device)
        step = max(1, _NUMBERS_AT_ONCE // (len(flat) * width**2))
        for low in range(0, flat.shape[1], step):
            total += b[..., low : low + step] @ flat[:, low : low + step].double()
        return total.view(*b.shape[:2], width, width)

    def mixed(self, along: Tensor, toward: Tensor, order: int) -> Tensor:
        row = torch.einsum("pa,pqab->pqb", self.k1, along)
        for _ in range(order):
            row = row @ toward.squeeze(1)
        return row @ self.k2

    def spread(self, toward: Tensor) -> Tensor:
        row = self.k1[:, None] @ toward[:, 0] @ toward[:, 0]
        return (row @ self.k1[..., None]).flatten().abs().sqrt()

    def moments(self, operators: Tensor) -> tuple[Tensor, Tensor]:
        once = torch.einsum("pa,pqab->pqb", self.k1, operators)
        twice = torch.einsum("pqa,pqab->pqb", once, operators)
        return once @ self.k2, twice @ self.k2

    def energy(self) -> Tensor:
        return self.k2.square().sum((1, 2)) / 2

    def center(self) -> Tensor:
        k1 = self.k1.to(self.m1)
        return ((self.m1 @ k1[:, None, :, None]).squeeze(3) @ k1[..., None]).squeeze(2).double() / self.size

    def at(self, index: Tensor) -> Evaluator:
        if len(index) == len(self.m2):
            return self
        return _Matrices(self.size, self.m1[index], self.m2[index], self.k1[index], self.k2[index])


@dataclass(frozen=True)
class _Vectors(Evaluator):
    own: Tensor  # (M1 mask4)' [P, 2b, F]
    columns: Tensor  # (M2 mask4)' [P, 2b, F]
    k1: Tensor  # [P, 2b, F]
    k3: Tensor  # [P, 2b]

    @property
    def device(self) -> torch.device:
        return self.k3.device

    def weigh(self, b: Tensor) -> Tensor:
        return b @ self.columns.mT

    def mixed(self, along: Tensor, toward: Tensor, order: int) -> Tensor:
        return (along * toward**order) @ self.k1 / 2

    def spread(self, toward: Tensor) -> Tensor:
        return (toward[:, 0].square() * self.k3).sum(1).abs().div(2).sqrt()

    def moments(self, operators: Tensor) -> tuple[Tensor, Tensor]:
        return operators @ self.k1 / 2, operators.square() @ self.k1 / 2  # every u_j has two ones

    def energy(self) -> Tensor:
        return (self.columns * self.k1).sum((1, 2)) / 2

    def center(self) -> Tensor:
        return (self.k3[:, None] @ self.own).squeeze(1) / (2 * self.size)

    def at(self, index: Tensor) -> Evaluator:
        return _Vectors(self.size, self.own[index], self.columns[index], self.k1[index], self.k3[index])


def evaluators(view: View, device: torch.device) -> Iterator[tuple[Tensor, Evaluator]]:
    """Yield nodes [P] and their evaluator, in chunks of bounded memory, for every masked message in ``view``."""
    for batch in view.messages.of(MaskedMatrices):
        matrices = batch.payload
        assert isinstance(matrices, MaskedMatrices)
        step = max(1, _NUMBERS_AT_ONCE // max(1, matrices.m2[:1].numel()))
        for low in range(0, len(matrices.node), step):
            part = slice(low, low + step)
            m1, m2, k1, k2 = (field[part].to(device) for field in (matrices.m1, matrices.m2, matrices.k1, matrices.k2))
            yield matrices.node[part], _Matrices(m2.shape[-1] // 2, m1, m2, k1.double(), k2.double())
    for batch in view.messages.of(MaskedVectors):
        vectors = batch.payload
        assert isinstance(vectors, MaskedVectors)
        fields = (vectors.k2, vectors.m1, vectors.m2, vectors.k1, vectors.k3)
        mask, m1, m2, k1, k3 = (field.to(device).double() for field in fields)
        yield vectors.node, _Vectors(k1.shape[1] // 2, mask.mT @ m1, mask.mT @ m2, k1, k3)


@dataclass(frozen=True)
class MomentAttack(Attack):
    """Recovers the rows of every neighbourhood from its exact moments and assigns them to nodes."""

    consumes: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices, MaskedVectors)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (RawFeatures, Embeddings, ModelUpdate)
    first_rounds: ClassVar[int | None] = FIRST_ROUNDS
    metric: ClassVar[str] = "exact_rate"

    def recover(self, view: View, nodes: Tensor, evaluator: Evaluator, rng: torch.Generator) -> NeighborhoodRows:
        """Return the rows of the neighbourhoods of ``nodes`` [P], not yet assigned to nodes."""
        raise NotImplementedError

    def models(self, fact: Fact) -> bool:
        """Noise on the messages themselves is not modelled: moments are taken as exact."""
        return allowed_in_assignment(fact)

    def unsupported(self, view: View) -> str | None:
        return missing_messages(view, MaskedMatrices, MaskedVectors)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        parts = [part for each in evaluators(view, device) for part in self._parts(view, *each, rng)]
        return assign_rows(view, NeighborhoodRows.join(parts, view.public.num_features), rng)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_masked_pairs(view, rng, masked_payload(view))

    def _parts(
        self, view: View, nodes: Tensor, evaluator: Evaluator, rng: torch.Generator
    ) -> Iterator[NeighborhoodRows]:
        """Yield the rows of ``nodes`` [P]. Neighbourhoods whose rows are all zero have no moments to be solved: those
        of rounding errors would fit rows of any length."""
        nothing = evaluator.energy() <= _NOTHING
        filled, empty = (mask.nonzero().squeeze(1) for mask in (~nothing, nothing))
        if len(filled):
            yield self.recover(view, nodes[filled.cpu()], evaluator.at(filled), rng)
        if len(empty):
            rows = torch.zeros(len(empty), evaluator.size, view.public.num_features)
            exact = torch.zeros(rows.shape[:2])
            yield NeighborhoodRows.of(nodes[empty.cpu()], rows, exact == 0, exact, evaluator.at(empty).center().cpu())
