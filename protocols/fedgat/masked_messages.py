"""FedGAT's server masks every neighbourhood and sends each client the messages it needs (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.sending import from_server
from fglaudit.interfaces import Channel
from fglaudit.protocols.fedgat.masking import Masked, announced, mask_parts, node_bytes, receiver_parts
from fglaudit.protocols.fedgat.received import Batch
from fglaudit.rng import split

Messages = Iterable[tuple[int, Tensor, Tensor]]
"""Masked messages to be sent: neighbourhood size, receivers [P], nodes [P], ascending by node."""


def merge_rows(edges: KeptEdges, x: Tensor, channel: Channel) -> tuple[KeptEdges, Tensor]:
    """Return edges and rows [N + G, F] with the defense's groups of cross-client neighbours replaced by their means.

    The mean of group g is row N + g; every edge to a member is redirected to it.
    """
    center, source = edges.receivers().long(), edges.source.long()
    cross = (edges.owner[center] != edges.owner[source]).nonzero().squeeze(1)
    group = channel.merge(center[cross], source[cross])
    merged = group >= 0
    if not bool(merged.any()):
        return edges, x
    cross, group = cross[merged], group[merged]
    count = torch.bincount(group)
    means = x.new_zeros(len(count), x.shape[1]).index_add_(0, group, x[source[cross]]) / count.clamp(min=1).unsqueeze(1)
    source = source.index_copy(0, cross, len(x) + group)
    return replace(edges, source=source), torch.cat([x, means.to(x)])


def deliver(
    messages: Messages,
    edges: KeptEdges,
    x: Tensor,
    variant: type[Masked],
    used: Tensor,
    channel: Channel,
    rng: torch.Generator,
) -> list[tuple[Tensor, Batch]]:
    """Have the server send all masked messages; return those that are ``used``, as received, with their codes.

    A node's masks are the same for all its receivers.

    Args:
        x: feature rows [N or more, F] that ``edges`` refer to.
        used: ascending codes ``client x N + node`` of what clients evaluate [n].
        rng: CPU generator of the masks.
    """
    probes, num_nodes = split(rng, "probes"), len(edges.owner)
    noisy = channel.noise(variant) is not None
    received = []
    for size, receivers, nodes in messages:
        distinct, copy = torch.unique_consecutive(nodes, return_inverse=True)
        parts = list(receiver_parts(receivers, node_bytes(size, x.shape[1], variant)))
        payloads = mask_parts(edges, x, distinct, [copy[part] for part in parts], size, variant, rng)
        kept: list[tuple[Tensor, Batch]] = []
        for part, payload in zip(parts, payloads, strict=True):
            clients = receivers[part].cpu()
            arrived = from_server(channel, 0, clients, payload)
            codes = receivers[part] * num_nodes + nodes[part]
            keep = torch.isin(codes, used)
            if bool(keep.any()):
                rows = arrived if bool(keep.all()) else arrived.select(keep)
                kept.append((codes[keep], Batch.received(rows, receivers[part][keep], probes, noisy=noisy)))
        if kept:
            joined = Batch.join([batch for _, batch in kept])
            found = [code for code, _ in kept]
            received += list(zip(found if len(joined) > 1 else [torch.cat(found)], joined, strict=True))
    return received


def announce(messages: Messages, x: Tensor, variant: type[Masked], channel: Channel) -> None:
    """Count the messages of :func:`deliver` on the wire without producing them."""
    for size, receivers, nodes in messages:
        clients = receivers.cpu()
        payload = announced(nodes, size, x.shape[1], variant, x.dtype)
        from_server(channel, 0, clients, payload)
