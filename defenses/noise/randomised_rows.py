"""Feature rows randomised at the client before anything is computed from them: local privacy for every protocol.

Whatever is sent later is computed from the randomised rows, and so is covered by the same epsilon, for any number of
rounds (post-processing; Dwork and Roth 2014, proposition 2.1). The record is all feature rows of one node, replaced by
any others; a node that several clients hold, or that has several samples, spends its budget on all of its rows together
(``Context.rows_per_node``). Edges and labels are public to the guarantee.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession, Guarantee


class LocalSession(DefenseSession):
    """Randomises rows in :meth:`prepare`.

    Args:
        context: of the run; epsilon is stated only if every client was prepared.
        promise: what is then guaranteed.
    """

    def __init__(self, context: Context, promise: Guarantee) -> None:
        self._clients = context.num_clients
        self._prepared: set[int] = set()
        self._promise = promise

    @abstractmethod
    def randomised(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        """Return ``rows`` [R, F] randomised, each with draws of its own."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Return the client with randomised rows."""
        self._prepared.add(client.client)
        rows = client.x.reshape(-1, client.x.shape[-1])
        return dataclasses.replace(client, x=self.randomised(rows, rng).to(client.x).view_as(client.x))

    def guarantee(self) -> Guarantee:
        if len(self._prepared) == self._clients:
            return self._promise
        open_clients = f"{self._clients - len(self._prepared)} of {self._clients} clients used their rows as they are"
        return dataclasses.replace(
            self._promise, mechanism=f"{self._promise.mechanism}; {open_clients}", epsilon_accounted=None
        )


def nothing_sent(context: Context) -> str | None:
    """Return why there is nothing to protect, or None."""
    if not context.sends:
        return f"{context.protocol} sends nothing, so its rows need no protection"
    if not context.features_used:
        return f"feature rows enter nothing that {context.protocol} sends or trains on, so they need no protection"
    return None
