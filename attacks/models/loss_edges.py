"""Over which edges a node's loss, as the clients computed it, sees its neighbours.

Where nothing of other clients' nodes enters a loss (FedGCN without hops), edges between clients have no part in it.
Which these are is not known to an observer that does not know who holds whom. With K clients, of whom each is as likely
to hold a node as another, a neighbour takes part with chance 1 / K: models are then better read on the rows alone than
on all edges, which show what the model says of nodes that it has never seen so.
"""

from __future__ import annotations

from torch import Tensor

from fglaudit.structure import BoundaryRows, Sums
from fglaudit.view import View


def own_edges_alone(view: View) -> bool:
    """Whether nothing of other clients' nodes enters a loss."""
    structure = view.public.structure
    return structure.get(Sums) is None and structure.get(BoundaryRows) is None


def read_edges(view: View, edges: Tensor) -> Tensor:
    """Return those of the known ``edges`` [2, E] over which a model is read where only its outputs are seen."""
    return edges[:, :0] if own_edges_alone(view) and view.public.num_clients > 1 else edges


def possible_edges(view: View, edges: Tensor) -> tuple[Tensor, ...]:
    """Return the sets of edges that losses may have seen, to be chosen from by what explains uploads best."""
    return (edges, edges[:, :0]) if own_edges_alone(view) else (edges,)
