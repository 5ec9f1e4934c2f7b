"""The data of K clients with subgraphs, padded to the largest client: features, encodings, labels, split masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fglaudit.errors import FglauditError
from fglaudit.federated.problem import check_feature_rows, check_training
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.nn.laplacian import laplacian_encoding
from fglaudit.nn.sparse import SparseMatrix

SPARSE_BELOW = 0.1
"""Share of non-zero features below which the first product runs over them alone."""


def check_subgraphs(protocol: str, graph: FederatedGraph, global_nodes: int = 0) -> None:
    """Raise :class:`FglauditError` unless nodes have one feature row, a client trains and all have enough nodes."""
    check_feature_rows(protocol, graph)
    check_training(protocol, graph)
    smallest = min(range(graph.num_clients), key=lambda k: len(graph.clients[k]))
    if global_nodes > len(graph.clients[smallest]):
        raise FglauditError(
            f"{protocol} needs at least as many nodes at every client as global nodes; client {smallest} has "
            f"{len(graph.clients[smallest])} for {global_nodes}; lower global_nodes or the number of clients"
        )


@dataclass(frozen=True)
class SubgraphInputs:
    """Rows of K clients, n per client; the last rows of all but the largest client are padding.

    Attributes:
        features: [K, n, F], or None where they are ``sparse``.
        sparse: block-diagonal [K n, K F].
        encoding: [K, n, p].
        labels: [K, n].
        present, train, val, test: masks [K, n].
    """

    features: Tensor | None
    sparse: SparseMatrix | None
    encoding: Tensor
    labels: Tensor
    present: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_features: int

    @staticmethod
    def of(clients: Sequence[ClientGraph], dimensions: int, device: torch.device) -> SubgraphInputs:
        """Pad and encode; ``dimensions`` of the Laplacian encoding of every client's own subgraph."""
        x = pad_sequence([c.x for c in clients], batch_first=True).float()
        encodings = [laplacian_encoding(c.edge_index, len(c.nodes), dimensions) for c in clients]
        sparse = None
        if float(torch.count_nonzero(x).item()) < SPARSE_BELOW * x.numel():
            count, size, width = x.shape
            k, row, column = x.nonzero(as_tuple=True)
            entries = (k * size + row).to(device), (k * width + column).to(device), x[k, row, column].to(device)
            sparse = SparseMatrix.from_entries(*entries, (count * size, count * width))

        def mask(name: str) -> Tensor:
            return pad_sequence([getattr(c, name) for c in clients], batch_first=True).to(device)

        return SubgraphInputs(
            features=x.to(device) if sparse is None else None,
            sparse=sparse,
            encoding=pad_sequence(encodings, batch_first=True).to(device),
            labels=pad_sequence([c.y for c in clients], batch_first=True).to(device),
            present=pad_sequence([torch.ones_like(c.train) for c in clients], batch_first=True).to(device),
            train=mask("train"),
            val=mask("val"),
            test=mask("test"),
            num_features=x.shape[2],
        )

    def project(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return ``[x, encoding] W + b`` of all rows [K, n, d]; ``weight`` [K, F + p, d], ``bias`` [K, d]."""
        of_features, of_encoding = weight[:, : self.num_features], weight[:, self.num_features :]
        shift = bias.unsqueeze(1)
        encoded = torch.baddbmm(shift, self.encoding, of_encoding) if of_encoding.shape[1] else shift
        if self.sparse is not None:
            return encoded + (self.sparse @ of_features.reshape(-1, weight.shape[2])).view(
                len(weight), -1, weight.shape[2]
            )
        assert self.features is not None
        return torch.baddbmm(encoded, self.features, of_features)
