"""The public rules of a defense: which rows are sent, and how. Attacks adapt to them (design, section 3, rule 4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.graph import ClientGraph
from fglaudit.payloads import Payload
from fglaudit.privacy.degree_bound import bound_degrees
from fglaudit.view import View

_ROWS_UNALTERED = ("none", "drop-singletons", "minimum-neighborhood", "secure-aggregation", "dp-sgd", "dp-fedavg")


def fewest_neighbors(view: View) -> int:
    """Return how many cross-client neighbours a node needs to receive anything from them; 1 if nothing is dropped."""
    return int(view.public.defense_parameters.get("fewest", 1))


def bounded_degrees(view: View) -> bool:
    """Whether clients drop edges until no node has more neighbours than a bound."""
    return "degree_bound" in view.public.defense_parameters


def own_graphs(view: View) -> tuple[ClientGraph, ...]:
    """Return the observing clients' graphs with the edges that the defense leaves."""
    if not bounded_degrees(view):
        return view.own
    facts = view.public.defense_parameters
    return tuple(bound_degrees(client, int(facts["degree_bound"]), int(facts["seed"])) for client in view.own)


def absent_clients(view: View, payload: type[Payload]) -> Tensor:
    """Return the clients whose messages with ``payload`` were left out of all sums, because they dropped out."""
    absent = view.public.defense_parameters.get("absent", {})
    return torch.tensor(absent.get(payload.__name__, ()), dtype=torch.long)


def rounding_of_sums(view: View, payload: type[Payload]) -> float:
    """Return the error of a sum over clients that the defense's rounding causes, beyond rounding to float32."""
    rounding: float = view.public.defense_parameters.get("rounding", {}).get(payload.__name__, 0.0)
    return rounding


def rows_unaltered(view: View) -> bool:
    """Whether the rows that enter messages are those that their owners hold, in every entry."""
    return view.public.defense in _ROWS_UNALTERED


def norm_bound(view: View) -> float:
    """Return the norm to which the defense clipped rows before anything was computed from them."""
    return float(view.public.defense_parameters.get("row_norm", math.inf))
