"""NeighGen (Zhang et al. 2021, section 4.1) of K clients at once: encoder, degree predictor, feature generator.

The encoder is two layers ``relu(mean(h W + b))`` over closed neighbourhoods, the degree predictor a linear unit on its
output, the generator :class:`fglaudit.nn.neighbor_generator.FeatureGenerator`. First every client trains all three on
its impaired graph (equation (5): smooth L1 of the degree, squared distance of generated to hidden neighbours). Then the
encoder stays and the generators go on with gradients from the other clients (equation (7)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from fglaudit.graph import ClientGraph
from fglaudit.nn.batched_adam import BatchedAdam
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.nn.neighbor_generator import FeatureGenerator, generated_loss, predicted_counts
from fglaudit.nn.weights import Layout, unflatten
from fglaudit.protocols.fedsage.impaired_graphs import Impaired, Surfaces

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4
"""Of Adam, as in the authors' code (``zkhku/fedsage``)."""
ENCODER_HIDDEN = 32


@dataclass(frozen=True)
class Asked:
    """What one client's generator is applied to in one exchange: embeddings with noise [m, d], counts [m]."""

    inputs: Tensor
    counts: Tensor


class NeighborModels:
    """The models of K clients; ``x`` [K, n, F] are all rows of each, ``present`` [K, n] says which are no padding."""

    def __init__(
        self,
        clients: Sequence[ClientGraph],
        impaired: Impaired,
        generator: FeatureGenerator,
        start: torch.Generator,
        draws: torch.Generator,
    ) -> None:
        """Draw the first weights by ``start``; ``draws`` is on the clients' device."""
        self.generator, self._impaired, self._draws = generator, impaired, draws
        device = impaired.counts.device
        self._encoder_layout: Layout = {
            "input.weight": (generator.features, ENCODER_HIDDEN),
            "input.bias": (ENCODER_HIDDEN,),
            "embedding.weight": (ENCODER_HIDDEN, generator.embedding),
            "embedding.bias": (generator.embedding,),
            "degree.weight": (generator.embedding, 1),
            "degree.bias": (1,),
        }
        self.encoders, self.generators = (
            torch.stack([initial_model(layout, start) for _ in clients]).to(device)
            for layout in (self._encoder_layout, generator.layout())
        )
        self.x = pad_sequence([c.x.float() for c in clients], batch_first=True).to(device)
        self.present = pad_sequence([torch.ones_like(c.train) for c in clients], batch_first=True).to(device)
        self._own: BatchedAdam | None = None

    def train_locally(self, epochs: int) -> None:
        """Train encoder, degree predictor and generator of every client on its impaired graph."""
        parts = (self.encoders, self._encoder_layout), (self.generators, self.generator.layout())
        optimizers = [BatchedAdam(unflatten(v, layout), LEARNING_RATE, WEIGHT_DECAY) for v, layout in parts]
        impaired = self._impaired
        present = impaired.surfaces.inputs.present
        for _ in range(epochs):
            leaves = [v.detach().requires_grad_() for v in (self.encoders, self.generators)]
            embedded = self._embed(leaves[0], impaired.surfaces)
            missed = functional.smooth_l1_loss(self._degrees(leaves[0], embedded), impaired.counts, reduction="none")
            degree = (missed * present).sum(1) / present.sum(1)
            loss = (degree + self._local_loss(leaves[1], embedded)).sum()
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
            for gradient, optimizer, (_, layout) in zip(gradients, optimizers, parts, strict=True):
                if gradient is not None:
                    optimizer.step(unflatten(gradient, layout))

    def asks(self, most: int) -> list[Asked]:
        """Return what each client's generator is applied to in one exchange: at most ``most`` of the nodes that lack a
        neighbour, drawn afresh."""
        impaired = self._impaired
        with torch.no_grad():
            embedded = self._lacking(self._embed(self.encoders, impaired.surfaces))
            embedded = embedded + self._noise(embedded)
        keys = torch.rand(impaired.real.shape, generator=self._draws, device=impaired.real.device) + 2 * ~impaired.real
        order, counts = keys.argsort(1)[:, :most], impaired.counts.gather(1, impaired.lacking)
        sizes = impaired.real.sum(1).clamp(max=most).tolist()
        return [Asked(embedded[k, order[k, : sizes[k]]], counts[k, order[k, : sizes[k]]]) for k in range(len(sizes))]

    def step(self, others: Tensor) -> None:
        """Take one step of the generators [K, D] with their own gradients and the sums of the ``others``' [K, D]."""
        layout = self.generator.layout()
        leaf = self.generators.detach().requires_grad_()
        with torch.no_grad():
            embedded = self._embed(self.encoders, self._impaired.surfaces)
        loss = self._local_loss(leaf, embedded).sum()
        # Where no client has a neighbour to hide, the loss does not depend on the generators.
        own = torch.autograd.grad(loss, leaf)[0] if loss.requires_grad else torch.zeros_like(leaf)
        if self._own is None:
            self._own = BatchedAdam(unflatten(self.generators, layout), LEARNING_RATE, WEIGHT_DECAY)
        self._own.step(unflatten((own + others) / len(own), layout))

    @torch.no_grad()
    def missing(self, surfaces: Surfaces) -> tuple[Tensor, Tensor]:
        """Return generated rows [K, n, p, F] for all nodes of the clients' whole graphs, and how many of them to add
        [K, n]."""
        embedded = self._embed(self.encoders, surfaces)
        counts = predicted_counts(self._degrees(self.encoders, embedded), self.generator.slots)
        units = self.generator.units(self.generators, embedded + self._noise(embedded))
        return self.generator.rows(self.generators, units), torch.where(surfaces.inputs.present, counts, 0).long()

    def _embed(self, vectors: Tensor, surfaces: Surfaces) -> Tensor:
        """Return the embeddings [K, n, d] of all nodes."""
        weights = unflatten(vectors, self._encoder_layout)
        hidden = surfaces.inputs.project(weights["input.weight"], weights["input.bias"])
        hidden = (surfaces.mean @ hidden.flatten(0, 1)).view_as(hidden).relu()
        mapped = torch.baddbmm(weights["embedding.bias"].unsqueeze(1), hidden, weights["embedding.weight"])
        return (surfaces.mean @ mapped.flatten(0, 1)).view_as(mapped).relu()

    def _degrees(self, vectors: Tensor, embedded: Tensor) -> Tensor:
        weights = unflatten(vectors, self._encoder_layout)
        return torch.baddbmm(weights["degree.bias"].unsqueeze(1), embedded, weights["degree.weight"]).squeeze(2)

    def _lacking(self, embedded: Tensor) -> Tensor:
        """Return the embeddings [K, m, d] of the nodes that lack a neighbour."""
        nodes = self._impaired.lacking.unsqueeze(2)
        return embedded.gather(1, nodes.expand(-1, -1, embedded.shape[2]))

    def _local_loss(self, generators: Tensor, embedded: Tensor) -> Tensor:
        """Return every client's loss of generated rows beside its hidden nodes [K]."""
        impaired, slots = self._impaired, self.generator.slots
        shown = self._lacking(embedded)
        made = self.generator.rows(generators, self.generator.units(generators, shown + self._noise(shown)))
        client = torch.arange(len(self.x), device=self.x.device).view(-1, 1, 1)
        counts = impaired.counts.gather(1, impaired.lacking) * impaired.real
        if math.prod(impaired.targets.shape) == 0:
            return made.new_zeros(len(made))
        return generated_loss(made, counts.clamp(max=slots), self.x[client, impaired.targets], impaired.shown)

    def _noise(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._draws, device=like.device)
