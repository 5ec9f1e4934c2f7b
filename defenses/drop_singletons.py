"""Drop a node's only cross-client neighbour (FedGCN, section 4, footnote 2; FedGAT, privacy analysis).

A sum over one remote neighbour is that neighbour's feature row; dropping the edge removes it. Sums over two and more still
go out, and the subset-sum and row-space attacks show what they give away.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Context, Defense, DefenseSession


class _Session(DefenseSession):
    def prepare(self, client: ClientGraph) -> ClientGraph:
        """Return the client without the boundary edges of own nodes that have exactly one remote neighbour."""
        count = torch.bincount(client.boundary[0], minlength=len(client.nodes))
        boundary = client.boundary[:, count[client.boundary[0]] > 1]
        kept, position = torch.unique(boundary[1], return_inverse=True)
        return dataclasses.replace(
            client,
            remote_nodes=client.remote_nodes[kept],
            remote_degrees=None if client.remote_degrees is None else client.remote_degrees[kept],
            boundary=torch.stack([boundary[0], position]),
        )


@dataclass(frozen=True)
class DropSingletons(Defense):
    """A node with exactly one cross-client neighbour receives nothing from it. No epsilon is promised."""

    name: ClassVar[str] = "drop-singletons"

    def unsupported(self, context: Context) -> str | None:
        if not context.releases:
            return f"{context.protocol} sends no neighbour features with these settings, so there is nothing to drop"
        return None

    def bind(self, context: Context) -> DefenseSession:
        return _Session()
