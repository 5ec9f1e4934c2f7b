"""What protocols and attacks hand over: a training run's outcome, rebuilt rows, inferences, planted problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fglaudit.view import View

PREDICTED_CLASSES = "predicted-classes"
"""In :attr:`Trained.truth`: the class that every node's own row predicts [N], where nodes report it. A guess that is
told them is the most that reports say of rows (:mod:`fglaudit.quantities.rows.class_alone`)."""


@dataclass(frozen=True)
class Trained:
    """The outcome of a training run.

    Attributes:
        accuracy: test accuracy of every client after every round [rounds, K]; NaN for clients without test nodes.
        accuracy_global: accuracy over the whole test set after every round [rounds].
        round: the round whose accuracy counts (an index into the above; -1 is the last).
        notes: warnings that a reader of the result must see.
        weights: final weights by name, leading axis K where clients differ.
        layout: shape of each weight in the order of ``ModelUpdate.vector``.
        truth: facts of this run that are true answers to what an attack infers (e.g. which global node each node was
            in), by name. They go to the scorer alone, never into a view.
        series: one figure per round [rounds] by name, finite, which stands in the record beside the accuracies, such as
            ``training_loss`` and ``validation_loss``.
        matrices: a matrix per round [rounds, K, K] by name, of what clients are to one another. Not in the record, as
            it would grow with the square of the clients.
        right: which test places the models of ``round`` classify correctly [T], in order of clients, then of a client's
            nodes (ascending), then of samples; None where the protocol does not say. What two settings get right is
            compared node by node.
    """

    accuracy: Tensor
    accuracy_global: Tensor
    weights: Mapping[str, Tensor]
    layout: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    round: int = -1
    notes: tuple[str, ...] = ()
    truth: Mapping[str, Tensor] = field(default_factory=dict)
    series: Mapping[str, Tensor] = field(default_factory=dict)
    matrices: Mapping[str, Tensor] = field(default_factory=dict)
    right: Tensor | None = None

    @staticmethod
    def of_stages(stages: Sequence[Trained]) -> Trained:
        """Return the outcome of trainings that went on one from another: the last one's, with the accuracies of all,
        and the series that all have."""
        common = [name for name in stages[-1].series if all(name in stage.series for stage in stages)]
        return replace(
            stages[-1],
            accuracy=torch.cat([stage.accuracy for stage in stages]),
            accuracy_global=torch.cat([stage.accuracy_global for stage in stages]),
            series={name: torch.cat([stage.series[name] for stage in stages]) for name in common},
        )

    @property
    def client_mean(self) -> float:
        """Mean over the clients that have test nodes, the number most papers print."""
        return float(self.accuracy[self.round].nanmean().item())

    @property
    def whole_test_set(self) -> float:
        return float(self.accuracy_global[self.round].item())


@dataclass(frozen=True)
class Reconstruction:
    """Rebuilt feature rows.

    Attributes:
        rows: [R, F].
        nodes: the attack's own assignment to global node ids [R]; -1 where it does not know whose row it is.
        confidence: [R] in [0, 1], the attack's own estimate that the row is exact.
        proven: [R]; True where linear or integer algebra determines the row without a prior (rule 10).
        claimed: [R]; True where the attack asserts that the row is someone's features up to scale; the others are
            guesses. None where it does not tell the two apart. Wrong claims are counted (``false_claim_rate``).
    """

    rows: Tensor
    nodes: Tensor
    confidence: Tensor
    proven: Tensor | None = None
    claimed: Tensor | None = None


@dataclass(frozen=True)
class Inference:
    """Any other result.

    Attributes:
        quantity: what is inferred, a name of ``fglaudit.quantities.QUANTITIES``, which says what subjects and estimates
            are.
        subjects: what the estimates are about: node or client ids [S], or pairs of them [S, 2].
        estimate: [S] or [S, D].
    """

    quantity: str
    subjects: Tensor
    estimate: Tensor


@dataclass(frozen=True)
class Planted:
    """A self-test problem: a view of the cell's shapes with the answer in plain sight, and that answer (rule 6).

    For an inference ``nodes`` are the subjects and ``rows`` the true values, shaped as in :class:`Inference`.

    Attributes:
        metric: of rows, in which figure the attack must succeed: "exact_rate", or "cosine" where its messages tell what
            a row is expected to be, which is never the row itself.
    """

    view: View
    rows: Tensor
    nodes: Tensor
    metric: Literal["exact_rate", "cosine"] = "exact_rate"
