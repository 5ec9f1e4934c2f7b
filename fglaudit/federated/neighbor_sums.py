"""Weighted neighbour sums, produced sender by sender in one pass over the edges.

Sums are accumulated in float64 and rounded once to the float32 that is sent: messages are exact to one rounding. Above
``PRECISE_WORK`` multiplications (ten times ogbn-arxiv) they are accumulated in float32, which is several times faster
and as exact for counts below 2^24.

Memory stays bounded: senders are taken in buckets whose rows fit ``BUCKET_BYTES``, edges are gone through in blocks,
and within a bucket float64 exists only for the senders' own features and for ``CHUNK_BYTES`` of results at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.nn.sparse import product, row_starts
from fglaudit.sealing import SealedTensor
from fglaudit.sparse_tensors import csr

BUCKET_BYTES = 2**30
BLOCK_ENTRIES = 2**20
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
    if x.dtype == torch.float32 and len(start) > 1:
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
        sums[part].copy_(product(block, x))
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
    senders = _Senders.of(edges, num_clients)
    most_rows = senders.entries.clamp(max=len(edges.owner))
    scale, local = edges.scale(), torch.zeros_like(edges.owner, dtype=edges.source.dtype)
    accumulated = torch.float64 if len(edges.source) * x.shape[1] <= PRECISE_WORK else torch.float32
    for first, last in buckets(most_rows * x.shape[1] * 4):
        own = ((edges.owner >= first) & (edges.owner < last)).nonzero().squeeze(1)
        local[own] = torch.arange(len(own), dtype=local.dtype, device=local.device)
        held = x[own].to(accumulated)
        parts: Iterable[tuple[Tensor, Tensor, Tensor]] = senders.sent(first, last)
        if last - first > 1:  # sender by sender, so not block by block
            row, source, sender = (torch.cat(same) for same in zip(*parts, strict=True))
            order = torch.argsort(sender, stable=True)
            parts = [(row[order], source[order], sender[order])]
        sums = torch.empty(int(most_rows[first:last].sum().item()), x.shape[1], device=x.device)
        nodes, splits, used = [], torch.zeros(last - first + 1, dtype=torch.long), 0
        for row, source, sender in parts:
            new = torch.ones_like(row, dtype=torch.bool)
            new[1:] = (row[1:] != row[:-1]) | (sender[1:] != sender[:-1])
            starts = new.nonzero().squeeze(1)
            ones = torch.ones(len(row), dtype=torch.float64, device=x.device)
            values = ones if counts else scale.index_select(0, row).mul_(scale.index_select(0, source))
            offsets = torch.cat([starts, starts.new_tensor([len(row)])])
            place = slice(used, used + len(starts))
            sums[place] = weighted_sums(offsets, local.index_select(0, source), values.to(accumulated), held)
            nodes.append(row[starts].long())
            splits[1:] += torch.bincount(sender[starts].long() - first, minlength=last - first).cpu()
            used += len(starts)
        yield SenderSums(torch.arange(first, last), torch.cat(nodes), sums[:used], splits.cumsum(0))


@dataclass(frozen=True)
class _Senders:
    """Which client sends a part of what, gone through in blocks of about ``BLOCK_ENTRIES`` edges: temporary arrays then
    stay in the cache, and none is as long as there are edges.

    Attributes:
        edges: by receiving node.
        of_edge: the client that holds an edge's source [E], in the smallest type that fits.
        entries: edges per client [K].
        blocks: [B + 1] first nodes of the blocks, and the number of nodes.
    """

    edges: KeptEdges
    of_edge: Tensor
    entries: Tensor
    blocks: list[int]

    @staticmethod
    def of(edges: KeptEdges, num_clients: int) -> _Senders:
        kind = torch.uint8 if num_clients <= 256 else torch.int32
        owner, total = edges.owner.to(kind), len(edges.source)  # no edge comes from a node without a client
        marks = torch.arange(0, total, BLOCK_ENTRIES, device=edges.start.device)
        first = torch.unique(torch.searchsorted(edges.start, marks, right=True) - 1).tolist()
        of_edge = torch.empty(total, dtype=kind, device=owner.device)
        entries = torch.zeros(num_clients, dtype=torch.long)
        for low in range(0, total, BLOCK_ENTRIES):
            part = of_edge[low : low + BLOCK_ENTRIES]
            torch.index_select(owner, 0, edges.source[low : low + BLOCK_ENTRIES], out=part)
            entries += torch.bincount(part, minlength=num_clients).cpu()
        return _Senders(edges, of_edge, entries, [*first, len(edges.owner)])

    def sent(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (receiving node, source, client) [n] of the edges whose sources are at clients ``first`` to
        ``last - 1``, a block at a time."""
        edges = self.edges
        bounds = edges.start[torch.tensor(self.blocks, device=edges.start.device)].tolist()
        for (low, high), (begin, end) in zip(itertools.pairwise(self.blocks), itertools.pairwise(bounds), strict=True):
            client = self.of_edge[begin:end]
            among = client == first if last - first == 1 else (client >= first) & (client < last)
            chosen = among.nonzero().squeeze(1)
            nodes = torch.arange(low, high, device=client.device, dtype=edges.source.dtype)
            lengths = torch.searchsorted(chosen, edges.start[low : high + 1] - begin).diff()
            row = torch.repeat_interleave(nodes, lengths, output_size=len(chosen))
            yield row, edges.source[begin:end][chosen], client[chosen]


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
