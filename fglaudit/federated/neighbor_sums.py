"""Weighted neighbour sums, produced sender by sender in one pass over the edges.

Sums are accumulated in float64 and rounded once to the float32 that is sent: messages are exact to one rounding. Above
``PRECISE_WORK`` multiplications (ten times ogbn-arxiv) they are accumulated in float32, which is several times faster
and as exact for counts below 2^24.

Memory stays bounded: senders are taken in buckets whose rows fit ``BUCKET_BYTES``, and within a bucket float64 exists
only for the senders' own features and for ``CHUNK_BYTES`` of results at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.nn.sparse import csr, row_starts
from fglaudit.sealing import SealedTensor

BUCKET_BYTES = 2**30
CHUNK_BYTES = 2**22  # larger ones come fresh from the system every time, and their page faults cost more than the sums
PRECISE_WORK = 2**32


@dataclass(frozen=True)
class SenderSums:
    """Sums of consecutive senders.

    Attributes:
        senders: [P] clients, ascending.
        nodes: receiving node of every row [rows], ascending within a sender.
        sums: [rows, F] float32.
        splits: [P + 1] row offsets of the senders.
    """

    senders: Tensor
    nodes: Tensor
    sums: Tensor
    splits: Tensor


def weighted_sums(start: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """Return ``sum_e values[e] x[columns[e]]`` for every row.

    Args:
        start: [R + 1] offsets of the rows' entries.
        columns: [e] rows of ``x``.
        values: [e], of the type of ``x``.
        x: [n, F], float64 or float32: the type of the accumulation.

    Returns:
        [R, F] float32.
    """
    if x.dtype == torch.float32:
        offsets = start.to(columns.dtype)
        return embedding_bag(columns, x, offsets, mode="sum", per_sample_weights=values, include_last_offset=True)
    rows, features = len(start) - 1, x.shape[1]
    sums = torch.empty(rows, features, dtype=torch.float32, device=x.device)
    step = max(1, CHUNK_BYTES // (8 * features))
    bounds = start[::step].tolist() if rows % step == 0 else [*start[::step].tolist(), int(start[-1].item())]
    for chunk, (first, last) in enumerate(itertools.pairwise(bounds)):
        part = slice(chunk * step, (chunk + 1) * step)
        offsets = start[chunk * step : (chunk + 1) * step + 1] - first
        block = csr(offsets.to(columns.dtype), columns[first:last], values[first:last], x.shape[0])
        sums[part] = (block @ x).float()
    return sums


def local_sums(row: Tensor, column: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """Return :func:`weighted_sums` [M, F] of entries [e] ordered by ``row``, for all M rows of ``x``."""
    return weighted_sums(row_starts(row, len(x)), column, values, x.double())


def sender_sums(edges: KeptEdges, x: Tensor, num_clients: int, *, counts: bool) -> Iterator[SenderSums]:
    """Yield what every client m sends: for each node i that is at m or has a neighbour there, the sum over those.

    Args:
        edges: kept edges with self-loops.
        x: features [N, F], each row from the prepared graph of its owner.
        num_clients: K.
        counts: weight every edge 1 instead of ``1 / sqrt((d_i + 1)(d_j + 1))``.
    """
    sender = edges.owner.to(edges.source.dtype)[edges.source]
    per_sender = torch.bincount(sender, minlength=num_clients)
    most_rows = per_sender.clamp(max=len(edges.owner)).cpu()
    scale = edges.scale()
    local = torch.zeros_like(edges.owner, dtype=edges.source.dtype)
    receivers = edges.receivers()
    accumulated = torch.float64 if len(edges.source) * x.shape[1] <= PRECISE_WORK else torch.float32
    for first, last in buckets(most_rows * x.shape[1] * 4):
        chosen = ((sender >= first) & (sender < last)).nonzero().squeeze(1)
        if last - first > 1:
            chosen = chosen[torch.argsort(sender[chosen], stable=True)]
        row, source, bucket_sender = receivers[chosen], edges.source[chosen], sender[chosen]
        own = ((edges.owner >= first) & (edges.owner < last)).nonzero().squeeze(1)
        local[own] = torch.arange(len(own), dtype=local.dtype, device=local.device)
        new = torch.ones_like(row, dtype=torch.bool)
        new[1:] = (row[1:] != row[:-1]) | (bucket_sender[1:] != bucket_sender[:-1])
        starts = new.nonzero().squeeze(1)
        splits = torch.zeros(last - first + 1, dtype=torch.long)
        splits[1:] = torch.bincount(bucket_sender[starts] - first, minlength=last - first).cumsum(0)
        ones = torch.ones(len(row), dtype=torch.float64, device=x.device)
        values = ones if counts else scale[row] * scale[source]
        offsets = torch.cat([starts, starts.new_tensor([len(row)])])
        sums = weighted_sums(offsets, local[source], values.to(accumulated), x[own].to(accumulated))
        yield SenderSums(torch.arange(first, last), row[starts].long(), sums, splits)


def add_messages(total: Tensor | None, nodes: Tensor, sums: Tensor, num_nodes: int) -> Tensor:
    """Return the server's ``total`` [N, F] after adding ``sums`` [rows, F] of ``nodes`` [rows], in their order.

    The total is float64, or sealed where the messages are. A plain one is changed in place.
    """
    if isinstance(sums, SealedTensor):
        more = torch.index_add(torch.zeros(num_nodes, sums.shape[1]), 0, nodes, sums)
        return more if total is None else total + more
    if total is None:
        total = torch.zeros(num_nodes, sums.shape[1], dtype=torch.float64, device=sums.device)
    step = max(1, CHUNK_BYTES // (8 * sums.shape[1]))
    for low in range(0, len(nodes), step):
        part = slice(low, low + step)
        total.index_add_(0, nodes[part], sums[part].to(total.dtype))
    return total


def buckets(sizes: Tensor) -> list[tuple[int, int]]:
    """Split parties with ``sizes`` bytes [P] into runs of at most ``BUCKET_BYTES``, or of a single party."""
    pieces, first, total = [], 0, 0
    for index, size in enumerate(sizes.tolist()):
        if index > first and total + size > BUCKET_BYTES:
            pieces.append((first, index))
            first, total = index, 0
        total += size
    if first < len(sizes):
        pieces.append((first, len(sizes)))
    return pieces
