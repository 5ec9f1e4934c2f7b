"""A GCN (Kipf and Welling 2017) of K clients at once, evaluated only on the rows that the wanted outputs depend on.

Rows are padded to the same number per client, so a layer is one batched product: ``[K, R, in] x [K, in, out]``.
Propagation is one sparse matrix over all clients. The first layer's input is already propagated (the neighbour sums);
it stays sparse where few entries are non-zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.nn.shared_rows import SharedRows
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import NORM

SPARSE_BELOW = 0.25
"""Share of non-zero inputs under which the first layer multiplies them as a sparse matrix."""
NORM_FLOOR = 1e-5
"""Added to variances by batch normalisation, torch's default."""


@dataclass(frozen=True)
class Propagation:
    """The layers after the first: entries ``A[row, column] = weight`` [e] among M rows, owned by ``client`` [M]."""

    row: Tensor
    column: Tensor
    weight: Tensor
    client: Tensor
    num_clients: int


@dataclass(frozen=True)
class Field:
    """The receptive field of some target rows, padded per client.

    Attributes:
        inputs: first-layer input of the rows needed, [K R_1, K F] block-diagonal or dense [K, R_1, F].
        adjacency: per later layer, from the padded rows of the layer below to its own.
        rows: padded row counts R_1 ... R_L; the last are the targets.
        labels: [K, R_L]; 0 where padded.
        mask: [K, R_L], True for targets.
        held: per layer but the last, rows of every client [K]; what follows them is padding.
        drawn: per layer but the last, for how many rows of a client dropout is drawn; empty: for ``rows``. Clients that
            are taken a few at a time are padded less, and are to draw what they would draw all together.
    """

    inputs: SparseMatrix | SharedRows | Tensor
    adjacency: tuple[SparseMatrix, ...]
    rows: tuple[int, ...]
    labels: Tensor
    mask: Tensor
    held: tuple[Tensor, ...] = ()
    drawn: tuple[int, ...] = ()

    @cached_property
    def counts(self) -> Tensor:
        """Targets per client [K]."""
        return self.mask.sum(1)

    @cached_property
    def share(self) -> Tensor:
        """Share of every target in its client's mean [K, R_L]; 0 where padded."""
        return self.mask / self.counts.clamp(min=1).unsqueeze(1)


def needed_rows(graph: Propagation, targets: Tensor, layers: int) -> list[Tensor]:
    """Return, for layers 1 ... L, the mask [M] of rows whose outputs the ``targets`` [M] depend on."""
    masks = [targets]
    for _ in range(layers - 1):
        below = torch.zeros_like(targets)
        below[graph.column[masks[0][graph.row]]] = True
        masks.insert(0, below)
    return masks


def build_field(
    graph: Propagation, inputs: Tensor | SharedRows, held: Tensor, masks: list[Tensor], labels: Tensor
) -> Field:
    """Cut the receptive field of the targets out of all rows.

    Args:
        inputs: rows [H, F] of which ``held`` [M] gives the position of every row, -1 where it was not kept.
        masks: [M] per layer, from :func:`needed_rows`.
        labels: [M].
    """
    clients = graph.num_clients
    places, sizes, counts = zip(*(_padded(graph.client, mask, clients) for mask in masks), strict=True)
    adjacency = []
    for layer in range(1, len(masks)):
        used = masks[layer][graph.row]
        row, column = places[layer][graph.row[used]], places[layer - 1][graph.column[used]]
        shape = (clients * sizes[layer], clients * sizes[layer - 1])
        adjacency.append(SparseMatrix.from_entries(row, column, graph.weight[used], shape))
    target = places[-1][masks[-1]]
    padded_labels = labels.new_zeros(clients * sizes[-1])
    padded_labels[target] = labels[masks[-1]]
    mask = torch.zeros_like(padded_labels, dtype=torch.bool)
    mask[target] = True
    first = masks[0].nonzero().squeeze(1)
    at = places[0][first], graph.client[first], clients, sizes[0]
    rows = inputs[held[first]]
    return Field(
        inputs=client_inputs(rows, *at) if isinstance(rows, Tensor) else shared_inputs(rows, *at),
        adjacency=tuple(adjacency),
        rows=tuple(sizes),
        labels=padded_labels.view(clients, -1),
        mask=mask.view(clients, -1),
        held=counts[:-1],
    )


def _padded(client: Tensor, mask: Tensor, num_clients: int) -> tuple[Tensor, int, Tensor]:
    """Return the place [M] of every masked row in a [K, R] grid (rows are ordered by client), R (at least 1), and how
    many rows every client has [K]: the first of its line."""
    counts = torch.bincount(client[mask], minlength=num_clients)
    size = max(1, int(counts.max().item()))
    rank = mask.long().cumsum(0) - 1 - (counts.cumsum(0) - counts)[client]
    return client * size + rank, size, counts


def client_inputs(inputs: Tensor, places: Tensor, client: Tensor, num_clients: int, size: int) -> SparseMatrix | Tensor:
    """Return rows ``inputs`` [H, F] of ``client`` [H] at their padded ``places`` [H], with R = ``size``.

    The result is block-diagonal and sparse [K R, K F] if few entries are non-zero, else dense [K, R, F].
    """
    features = inputs.shape[1]
    # Counted first: the places of all entries of dense rows take four times the memory of the rows.
    if int(torch.count_nonzero(inputs).item()) > SPARSE_BELOW * inputs.numel():
        dense = inputs.new_zeros(num_clients * size, features)
        dense[places] = inputs
        return dense.view(num_clients, size, features)
    row, column = inputs.nonzero(as_tuple=True)
    shape = (num_clients * size, num_clients * features)
    return SparseMatrix.from_entries(places[row], client[row] * features + column, inputs[row, column], shape)


def shared_inputs(
    inputs: SharedRows, places: Tensor, client: Tensor, num_clients: int, size: int
) -> SparseMatrix | SharedRows | Tensor:
    """Return what :func:`client_inputs` does, but rows that are not sparse stay in the table [K, R, F]."""
    if inputs.density <= SPARSE_BELOW:
        return client_inputs(inputs.dense(), places, client, num_clients, size)
    # Nothing reads the rows of padding, and no gradient comes from there: the table's first row is as good as any.
    index = inputs.index.new_zeros(num_clients * size)
    index[places] = inputs.index
    return SharedRows(inputs.table, index.view(num_clients, size), inputs.density)


def logits(
    field: Field, weights: Mapping[str, Tensor], dropout: float = 0.0, rng: torch.Generator | None = None
) -> Tensor:
    """Return the targets' logits [K, R_L, classes].

    Args:
        weights: [K, in, out] per layer, in order; where they have scales and shifts (``NORM``), the layer before is
            normalised by :func:`batch_norm`.
        dropout: share of hidden units dropped between layers (as in the paper, none on the input).
        rng: draws the dropout; on the device of the weights. None evaluates.
    """
    first, *later = (weight for name, weight in weights.items() if not name.endswith(NORM))
    norms = [weight for name, weight in weights.items() if name.endswith(NORM)]
    if isinstance(field.inputs, SparseMatrix):
        hidden = (field.inputs @ first.flatten(0, 1)).view(len(first), field.rows[0], -1)
    else:
        hidden = field.inputs @ first
    drawn = field.drawn or field.rows[:-1]
    for layer, (adjacency, draws, rows, weight) in enumerate(
        zip(field.adjacency, drawn, field.rows[1:], later, strict=True)
    ):
        if norms:
            present = torch.arange(hidden.shape[1], device=hidden.device) < field.held[layer].unsqueeze(1)
            hidden = batch_norm(hidden, present, norms[layer])
        hidden = functional.relu(hidden)
        if rng is not None and dropout > 0:
            clients, held, width = hidden.shape
            drawn_rows = torch.rand(clients, draws, width, generator=rng, device=hidden.device)[:, :held]
            kept = drawn_rows.ge_(dropout)  # as numbers: products with flags first make numbers of them
            hidden = hidden * kept / (1 - dropout)
        hidden = (adjacency @ (hidden @ weight).flatten(0, 1)).view(len(weight), rows, -1)
    return hidden


def batch_norm(hidden: Tensor, present: Tensor, scale_shift: Tensor) -> Tensor:
    """Normalise every client's hidden units by their mean and variance over its rows (Ioffe and Szegedy 2015).

    Nothing is kept between steps: a client has all of its rows in every step, in tests too.

    Args:
        hidden: [K, R, d].
        present: which rows count [K, R].
        scale_shift: [K, 2, d].
    """
    share = (present / present.sum(1, keepdim=True).clamp(min=1)).unsqueeze(2)
    centred = hidden - (hidden * share).sum(1, keepdim=True)
    variance = (centred.square() * share).sum(1, keepdim=True)
    return centred * (variance + NORM_FLOOR).rsqrt() * scale_shift[:, :1] + scale_shift[:, 1:]


def loss(field: Field, outputs: Tensor) -> Tensor:
    """Return the sum over clients of the mean cross-entropy over a client's targets; a client without targets adds 0.

    No weight belongs to two clients, so the gradient of the sum is every client's own gradient.
    """
    return (losses(field, outputs) * field.share).sum()


def losses(field: Field, outputs: Tensor) -> Tensor:
    """Return the cross-entropy of every target [K, R_L] from logits [K, R_L, classes]; padded entries are arbitrary."""
    each = functional.cross_entropy(outputs.flatten(0, 1), field.labels.flatten(), reduction="none")
    return each.view_as(field.mask)
