"""FedGT's clients, shared by FedGT and its local-only form: graph transformers with hybrid attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.subgraph_inputs import SubgraphInputs, check_subgraphs
from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.federated.subgraph_training import SubgraphModels, SubgraphSettings, Surroundings
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel
from fglaudit.nn.graph_transformer import GraphTransformer
from fglaudit.nn.two_attention_transformer import TwoAttentionTransformer
from fglaudit.nn.weights import Layout
from fglaudit.protocols.fedgt.neighbor_sampling import Strategy, find_candidates
from fglaudit.protocols.fedgt.sources import POWERS, TOKENS, Form, PaperForm, PublishedForm, Source
from fglaudit.rng import split


@dataclass(frozen=True)
class HybridProtocol(SubgraphProtocol):
    """FedGT's clients; defaults are the paper's where it states them.

    Attributes:
        heads, feed_forward: see :class:`fglaudit.nn.graph_transformer.GraphTransformer`.
        neighbors, global_nodes: n_s and n_g.
        encoding: dimensions of the Laplacian positional encoding.
        sampling: "ppr", "graphsage", "attribute" or "neighbors", see ``fglaudit.protocols.fedgt.neighbor_sampling``.
        restart: nu of the personalised PageRank.
        candidates: nodes per node among which neighbours are drawn.
        momentum: gamma of the online clustering.
        global_scale: standard deviation of the entries of the first global nodes, before any client trains. At 1 they
            lie far outside the clients' representations: unless a defense clips them, all nodes are assigned to one of
            them and the others never move. At 0.01 all are used.
        global_attention: whether nodes attend to global nodes. Without it (appendix E.9) clients still cluster their
            nodes and send the global nodes, by which they are compared.
        source: "paper", or "code" for the network, the draws and the clustering of the authors' code; see
            :mod:`fglaudit.protocols.fedgt.sources`, which also has its settings. ``sampling`` and ``restart`` give
            the candidates of both.
    """

    heads: int = 4
    feed_forward: int = 256
    neighbors: int = 16
    global_nodes: int = 10
    encoding: int = 8
    sampling: Strategy = "ppr"
    restart: float = 0.15
    candidates: int = 64
    momentum: float = 0.9
    global_scale: float = 1.0
    global_attention: bool = True
    source: Source = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, neighbors=1, global_nodes=1, encoding=0, candidates=self.neighbors)
        if not (self.global_scale > 0 and math.isfinite(self.global_scale)):
            raise FglauditError(
                f"global_scale must be positive and finite, equal global nodes stay equal; got {self.global_scale:g};"
                " use 1 or 0.01"
            )
        if not 0 < self.restart <= 1:
            raise FglauditError(f"the restart probability lies in (0, 1]; got {self.restart:g}; the paper uses 0.15")

    @property
    def positions(self) -> int:
        return self.encoding

    def examples(self, graph: FederatedGraph) -> str:
        return (
            f"{self.name}'s losses all see the global nodes, which are made of every node's features, and PageRank"
            " scores and encodings, which every edge moves: one node changes them all"
        )

    def network(self) -> GraphTransformer:
        """Return the paper's network."""
        shape = self.layers, self.hidden, self.heads, self.feed_forward
        return GraphTransformer(*shape, global_attention=self.global_attention)

    def form(self) -> Form:
        """Return the form of ``source``."""
        if self.source == "paper":
            return PaperForm(self.network())
        shape = self.layers, self.hidden, self.heads, self.feed_forward
        return PublishedForm(TwoAttentionTransformer(*shape, TOKENS, POWERS, self.global_attention))

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return self.form().layout(num_inputs, num_classes)

    def settings(self) -> SubgraphSettings:
        return replace(super().settings(), momentum=self.momentum, normalised=self.form().normalised)

    def check(self, graph: FederatedGraph) -> None:
        check_subgraphs(self.name, graph, self.global_nodes)

    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator
    ) -> Surroundings:
        candidates = find_candidates(clients, self.sampling, self.candidates, self.restart, rng)
        return self.form().surroundings(clients, inputs, candidates, self.neighbors, self.candidates)

    def prepare(
        self, graph: FederatedGraph, channel: Channel, rng: torch.Generator, device: torch.device
    ) -> tuple[SubgraphModels, Tensor, Tensor]:
        """Set up the training; return the clients, the first model [D] and the first global nodes [n_g, d]."""
        start, centers, near, training = (
            split(rng, purpose) for purpose in ("weights", "global", "candidates", "training")
        )
        models = self.clients(graph, channel, near, training, device)
        form = self.form()
        first = form.global_nodes(self.global_nodes, self.global_scale, centers)
        return models, form.initial(models.layout, start).to(device), first.to(device)
