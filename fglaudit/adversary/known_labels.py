"""Labels that an observer knows, whichever way it came by them."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.view import View


def known_labels(view: View) -> tuple[Tensor, Tensor]:
    """Return the nodes [K] whose labels the observer knows, from rows of its own or from the protocol, and their
    labels [K]. A node may stand there twice."""
    known = view.known_rows()
    nodes, y = torch.cat([known.nodes, view.labels.nodes]), torch.cat([known.y, view.labels.y])
    return nodes[y >= 0], y[y >= 0]
