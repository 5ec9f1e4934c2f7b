"""FedGT's clients as the paper has them and as its authors' code has them (``zaixizhang/FedGT``, ac35442).

A form is a network with the sequences or neighbourhoods that it reads, the first model, and how global nodes start and
are clustered. Everything else on which text and code differ is a field of its own; ``AS_PUBLISHED`` has the code's. The
paper first, then the code:

* Attention: one, over 16 neighbours and the global nodes; one over all pairs of the node, 25 neighbours and 2 learned
  tokens, and a second one, with weights of its own, over the global nodes.
* Global nodes pass through the layers with the nodes; they enter every layer as they are.
* Feed-forward part: of the node, width left open (256); of the node beside what it read from the global nodes, 128.
* Position: Laplacian encoding in 8 dimensions; powers 1 to 6 of the propagation matrix, weighted, added to the scores.
* Neighbours: drawn by PageRank from the node, with replacement; by PageRank to the node over its degree, without, the
  node itself among them once more. Tests take all 64 candidates with their weights; 25 drawn neighbours.
* Clusters: of representations; of representations normalised by the mean and variance of the batch.
* Dropout: of inputs and both blocks; also of the shares of both attentions, one half each.
* Optimizer: Adam, 0.001, weight decay 5e-4, 100 rounds; 0.01, 1e-6, 200 rounds, 100 where clients overlap.
* Features: as they are; divided by their row's sum. Split: of every subgraph; of the whole graph.
* Global nodes: clip and Laplace noise; no noise. Compared after an optimal matching; by row index, because
  ``alignment_distance`` solves the assignment and then uses its row index on both sides. Averaged after the matching;
  by row index as part of the model, while a second average, for the matching, is sent and never read.

Left as in the paper: inputs are dropped for all sequences of a step at once, a node of several sequences counts once in
a batch's clusters, short sequences are not filled, and what returns is brought into the client's own normalised space.
Attacks that read clusters take them to follow the representations themselves, which the code's do only about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.federated.subgraph_training import Surroundings
from fglaudit.graph import ClientGraph
from fglaudit.nn.graph_transformer import GraphTransformer, initial_model
from fglaudit.nn.two_attention_transformer import TwoAttentionTransformer
from fglaudit.nn.weights import Layout
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates
from fglaudit.protocols.fedgt.proximity import Proximity
from fglaudit.protocols.fedgt.sampled_neighbors import SampledNeighbors
from fglaudit.protocols.fedgt.surrounding_sequences import SurroundingSequences, over_degrees
from fglaudit.structure import Transformer

Source = Literal["paper", "code"]
TOKENS = 2
"""Learned tokens in every sequence of the code."""
POWERS = 6
"""Powers of the propagation matrix among the code's proximities."""
AS_PUBLISHED: dict[str, Any] = {
    "source": "code",
    "similarity": "global-nodes-unaligned",
    "rounds": 200,
    "learning_rate": 0.01,
    "weight_decay": 1e-6,
    "feed_forward": 128,
    "neighbors": 25,
    "candidates": 256,
    "encoding": 0,
}
"""The code's settings for FedGT on clients that do not overlap; 100 rounds for clients that do."""


class Form(Protocol):
    """What the two sources differ in."""

    @property
    def normalised(self) -> bool:
        """Whether nodes are clustered after normalisation by the batch's mean and variance."""

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        """Return the shapes of the weights of one model."""

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        """Draw one model [D]."""

    def global_nodes(self, count: int, scale: float, rng: torch.Generator) -> Tensor:
        """Draw the first global nodes [count, d]."""

    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, candidates: Candidates, neighbors: int, tests: int
    ) -> Surroundings:
        """Return what every node attends to: ``neighbors`` of its candidates, in tests ``tests`` of them."""

    def statement(self) -> Transformer:
        """Return what is public about the network."""


@dataclass(frozen=True)
class PaperForm:
    """Neighbours, with replacement, and global nodes in one attention; clusters of plain representations."""

    network: GraphTransformer
    normalised: bool = False

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return self.network.layout(num_inputs, num_classes)

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        return initial_model(layout, rng)

    def global_nodes(self, count: int, scale: float, rng: torch.Generator) -> Tensor:
        return scale * torch.randn(count, self.network.hidden, generator=rng)

    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, candidates: Candidates, neighbors: int, tests: int
    ) -> SampledNeighbors:
        return SampledNeighbors(self.network, candidates.to(inputs.labels.device), inputs.present, neighbors, tests)

    def statement(self) -> Transformer:
        network = self.network
        shape = network.layers, network.hidden, network.heads, network.feed_forward
        return Transformer(*shape, global_attention=network.global_attention)


@dataclass(frozen=True)
class PublishedForm:
    """Neighbours without replacement in one attention, global nodes in another; clusters of normalised representations.

    As many neighbours are drawn in tests as in training. Global nodes start from a uniform distribution on [0, scale).
    """

    network: TwoAttentionTransformer
    normalised: bool = True

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return self.network.layout(num_inputs, num_classes)

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        return self.network.initial(layout, rng)

    def global_nodes(self, count: int, scale: float, rng: torch.Generator) -> Tensor:
        return scale * torch.rand(count, self.network.hidden, generator=rng)

    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, candidates: Candidates, neighbors: int, tests: int
    ) -> SurroundingSequences:
        device = inputs.labels.device
        near = Proximity.of(clients, self.network.powers, device)
        weighted = over_degrees(candidates, clients).to(device)
        return SurroundingSequences(self.network, weighted, near, inputs.present, neighbors)

    def statement(self) -> Transformer:
        network = self.network
        shape = network.layers, network.hidden, network.heads, network.feed_forward
        return Transformer(
            *shape,
            separate_global=True,
            tokens=network.tokens,
            powers=network.powers,
            global_attention=network.global_attention,
        )
