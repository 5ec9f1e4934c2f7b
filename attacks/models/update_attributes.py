"""Sensitive attributes from uploads: the one row of the first layer's gradient that belongs to the column.

The gradient of the first layer's weights is ``S' D`` (:mod:`fglaudit.attacks.models.loss_gradients`): its row f is
``(A D)' x_f``, linear in the column x_f of the features and in nothing else that is hidden. An observer who knows
everything but some entries of a few columns first finds the loss weights, so D, from the columns that it knows, and
then has H equations per client and round in the entries that it lacks. They are solved by least squares around what
imputation says (a Gaussian posterior): prior mean and error are the control's, the equations' error is what the known
columns leave unexplained. Over which edges losses see rows is chosen as in
:mod:`fglaudit.attacks.models.update_members`. ``fglaudit run attributes`` measures it on Cora.

Of steps of Adam the signs are read, with the sizes that entries typically have
(:mod:`fglaudit.attacks.models.adam_gradients`); the error is then that of each size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.priors.imputation import imputed
from fglaudit.attacks.models.loss_edges import possible_edges
from fglaudit.attacks.models.loss_gradients import GradientSums, each, unreadable_updates
from fglaudit.attacks.models.planting import taught_view, without_edges
from fglaudit.attacks.models.shadow_federations import KnownGraph
from fglaudit.attacks.models.upload_attack import OPTIMIZERS, Explained, UploadAttack, taught
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Inference, Planted
from fglaudit.rng import split
from fglaudit.view import Auxiliary, PartialRows, View

_PLANTED = 12


@dataclass(frozen=True)
class UpdateAttributes(UploadAttack):
    """Infer sensitive entries of otherwise known rows from uploads."""

    name: ClassVar[str] = "update-attributes"
    quantity: ClassVar[str] = "attributes"

    def unsupported(self, view: View) -> str | None:
        if view.partial is None or not len(view.partial.nodes):
            return "no row is known in part; name columns that the observer lacks, e.g. sensitive: [0]"
        if view.public.features is FeatureKind.SCALED_BINARY:
            return "rows that are scaled to a sum of 1 show in their other entries what is missing"
        if not len(view.known_rows().nodes):
            return "the weights of losses are learned with rows that are known whole; give the observer some"
        return unreadable_updates(view, OPTIMIZERS)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        partial, guess = view.partial, imputed(view)
        assert partial is not None  # see unsupported
        graph = KnownGraph.of(_filled(view, partial, guess.values), split(rng, "known graph"))
        x, y, edges = (part.to(device) for part in (graph.x, graph.y, graph.edges))
        columns = partial.columns.to(device)
        unknown = torch.zeros(len(x), dtype=torch.bool)
        unknown[partial.nodes] = unknown[graph.made_up] = True
        spread = torch.zeros(len(x), len(columns), dtype=torch.double)
        spread[unknown] = guess.variance
        tried = (Explained.of(view, x, y, part, self.rounds, columns) for part in possible_edges(view, edges))
        best = min(tried, key=lambda one: one.missed)
        estimate = _posterior(best.sums, best.weights, x, columns, spread.to(device)).cpu()
        subjects = torch.cartesian_prod(partial.nodes, partial.columns)
        return Inference(type(self).quantity, subjects, estimate[partial.nodes].flatten())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant nodes without edges and with random entries, all in training; of every second one the sensitive columns
        are not known."""
        rng, public, partial = split(rng, "plant"), view.public, view.partial
        assert partial is not None  # see unsupported
        bare, others = without_edges(view)
        chosen = others[torch.randperm(len(others), generator=rng)[:_PLANTED]].sort().values
        x = torch.zeros(public.num_nodes, public.num_features)
        x[chosen] = (torch.rand(len(chosen), public.num_features, generator=rng) < 0.5).float()
        half = torch.arange(len(chosen)) % 2 == 1
        bits = (torch.arange(len(chosen)) // 2 % 2).float()  # as many high as low among those that are asked about
        x[chosen[:, None], partial.columns] = bits[:, None].expand(-1, len(partial.columns))
        y = torch.full((public.num_nodes,), -1)
        y[chosen] = torch.randint(public.num_classes, (len(chosen),), generator=rng)
        known, hidden = PartialRows.apart(Auxiliary(chosen, x[chosen], y[chosen]), tuple(partial.columns.tolist()))
        assert hidden is not None and torch.equal(hidden.nodes, chosen[half])
        bare = dataclasses.replace(bare, auxiliary=known, partial=hidden)
        whole = dataclasses.replace(bare, auxiliary=Auxiliary(chosen, x[chosen], y[chosen]), partial=None)
        graph = dataclasses.replace(KnownGraph.of(whole, split(rng, "known graph")), x=x)
        planted, _ = taught_view(bare, graph, chosen, rng, taught(view), knows=whole)
        subjects = torch.cartesian_prod(hidden.nodes, hidden.columns)
        return Planted(planted, x[subjects[:, 0], subjects[:, 1]].double(), subjects)


def _filled(view: View, partial: PartialRows, values: Tensor) -> View:
    """Return ``view`` with the imputed ``values`` [P, c] in place of what is hidden, all rows as auxiliary ones."""
    rows = partial.x.clone()
    rows[:, partial.columns] = values.to(rows)
    known = view.auxiliary
    nodes, order = torch.cat([known.nodes, partial.nodes]).sort()
    x, y = torch.cat([known.x, rows])[order], torch.cat([known.y, partial.y])[order]
    return dataclasses.replace(view, auxiliary=Auxiliary(nodes, x, y), partial=None)


def _posterior(sums: GradientSums, weights: Tensor, x: Tensor, columns: Tensor, spread: Tensor) -> Tensor:
    """Return the posterior mean [N, c] of the sensitive ``columns`` of ``x`` [N, F].

    Args:
        weights: of losses [K, N].
        spread: prior variance [N, c], 0 where an entry is known; ``x`` is the prior mean.
    """
    prior = x[:, columns].double()
    unknown = spread.amax(1) > 0
    precision = (1 / spread[unknown].clamp(min=1e-12)).T  # [c, U]
    slope = torch.zeros_like(prior[unknown]).T
    matrix = torch.diag_embed(precision)
    energy = sums.energy()
    known = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
    known[columns] = False
    for found, who, total in zip(sums.rounds, sums.places, sums.total(weights), strict=True):
        equations = each(sums.adjacency, sums.at_inputs(weights[who], found)).double()  # [k, N, H]
        missed = (found.seen - total).double()  # [k, F, H]
        # The error to reckon with is what known columns leave unexplained: per unit of a column's squared sums, or of
        # the squared error of what a step of Adam shows.
        unit = energy[:, None].expand_as(missed) if found.error is None else found.error.double().square()
        noise = missed[:, known].square().sum((1, 2)) / unit[:, known].sum((1, 2)).clamp(min=1e-30)
        rows = equations.transpose(1, 2)[:, :, unknown]  # [k, H, U]
        for place, column in enumerate(columns.tolist()):
            error = (noise[:, None] * unit[:, column]).clamp(min=1e-20).sqrt()  # [k, H]
            scaled = (rows / error[..., None]).flatten(0, 1)
            left = (missed[:, column] / error).flatten()
            matrix[place] += scaled.T @ scaled
            slope[place] += scaled.T @ left
    moved = torch.linalg.solve(matrix, slope)
    posterior = prior.clone()
    posterior[unknown] += moved.T
    return posterior
