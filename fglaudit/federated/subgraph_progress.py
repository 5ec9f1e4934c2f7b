"""Accuracy of K models after every round, and the models of the round with the best validation accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.subgraph_training import SubgraphModels
from fglaudit.federated.training import accuracies
from fglaudit.interfaces import Trained
from fglaudit.nn.weights import unflatten


class Progress:
    """Tests models and keeps the best; without any validation nodes the last ones."""

    def __init__(self, models: SubgraphModels) -> None:
        self._models = models
        inputs = models.inputs
        self._validated = inputs.val.sum(1)
        self._correct: list[Tensor] = []
        self._best = torch.full((), -1.0, device=inputs.labels.device)
        self._chosen_round = torch.zeros((), dtype=torch.long, device=inputs.labels.device)
        self._chosen = models.vectors.clone()
        self._right = torch.zeros_like(inputs.test)
        self._global_nodes = models.global_nodes
        self._clusters: list[Tensor] = []

    def test(self) -> None:
        """Test the current models on every client's validation and test nodes."""
        models, inputs = self._models, self._models.inputs
        correct = models.correct()
        share = (correct & inputs.val).sum(1) / self._validated.clamp(min=1)
        score = share.sum() / (self._validated > 0).sum().clamp(min=1)
        better = (score > self._best) | (self._validated.sum() == 0)
        self._best = torch.where(better, score, self._best)
        self._chosen_round = torch.where(better, len(self._correct), self._chosen_round)
        self._chosen = torch.where(better, models.vectors, self._chosen)
        self._right = torch.where(better, correct, self._right)
        self._correct.append((correct & inputs.test).sum(1))

    def keep_clustering(self) -> None:
        """Store the global nodes and the nodes assigned to each, before this round's upload.

        ``finish`` returns as ``truth`` the last global nodes [K, g, d] and every round's nearest global node of every
        node [T, K, n], -1 for padding.
        """
        self._clusters.append(self._models.clusters().to(torch.int16))
        self._global_nodes = self._models.global_nodes

    @property
    def clusters(self) -> Tensor:
        """The nearest global node of every node [K, n], as of :meth:`keep_clustering`; -1 for padding."""
        return self._clusters[-1]

    def finish(self, notes: tuple[str, ...] = ()) -> Trained:
        """Return the outcome.

        Raises:
            FglauditError: if training did not stay finite.
        """
        models, inputs = self._models, self._models.inputs
        if not bool(torch.isfinite(self._chosen).all()):
            raise FglauditError("training must stay finite; the weights are not; lower the learning rate")
        accuracy, accuracy_global = accuracies(self._correct, inputs.test.sum(1))
        weights = {name: weight.cpu() for name, weight in unflatten(self._chosen, models.layout).items()}
        truth = {}
        if self._clusters:
            truth = {"global_nodes": self._global_nodes.cpu(), "clusters": torch.stack(self._clusters).cpu()}
        return Trained(
            accuracy,
            accuracy_global,
            weights,
            models.layout,
            int(self._chosen_round.item()),
            notes,
            truth,
            right=self._right[inputs.test].cpu(),
        )
