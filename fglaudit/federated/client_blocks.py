"""Training data of clients a few at a time, for graphs on which the rows of all clients at once would be too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fglaudit.federated.neighborhood import HeldRows
from fglaudit.federated.problem import Gathered, Problem
from fglaudit.nn.gcn import Field
from fglaudit.nn.networks import GCN, Network
from fglaudit.nn.shared_rows import SharedRows

Block = tuple[int, int]
"""The first client, and the first of the next block."""


def block_fields(
    data: Gathered,
    rows: HeldRows,
    blocks: Sequence[Block],
    inputs: SharedRows | None,
    hops: int,
    layers: int,
    network: Network = GCN,
) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """Return the receptive fields of the training and of the test nodes, one per block of clients.

    Args:
        rows: [M], of all clients.
        inputs: the first layer's [M, F]; None: sums over the clients' own subgraphs.
    """
    train: list[Field] = []
    test: list[Field] = []
    for low, high in blocks:
        problem = Problem.among(data.targets, data.edges, rows.of_clients(low, high), hops, layers, network)
        if inputs is None:
            sums = problem.own_sums(data.x, layers)
            held = SharedRows.of(sums, torch.arange(len(sums), device=sums.device))
        else:
            held = inputs[int(rows.splits[low]) : int(rows.splits[high])][problem.needed(layers)]
        for fields, field in zip((train, test), problem.fields(held, layers), strict=True):
            fields.append(field)
    return _drawn_alike(train), _drawn_alike(test)


def _drawn_alike(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Have every block draw dropout for as many rows as all clients in one block would be padded to."""
    most = tuple(max(sizes) for sizes in zip(*(field.rows[:-1] for field in fields), strict=True))
    return tuple(replace(field, drawn=most) for field in fields)
