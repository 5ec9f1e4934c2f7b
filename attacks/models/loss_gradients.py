"""A client's update as a weighted sum of the loss gradients of single nodes, and the weights that explain it best.

A step of SGD moves the first layer of a 2-layer GCN, ``logits = A relu(S W_1) W_2`` with S = A X, by ``-eta`` times

    sum over nodes j of m_j G_j,   G_j = S' D_j,   row i of D_j = A_ij relu'(S_i W_1) * (W_2 (p_j - y_j)),

p_j the predictions, y_j the one-hot label and m_j the weight of node j's loss: one over the number of training nodes
for those, 0 for all others. Who knows rows, labels and edges knows every G_j, and the update is linear in m. Several
local steps are taken as one, at the model half way; dropout between the layers is left out, and what it changes is
noise. Rounds add up: m stays, the G_j do not.

Steps of Adam show of every entry of the sum little more than its sign (:mod:`fglaudit.attacks.models.adam_gradients`).

That a gradient is a sum over a batch whose members can be tested against it is what gradient inversion and membership
inference from updates rest on (Nasr, Shokri and Houmansadr, S&P 2019, section IV); here the sum is inverted as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fglaudit.adversary.uploads.adam_steps import stepped
from fglaudit.adversary.uploads.held import sent_models
from fglaudit.adversary.uploads.means import ModelRound, others_means
from fglaudit.nn.gcn_ensemble import SharedGraph
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import unflatten
from fglaudit.structure import Convolutions, Models, Training
from fglaudit.view import View

_LAYERS = 2
_POWER, _MARGIN = 10, 1.2


@dataclass(frozen=True)
class Gradients:
    """Uploads of K clients in one round, on the known graph of N nodes; who uploads may differ from round to round.

    Attributes:
        clients: [K]; -1 stands for the mean of all.
        seen: sums of gradients of the first layer [K, F, H], up to a factor that is the same in all rounds; of Adam
            their mean direction in a round's steps, in [-1, 1], 0 where there was no gradient.
        open: which hidden units are active [K, N, H].
        back: gradients of every node's loss at its hidden states [K, N, H].
        error: by how much ``seen`` is off, up to a factor [K, F, H]; None: by as much everywhere.
    """

    clients: Tensor
    seen: Tensor
    open: Tensor
    back: Tensor
    error: Tensor | None = None

    def weighted(self, residual: Tensor) -> Tensor:
        """Return ``residual`` [K, F, H] by the precision of what is seen."""
        return residual if self.error is None else residual / self.error.square()


def unreadable_updates(view: View, optimizers: Sequence[str] = ("sgd",)) -> str | None:
    """Return why uploads are no sums of loss gradients that can be told, by steps of ``optimizers``, or None."""
    structure = view.public.structure
    if (missing := structure.missing(Models, Convolutions, Training)) is not None:
        return missing
    if len(view.public.layout) != _LAYERS:
        return f"gradients are written out for a GCN of {_LAYERS} layers; this one has {len(view.public.layout)}"
    stated = structure.of(Training)
    if stated.optimizer not in optimizers:
        return f"updates are read as sums of gradients; these clients step with {stated.optimizer}"
    if (unusual := stated.unusual_adam()) is not None:
        return unusual
    odd = [name for name in ("momentum", "feature_dropout", "proximal") if getattr(stated, name)]
    if odd or stated.local_steps < 1:
        return f"updates are read as plain steps; these have {(odd or ['no stated number of local_steps'])[0]}"
    if view.topology is None:
        return "a node's gradient takes its neighbours; give the observer topology: true"
    if next(_rounds(view, 1), None) is None:
        return "the observer sees no two models of which one follows the other"
    return None


def gradients(view: View, graph: SharedGraph, y: Tensor, most: int) -> Iterator[Gradients]:
    """Yield what the first ``most`` rounds show, given rows, edges and labels [N] as the observer has them; a label of
    -1 has no loss."""
    stated = view.public.structure.of(Training)
    adam = stated.optimizer == "adam"
    left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
    halfway = (stated.local_steps - 1) / (2 * stated.local_steps)
    # Of an optimizer that goes on from round to round, later steps are of earlier gradients too.
    for clients, models in _rounds(view, 1 if adam and stated.keep_optimizer else most):
        received, changed = models.received.to(y.device), models.change.to(y.device)
        first, second = unflatten(received + halfway * changed, view.public.layout).values()
        came = next(iter(unflatten(received, view.public.layout).values()))
        change = next(iter(unflatten(changed, view.public.layout).values()))
        hidden = each(graph.adjacency, _shared(graph.x, first))
        logits = each(graph.adjacency, torch.bmm(hidden.relu(), second))
        wrong = logits.softmax(2)
        wrong[:, torch.arange(len(y)), y.clamp(min=0)] -= 1
        back = torch.bmm(wrong * (y >= 0)[:, None], second.transpose(1, 2))
        seen = stepped(view, models, came, change) if adam else (left - 1) * came - change
        yield Gradients(clients, seen / (stated.learning_rate * stated.local_steps), hidden > 0, back)


@dataclass(frozen=True)
class GradientSums:
    """The map from loss weights m [K, N] to the clients' sums of gradients over several rounds, [k, F, H] of the k
    clients that uploaded in a round.

    Attributes:
        sums: S [N, F].
        adjacency: A [N, N].
        rounds: what each round shows.
    """

    sums: SparseMatrix
    adjacency: SparseMatrix
    rounds: tuple[Gradients, ...]

    @cached_property
    def clients(self) -> Tensor:
        """Whoever uploaded in some round [K], ascending."""
        found: Tensor = torch.unique(torch.cat([one.clients for one in self.rounds]))
        return found

    @cached_property
    def places(self) -> tuple[Tensor, ...]:
        """Which of the :attr:`clients` uploaded in each round [k]."""
        device = self.rounds[0].seen.device
        return tuple(torch.searchsorted(self.clients, found.clients).to(device) for found in self.rounds)

    @staticmethod
    def of(x: Tensor, adjacency: SparseMatrix, rounds: tuple[Gradients, ...]) -> GradientSums:
        """Return the map for rows [N, F] and :attr:`fglaudit.nn.gcn_ensemble.SharedGraph.adjacency`."""
        sums = adjacency @ x.float()
        row, column = sums.nonzero(as_tuple=True)
        return GradientSums(
            SparseMatrix.from_entries(row, column, sums[row, column], (len(x), x.shape[1])), adjacency, rounds
        )

    @staticmethod
    def over(view: View, x: Tensor, y: Tensor, edges: Tensor, rounds: int) -> GradientSums:
        """Return the map in the first ``rounds`` if ``edges`` [2, E] carry rows [N, F] and labels [N]."""
        shared = SharedGraph.of(x, edges)
        return GradientSums.of(x, shared.adjacency, tuple(gradients(view, shared, y, rounds)))

    def energy(self) -> Tensor:
        """Return the sum of the squared entries of every column of S [F], in float64."""
        _, column, values = self._entries()
        total = torch.zeros(self.sums.transposed.shape[0], dtype=torch.double, device=column.device)
        return total.index_add_(0, column, values.double().square())

    def without(self, columns: Tensor) -> GradientSums:
        """Return the same without the entries of ``columns`` [c]: neither in S nor in what is seen."""
        row, column, values = self._entries()
        kept = ~torch.isin(column, columns)
        rounds = []
        for found in self.rounds:
            seen = found.seen.clone()
            seen[:, columns] = 0
            rounds.append(dataclasses.replace(found, seen=seen))
        shape = (self.sums.forward.shape[0], self.sums.forward.shape[1])
        left = SparseMatrix.from_entries(row[kept], column[kept], values[kept], shape)
        return GradientSums(left, self.adjacency, tuple(rounds))

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return node, column and value of every stored entry of S."""
        matrix = self.sums.transposed
        sizes = matrix.crow_indices().diff()
        column = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        return matrix.col_indices(), column, matrix.values()

    def at_inputs(self, weights: Tensor, found: Gradients) -> Tensor:
        """Return the gradients [k, N, H] at the first layer's outputs in a round, of losses with the ``weights`` [k, N]
        of its clients."""
        return found.open * each(self.adjacency, weights.unsqueeze(2) * found.back)

    def total(self, weights: Tensor) -> list[Tensor]:
        """Return the sums of gradients [k, F, H] of every round."""
        return [
            each(self.sums.T, self.at_inputs(weights[place], found))
            for place, found in zip(self.places, self.rounds, strict=True)
        ]

    def along(self, totals: list[Tensor]) -> Tensor:
        """Return the inner products [K, N] of every node's gradients with ``totals``, over all rounds: the adjoint."""
        found = self.rounds[0].seen.new_zeros(len(self.clients), self.rounds[0].back.shape[1])
        for part, place, shown in zip(totals, self.places, self.rounds, strict=True):
            one = (each(self.adjacency, shown.open * each(self.sums, part)) * shown.back).sum(2)
            found.index_add_(0, place, one)
        return found

    def weights(self, steps: int, price: float = 0.0) -> Tensor:
        """Return the loss weights [K, N], none of them negative, that explain the rounds best: accelerated projected
        gradients (FISTA; Beck and Teboulle, 2009), every client for itself.

        Args:
            price: how many squared errors a squared weight costs, per round in which its client uploaded.
        """
        clients, nodes = len(self.clients), self.rounds[0].back.shape[1]
        solution = before = self.rounds[0].seen.new_zeros(clients, nodes)
        ahead, pace = solution, 1.0
        ridge = price * torch.bincount(torch.cat(self.places), minlength=clients).to(solution).unsqueeze(1)
        rate = 1 / (self._steepest(nodes).unsqueeze(1) + ridge).clamp(min=1e-30)
        for _ in range(steps):
            residual = [
                found.weighted(found.seen - moved) for found, moved in zip(self.rounds, self.total(ahead), strict=True)
            ]
            solution = (ahead + rate * (self.along(residual) - ridge * ahead)).clamp(min=0)
            faster = (1 + (1 + 4 * pace**2) ** 0.5) / 2
            ahead = solution + (pace - 1) / faster * (solution - before)
            before, pace = solution, faster
        return solution

    def missed(self, weights: Tensor) -> float:
        """Return the share of the squared sums that loss ``weights`` [K, N] leave unexplained."""
        left = sum(
            _square(found, found.seen - total) for found, total in zip(self.rounds, self.total(weights), strict=True)
        )
        return left / max(sum(_square(found, found.seen) for found in self.rounds), 1e-300)

    def _steepest(self, nodes: int) -> Tensor:
        """Return an upper end of the map's squared singular values, per client [K]: power iteration, with a margin."""
        vector = torch.ones(len(self.clients), nodes, device=self.rounds[0].seen.device)
        size = vector.new_ones(len(vector))
        for _ in range(_POWER):
            moved = self.total(vector / vector.norm(dim=1, keepdim=True).clamp(min=1e-30))
            vector = self.along([found.weighted(part) for found, part in zip(self.rounds, moved, strict=True)])
            size = vector.norm(dim=1)
        return _MARGIN * size


def _square(found: Gradients, values: Tensor) -> float:
    """Return the sum of the squared ``values`` [K, F, H] by the precision of what is seen."""
    return float(found.weighted(values.double()).mul(values).sum().item())


def _rounds(view: View, most: int) -> Iterator[tuple[Tensor, ModelRound]]:
    """Yield clients and models of at most ``most`` rounds; where no single upload is seen, the global model's."""
    single = False
    for clients, models in sent_models(view, most):
        single = True
        yield clients, ModelRound(models.received.float(), models.change.float())
    if not single:
        for client, models in others_means(view, most):
            yield torch.tensor([client]), ModelRound(models.received.float(), models.change.float())


def each(matrix: SparseMatrix, values: Tensor) -> Tensor:
    """Return the product of ``matrix`` [R, C] with every one of ``values`` [K, C, d] as [K, R, d]."""
    clients, _, width = values.shape
    return (matrix @ values.transpose(0, 1).flatten(1).contiguous()).view(-1, clients, width).transpose(0, 1)


def _shared(x: SparseMatrix | Tensor, weight: Tensor) -> Tensor:
    """Return rows [N, F] times ``weight`` [K, F, H] as [K, N, H]."""
    clients, _, width = weight.shape
    return (x @ weight.transpose(0, 1).flatten(1).contiguous()).view(-1, clients, width).transpose(0, 1)
