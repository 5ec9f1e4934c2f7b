"""Whose losses moved a classifier over public codes, and towards which labels.

A node's input to the linear classifier of ``structure-only`` and ``private-reports`` begins with propagated codes z_v,
which anybody who knows the edges can compute (:class:`fglaudit.structure.Codes`). The gradient of the weights that meet
them is ``sum over training nodes of z_v r_v'``, ``r_v`` the predicted probabilities less the one-hot label: few known
vectors with unknown weights. Over any number of steps of SGD they add up to ``-eta Z' R`` once the decay of the
weights is subtracted (:mod:`fglaudit.attacks.updates.input_layer`), whatever features stand beside the codes, and the
mean of all clients' models is of the same form. So :mod:`fglaudit.attacks.updates.sparse_rows` finds whose rows of R
are not 0, the training nodes; each has one negative entry, at its label.

Rows are at length 1 over the root of their number per node (``fglaudit.federated.home_head.joined``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.adversary.uploads.held import unknown_changes
from fglaudit.attacks.updates.input_layer import InputChange, first_layer_changes, unreadable_steps
from fglaudit.attacks.updates.sparse_rows import sparse_rows
from fglaudit.facts import GRADIENTS, Additive
from fglaudit.federated.home_head import joined
from fglaudit.nn.codes import public_codes
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import ModelUpdate
from fglaudit.sparse_tensors import csr
from fglaudit.structure import Codes
from fglaudit.view import View

KEPT, USED = 64, 30
"""Of how many rounds models are kept, and how many of those that moved these weights are read."""
_WEAK = 1e-6
"""Power, beside the largest of a client, below which nothing is said of a node."""
_ONE_SIDED = 0.1
"""Of a true row of R all entries but one are positive: none beside the smallest is below this share of it."""


class Gradients(NamedTuple):
    """What models show of every node.

    Attributes:
        power: of its row of R beside the largest of its client, the largest over clients; 0: none [N].
        sums: its row of R, summed over rounds, of the client where it has the most power [N, C].
    """

    power: Tensor
    sums: Tensor

    def labels(self) -> tuple[Tensor, Tensor]:
        """Return the nodes whose labels show, and these labels, [S] each."""
        values, order = self.sums.sort(1)
        sure = (values[:, 0] < 0) & (values[:, 1] >= _ONE_SIDED * values[:, 0])
        nodes = (sure & (self.power > _WEAK)).nonzero().squeeze(1)
        return nodes, order[nodes, 0]


def unreadable_codes(view: View) -> str | None:
    """Return why models show nobody's gradient, or None."""
    if missing := view.public.structure.missing(Codes):
        return missing
    codes = view.public.structure.of(Codes)
    if codes.width == 0 or not codes.read_after:
        return "no public codes are among the inputs of the models"
    if view.topology is None:
        return "codes are propagated over the whole graph, of which the observer does not know the edges"
    if (why := unreadable_steps(view) or unknown_changes(view)) is not None:
        return why
    if UploadClip.of(view, ModelUpdate) != UploadClip():
        return "changes of models are clipped, which scales the decay of their weights by an unknown factor"
    return None if code_changes(view, 1) else "the observer sees no two models of which one follows the other"


@once_per_view
def code_inputs(view: View, device: torch.device) -> Tensor:
    """Return every node's propagated codes as they stand in its input [N, D], in double precision."""
    codes = view.public.structure.of(Codes)
    return propagated(view, public_codes(view.public.num_nodes, codes.width, codes.seed).to(device), codes.read_after)


def propagated(view: View, rows: Tensor, read_after: Sequence[int]) -> Tensor:
    """Return ``rows`` [N, D] after each of these numbers of steps over the edges that the observer knows, as they stand
    in inputs [N, steps D], in double precision."""
    n = view.public.num_nodes
    row, column = known_edges(view).to(rows.device)
    scale = torch.bincount(row, minlength=n).double().rsqrt()
    step = csr(row_starts(row, n), column, scale[row] * scale[column], n)
    rows, read = rows.double(), []
    for hop in range(1, max(read_after) + 1):
        rows = step @ rows
        if hop in read_after:
            read.append(rows)
    return joined(read)


@once_per_view
def code_gradients(view: View, device: torch.device) -> Gradients:
    """Return what the models show."""
    n, classes = view.public.num_nodes, view.public.num_classes
    known = code_inputs(view, device)
    power, sums = known.new_zeros(n), known.new_zeros(n, classes)
    noisy = any(isinstance(fact, Additive) and fact.target == GRADIENTS for fact in view.public.facts)
    for found in code_changes(view, KEPT):
        moved = [c for c in torch.split(found.change.to(device), classes, 1) if float(c.abs().max().item()) > 0][:USED]
        if not moved:
            continue
        measured = torch.cat(moved, 1)
        error = max(found.error, _smallest(measured)) if noisy else found.error
        rows = sparse_rows(known, measured, error)
        if len(rows.nodes) == 0:
            continue
        share = rows.power / rows.power.max()
        more = share > power[rows.nodes]
        index = rows.nodes[more]
        power[index] = share[more]
        sums[index] = -rows.rows.view(len(more), -1, classes).sum(1)[more]
    return Gradients(power.cpu(), sums.cpu())


def code_changes(view: View, most: int) -> tuple[InputChange, ...]:
    """Return the changes of the weights that meet codes, in the first ``most`` rounds."""
    codes = view.public.structure.of(Codes)
    return first_layer_changes(view, most, codes.inputs_from, codes.inputs_from + codes.width * len(codes.read_after))


def _smallest(measured: Tensor) -> float:
    """Return about the errors' standard deviation where it is not stated: by the smaller singular values, which are
    those of errors alone unless there are more training nodes than columns."""
    values = torch.linalg.svdvals(measured)
    middle = float(values[len(values) // 2 :].median().item())
    return middle / math.sqrt(max(measured.shape))
