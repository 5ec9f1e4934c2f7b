"""FedGAT's masked messages per node: matrices (equations 9, 11, 13) or vectors (appendix F).

The neighbourhood of a node is its kept neighbours and itself, as in the original GAT; b is its size. All nodes of a
batch have the same b, and a batch stays under ``BATCH_BYTES`` unless one node alone exceeds it.

Choices where the paper's text is silent or does not work as printed:

* r is drawn per node, log-uniform in [1/2, 2]: the products' rounding error grows with r + 1/r.
* Binary ``u_j`` of the vector variant have two ones each: 2b coordinates hold b disjoint pairs, all masks live within
  pairs. Supports of different sizes would weight neighbours by their sizes.
* ``mask4 = V U'`` with ``U'V = I`` is a random oblique projection onto the span of the ``u_j``;
  ``mask1 = A (I - V U')`` with normal A.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.payloads import MaskedMatrices, MaskedVectors
from fglaudit.sealing import SealedTensor
from fglaudit.sparse_tensors import coo

BATCH_BYTES = 2**28
"""Most bytes of masked messages in memory at once, copies for several receivers not counted."""
JOIN_BYTES = 2**24
"""Messages to several receivers share a batch up to this size."""
LARGEST_R = 2.0

Masked = MaskedMatrices | MaskedVectors


def node_bytes(size: int, features: int, variant: type[Masked]) -> int:
    """Return the wire bytes of one node's message with neighbourhood size b = ``size``.

    They are the paper's (M1 and M2, all features) plus 8 for the node's id.
    """
    width = 2 * size
    if variant is MaskedMatrices:
        numbers = 2 * features * width**2 + width + width * features
    else:
        numbers = 3 * width * features + width**2 + width
    return 8 + 4 * numbers


def degree_batches(
    edges: KeptEdges, receivers: Tensor, nodes: Tensor, features: int, variant: type[Masked]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (b, receivers [P], nodes [P]) so that the messages about distinct nodes fit ``BATCH_BYTES``.

    Each batch holds all receivers of its nodes and is ascending by node.

    Args:
        receivers, nodes: one entry per message [n], in any order.
        features: F.
    """
    order = torch.argsort(nodes, stable=True)
    receivers, nodes = receivers[order], nodes[order]
    sizes = edges.start[nodes + 1] - edges.start[nodes]
    for size in torch.unique(sizes).tolist():
        chosen = sizes == size
        _, copies = torch.unique_consecutive(nodes[chosen], return_counts=True)
        most = max(1, BATCH_BYTES // node_bytes(size, features, variant))
        lengths = [int(part.sum().item()) for part in copies.split(most)]
        for who, which in zip(
            torch.split(receivers[chosen], lengths), torch.split(nodes[chosen], lengths), strict=True
        ):
            yield size, who, which


def receiver_parts(receivers: Tensor, message_bytes: int) -> Iterator[Tensor]:
    """Yield the positions of the messages of each batch, by ascending ``receivers`` [P].

    All messages to one receiver are in one batch, which several receivers share below ``JOIN_BYTES``.
    """
    order = torch.argsort(receivers, stable=True)
    _, counts = torch.unique_consecutive(receivers[order], return_counts=True)
    lengths: list[int] = []
    for count in counts.tolist():
        if lengths and (lengths[-1] + count) * message_bytes <= JOIN_BYTES:
            lengths[-1] += count
        else:
            lengths.append(count)
    yield from torch.split(order, lengths)


def mask_parts(
    edges: KeptEdges,
    x: Tensor,
    nodes: Tensor,
    parts: Sequence[Tensor],
    size: int,
    variant: type[Masked],
    rng: torch.Generator,
) -> Iterator[Masked]:
    """Yield the masked neighbourhoods of ``nodes`` [P] in ``parts``, positions in ``nodes``; a node that is in several
    has the same masks, and equal messages, in all.

    Matrices of which each is in one part are made part by part: arrays stay small, and nothing is copied.

    Args:
        edges: kept edges with self-loops; every node has ``size`` of them.
        x: features of all nodes [N, F]; the results have their type.
        nodes: [P], each once.
        rng: CPU generator of the masks.
    """
    _, source = edges.incoming(nodes)
    source = source.view(len(nodes), size)
    if isinstance(x, SealedTensor):
        payload: Masked = sealed_matrices(nodes, x, source, rng)
    elif variant is MaskedVectors:
        payload = masked_vectors(nodes, x[nodes], x[source], rng)
    else:
        first, units = draw_units(len(nodes), size, x, rng)
        if sum(len(part) for part in parts) == len(nodes):
            for part in parts:
                yield masked_matrices(nodes[part], x[nodes[part]], x[source[part]], first[part], units[part])
            return
        payload = masked_matrices(nodes, x[nodes], x[source], first, units)
    for part in parts:
        yield payload if len(part) == len(nodes) and bool((part.diff() == 1).all()) else payload.select(part)


def masked_matrices(nodes: Tensor, own: Tensor, neighbors: Tensor, first: Tensor, units: Tensor) -> MaskedMatrices:
    """Return (M1, M2, K1, K2) of equations (11) and (13).

    Args:
        nodes: [P].
        own: h_i [P, F].
        neighbors: h_j [P, b, F].
        first, units: the masks, of :func:`draw_units`.
    """
    count, size, features = neighbors.shape
    width = 2 * size
    total = units.sum(1)
    m1 = (own.unsqueeze(2) * total.unsqueeze(1)).view(count, features, width, width)
    m2 = (neighbors.transpose(1, 2) @ units).view(count, features, width, width)
    root = math.sqrt(2)
    return MaskedMatrices(nodes, m1, m2, root * first.sum(2), root * first @ neighbors)


def draw_units(count: int, size: int, like: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw the masks of P = ``count`` nodes with b = ``size`` neighbours.

    They are u1 [P, 2b, b], one per column, and U [P, b, 4 b^2], of the type and device of ``like``.
    """
    width = 2 * size
    gaussian = torch.randn(count, width, width, generator=rng, dtype=torch.float64)
    basis = torch.linalg.qr(gaussian).Q.to(like)
    first, second = basis[..., :size], basis[..., size:]
    exponent = torch.rand(count, 1, 1, generator=rng, dtype=torch.float64) * 2 - 1
    r = (exponent * math.log(LARGEST_R)).exp().to(like)
    # U_j is of rank one: 1/2 (u1 + u2 / r)(u1 + r u2)'.
    left, right = (first + second / r) / 2, first + r * second
    return first, torch.einsum("pwj,pvj->pjwv", left, right).flatten(2)


def sealed_matrices(nodes: Tensor, x: SealedTensor, source: Tensor, rng: torch.Generator) -> MaskedMatrices:
    """Return :func:`masked_matrices` of sealed rows ``x`` [N, F].

    M1, M2 and K2 are public linear combinations of the rows; K1 does not depend on them.

    Args:
        nodes: i [P].
        source: j [P, b].
    """
    count, size = source.shape
    width, features, root = 2 * size, x.shape[1], math.sqrt(2)
    first, units = draw_units(count, size, torch.empty(0), rng)

    def combined(coefficients: Tensor, rows: Tensor) -> Tensor:
        """Return ``sum_j coefficients[p, j, r] x[rows[p, j]]`` as [P, r, F]."""
        lines = coefficients.shape[2]
        target = torch.arange(count * lines).view(count, 1, lines).expand_as(coefficients)
        column = rows.cpu().unsqueeze(2).expand_as(coefficients)
        index = torch.stack([target.flatten(), column.flatten()])
        weights = coo(index, coefficients.flatten(), (count * lines, len(x)))
        mixed: Tensor = weights @ x
        return mixed.view(count, lines, features)

    m1 = combined(units.sum(1, keepdim=True), nodes.unsqueeze(1)).view(count, width, width, features).movedim(3, 1)
    m2 = combined(units, source).view(count, width, width, features).movedim(3, 1)
    k1 = (root * first.sum(2)).to(nodes.device, x.dtype)
    return MaskedMatrices(nodes, m1, m2, k1, combined(root * first.transpose(1, 2), source))


def masked_vectors(nodes: Tensor, own: Tensor, neighbors: Tensor, rng: torch.Generator) -> MaskedVectors:
    """Return (M1, M2, K1, K2, K3) of appendix F, with masks from ``rng``; other arguments as for
    :func:`masked_matrices`."""
    count, size, features = neighbors.shape
    width = 2 * size

    def normal(*shape: int) -> Tensor:
        return torch.randn(count, *shape, generator=rng, dtype=torch.float64).to(own)

    order = torch.rand(count, width, generator=rng).argsort(1).to(own.device)
    pair, sign = order // 2, (order % 2 * 2 - 1).to(own)
    u = torch.nn.functional.one_hot(pair, size).to(own)  # [P, 2b, b], columns u_j
    signed = u * sign.unsqueeze(2)  # columns +1, -1 on the pairs: orthogonal to every u_j
    v = u / 2 + signed @ normal(size, size)
    projection = v @ u.transpose(1, 2)
    leftover = torch.eye(width, dtype=own.dtype, device=own.device) - projection.transpose(1, 2)
    m1 = leftover @ normal(width, features) + u.sum(2, keepdim=True) * own.unsqueeze(1)
    m2 = leftover @ normal(width, features) + u @ neighbors
    k1 = signed @ normal(size, features) + u @ neighbors
    k3 = (signed @ normal(size, 1)).squeeze(2) + u.sum(2)
    return MaskedVectors(nodes, m1, m2, k1, projection, k3)


def announced(nodes: Tensor, size: int, features: int, variant: type[Masked], dtype: torch.dtype) -> Masked:
    """Return messages about ``nodes`` [P] without content (device "meta"), which only count on the wire.

    The tensors have the shapes of the payload ``variant`` for b = ``size`` neighbours and F = ``features``.
    """
    count, width = len(nodes), 2 * size

    def empty(*shape: int) -> Tensor:
        return torch.empty(count, *shape, dtype=dtype, device="meta")

    node = torch.empty(count, dtype=torch.long, device="meta")
    if variant is MaskedMatrices:
        square = (features, width, width)
        return MaskedMatrices(node, empty(*square), empty(*square), empty(width), empty(width, features))
    rows = (width, features)
    return MaskedVectors(node, empty(*rows), empty(*rows), empty(*rows), empty(width, width), empty(width))
