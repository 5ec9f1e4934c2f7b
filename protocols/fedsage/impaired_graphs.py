"""Clients' subgraphs with some nodes hidden, so that their neighbours know what is missing (FedSage+, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.graph import ClientGraph
from fglaudit.nn.sparse import SparseMatrix


@dataclass(frozen=True)
class Surfaces:
    """What an encoder reads of K clients, n rows each.

    Attributes:
        inputs: features of the nodes.
        mean: mean over closed neighbourhoods, block-diagonal [K n, K n].
    """

    inputs: SubgraphInputs
    mean: SparseMatrix

    @staticmethod
    def of(clients: Sequence[ClientGraph], device: torch.device) -> Surfaces:
        """Pad the clients' graphs."""
        inputs = SubgraphInputs.of(clients, 0, device)
        size = inputs.present.shape[1]
        loops = torch.arange(len(clients) * size)
        edges = torch.cat([c.edge_index + k * size for k, c in enumerate(clients)], 1)
        row, column = torch.cat([edges, loops.expand(2, -1)], 1)
        share = 1 / torch.bincount(row, minlength=len(loops)).float()
        size = len(loops)
        mean = SparseMatrix.from_entries(row.to(device), column.to(device), share[row].to(device), (size, size))
        return Surfaces(inputs, mean)


@dataclass(frozen=True)
class Impaired:
    """The clients' impaired graphs, and what their nodes lack; at most ``slots`` neighbours are counted.

    Attributes:
        surfaces: of the nodes that are left, n per client.
        counts: hidden neighbours of every node that is left [K, n].
        lacking, real: nodes that lack a neighbour [K, m], and which entries are no padding.
        targets, shown: their hidden neighbours [K, m, slots], as indices of the client's own nodes, and which entries
            are no padding.
    """

    surfaces: Surfaces
    counts: Tensor
    lacking: Tensor
    real: Tensor
    targets: Tensor
    shown: Tensor

    @staticmethod
    def of(
        clients: Sequence[ClientGraph], share: float, slots: int, rng: torch.Generator, device: torch.device
    ) -> Impaired:
        """Hide ``share`` of every client's nodes, drawn by ``rng``."""
        left, counts, lacking, targets, shown = [], [], [], [], []
        for client in clients:  # subgraphs of different size, once per training
            kept = hide(len(client.nodes), share, rng)
            place = torch.full((len(kept),), -1)
            place[kept] = torch.arange(int(kept.sum()))
            left.append(subgraph(client, kept, place))
            row, column = client.edge_index
            gone = kept[row] & ~kept[column]
            node, hidden = place[row[gone]], column[gone]
            order = torch.argsort(node, stable=True)
            node, hidden = node[order], hidden[order]
            total = torch.bincount(node, minlength=int(kept.sum()))
            rank = torch.arange(len(node)) - (total.cumsum(0) - total)[node]
            fits = rank < slots
            chosen = torch.full((len(total), slots), -1)
            chosen[node[fits], rank[fits]] = hidden[fits]
            some = (total > 0).nonzero().squeeze(1)
            counts.append(total.clamp(max=slots).float())
            lacking.append(some)
            targets.append(chosen[some])
            shown.append(torch.ones(len(some), dtype=torch.bool))
        picked = pad_sequence(targets, batch_first=True, padding_value=-1).to(device)
        return Impaired(
            Surfaces.of(left, device),
            pad_sequence(counts, batch_first=True).to(device),
            pad_sequence(lacking, batch_first=True).to(device),
            pad_sequence(shown, batch_first=True).to(device),
            picked.clamp(min=0),
            picked >= 0,
        )


def hide(count: int, share: float, rng: torch.Generator) -> Tensor:
    """Return which of ``count`` nodes stay [count]; at least one does."""
    hidden = min(round(share * count), count - 1)
    kept = torch.ones(count, dtype=torch.bool)
    kept[torch.randperm(count, generator=rng)[:hidden]] = False
    return kept


def subgraph(client: ClientGraph, kept: Tensor, place: Tensor) -> ClientGraph:
    """Return the part of ``client`` on the nodes ``kept`` [n], numbered by ``place`` [n]."""
    inner = kept[client.edge_index].all(0)
    return replace(
        client,
        nodes=client.nodes[kept],
        x=client.x[kept],
        y=client.y[kept],
        edge_index=place[client.edge_index[:, inner]],
        degrees=client.degrees[kept],
        remote_nodes=client.remote_nodes[:0],
        remote_degrees=None,
        boundary=client.boundary[:, :0],
        train=client.train[kept],
        val=client.val[kept],
        test=client.test[kept],
    )
