"""Clients' subgraphs with rows attached in place of neighbours that they lack (FedSage+, section 4.1)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fglaudit.graph import ClientGraph

NOBODY = -1
"""Id and label of a row that belongs to no node of the client."""


def mended(client: ClientGraph, rows: Tensor, beside: Tensor, row: Tensor) -> ClientGraph:
    """Return ``client`` with the ``rows`` [r, F] attached; they are neither trained on nor tested.

    Args:
        beside, row: an edge each between an own node (local index [e]) and one of ``rows`` [e].
    """
    count, more = len(client.nodes), len(rows)
    there = torch.stack([beside, count + row])
    none = torch.zeros(more, dtype=torch.bool)
    return replace(
        client,
        nodes=torch.cat([client.nodes, torch.full((more,), NOBODY)]),
        x=torch.cat([client.x.float(), rows.to(client.x.device).float()]),
        y=torch.cat([client.y, torch.full((more,), NOBODY)]),
        edge_index=torch.cat([client.edge_index, there, there.flip(0)], 1),
        degrees=torch.cat([client.degrees, torch.bincount(row, minlength=more)]),
        train=torch.cat([client.train, none]),
        val=torch.cat([client.val, none]),
        test=torch.cat([client.test, none]),
    )
