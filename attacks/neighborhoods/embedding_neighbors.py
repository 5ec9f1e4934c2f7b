"""Edges between two nodes of other parties, inferred from their embeddings.

A client of FedGAT recovers the rows of its neighbours at other clients from masked messages
(:mod:`fglaudit.attacks.neighborhoods.joint_diagonalisation`, :mod:`fglaudit.attacks.neighborhoods.vector_columns`).
Their first-layer embeddings are means over their closed neighbourhoods: a row of one that explains the embedding of
another (:mod:`fglaudit.attacks.neighborhoods.embedding_members`) shows an edge between two nodes of which the client
owns neither. An edge that both embeddings show ranks above one that a single embedding shows; other pairs are not
listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_degrees, known_edges, knows_no_foreign_degree
from fglaudit.adversary.modelled import about, training_changed
from fglaudit.attacks.neighborhoods.embedding_assignment import FIRST_ROUNDS
from fglaudit.attacks.neighborhoods.embedding_equations import embedding_equations, missing_embeddings
from fglaudit.attacks.neighborhoods.embedding_members import explain
from fglaudit.attacks.neighborhoods.embedding_planting import plant_linked_embeddings
from fglaudit.attacks.neighborhoods.joint_diagonalisation import JointDiagonalisation
from fglaudit.attacks.neighborhoods.modelled_facts import changed_rows, received_models, sealed_finely
from fglaudit.attacks.neighborhoods.row_levels import as_sent, known_rows_as_sent
from fglaudit.attacks.neighborhoods.vector_columns import VectorColumns
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted, Reconstruction
from fglaudit.payloads import Embeddings, MaskedMatrices, MaskedVectors, ModelUpdate, Payload, RawFeatures
from fglaudit.view import View

_ROWS: tuple[Attack, ...] = (JointDiagonalisation(), VectorColumns())


@dataclass(frozen=True)
class EmbeddingNeighbors(Attack):
    """Find edges between nodes of others.

    Attributes:
        rounds: rounds of embeddings read, spread evenly over those kept.
    """

    name: ClassVar[str] = "embedding-neighbors"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Embeddings,)
    also_reads: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices, MaskedVectors, ModelUpdate, RawFeatures)
    first_rounds: ClassVar[int | None] = FIRST_ROUNDS
    metric: ClassVar[str] = "auc"
    quantity: ClassVar[str] = "edges"
    least: ClassVar[Mapping[str, float]] = {"rounds": 1}

    rounds: int = 6

    def models(self, fact: Fact) -> bool:
        """Embeddings are taken as they were computed, from rows as they are recovered and known; what hides edges from
        them is not modelled."""
        if about(fact, ModelUpdate):
            return received_models(fact)
        return changed_rows(fact) or training_changed(fact) or sealed_finely(fact, RawFeatures)

    def unsupported(self, view: View) -> str | None:
        if not view.own:
            return "without rows of its own the observer cannot tell what unknown rows are like"
        if knows_no_foreign_degree(view):
            return "without the degrees of other parties' nodes it is unknown of how many rows an embedding is the mean"
        if (missing := missing_embeddings(view)) is not None:
            return missing
        if view.public.num_features == 1 and view.public.features is not FeatureKind.REAL:
            return "rows of a single discrete feature are alike: none shows which node it is"
        reasons = [attack.unsupported(view) for attack in _ROWS]
        return reasons[0] if all(reasons) else None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        attack = next(attack for attack in _ROWS if attack.unsupported(view) is None)
        result = attack.run(view, rng=rng, device=device)
        equations = embedding_equations(view, self.rounds, FIRST_ROUNDS)
        assert isinstance(result, Reconstruction) and equations is not None
        known, degrees, n = known_rows_as_sent(view), known_degrees(view), view.public.num_nodes
        named = (result.nodes >= 0) & ~torch.isin(result.nodes, known.nodes)
        rows = torch.cat([known.x, as_sent(view, result.rows[named])])
        ids = torch.cat([known.nodes, result.nodes[named]])
        equations = equations.among((degrees[equations.nodes] >= 0) & torch.isin(equations.nodes, ids))
        if len(equations.nodes) == 0:
            return Inference(self.quantity, torch.empty(0, 2, dtype=torch.long), torch.empty(0, dtype=torch.double))
        place, column_of = torch.full((2, n), -1)
        place[equations.nodes] = torch.arange(len(equations.nodes))
        column_of[ids] = torch.arange(len(ids))
        given = torch.zeros(len(equations.nodes), len(ids), dtype=torch.long)
        row, column = known_edges(view)
        use = (place[row] >= 0) & (column_of[column] >= 0) & (row != column)
        given[place[row[use]], column_of[column[use]]] = 1
        options = torch.zeros(len(equations.nodes), len(ids), dtype=torch.bool)
        options[torch.arange(len(options)), column_of[equations.nodes]] = True
        candidates = torch.arange(len(ids)) >= len(known.nodes)
        membership = explain(equations, rows, known.x, given, options, candidates, degrees[equations.nodes] + 1)
        return self._pairs(equations.nodes, ids, membership.found & candidates & ~options, n)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_linked_embeddings(view, rng, self.rounds)

    def _pairs(self, nodes: Tensor, ids: Tensor, found: Tensor, n: int) -> Inference:
        """Return every pair of nodes that is found, with the number of embeddings that show it.

        Args:
            nodes: with embeddings [J].
            ids: nodes of the rows [T].
            found: which rows explain which embeddings [J, T].
            n: number of all nodes.
        """
        at, of = found.nonzero(as_tuple=True)
        first, second = nodes[at], ids[of]
        codes, witnesses = torch.unique(
            torch.minimum(first, second) * n + torch.maximum(first, second), return_counts=True
        )
        return Inference(self.quantity, torch.stack([codes // n, codes % n], 1), witnesses.double())
