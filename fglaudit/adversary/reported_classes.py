"""The classes that nodes report, as an observer sees them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.payloads import ClassReports
from fglaudit.view import View


class Seen(NamedTuple):
    """The last report of each node [R]: its id, and the class reported [R]."""

    nodes: Tensor
    reported: Tensor


def seen_reports(view: View) -> Seen:
    """Return the reports that the observer sees of any node, its own included, ascending."""
    last = torch.full((view.public.num_nodes,), -1)
    for _, payload in view.sent(ClassReports):
        last[payload.nodes] = payload.values.argmax(1)
    nodes = (last >= 0).nonzero().squeeze(1)
    return Seen(nodes, last[nodes])
