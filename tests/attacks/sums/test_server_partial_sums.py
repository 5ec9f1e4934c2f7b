"""Rows out of partial sums: what a sum that no term is told of says, and what a row without entries shows."""

from __future__ import annotations

import torch

from fglaudit.attacks.sums.server_partial_sums import read_parts
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer


def test_a_sum_of_which_no_term_is_told_says_nothing_of_its_row() -> None:
    """A row of two words over three neighbours (1/4 each), a sum of noise, and a row without words: the second is left
    out. It was called a row without words, so that noise beat a guess where some rows have none."""
    view = record(FedGCN(hops=1, rounds=1), example_graph()).view(Observer((SERVER,)))
    parts = torch.zeros(3, view.public.num_features, dtype=torch.double)
    parts[0, :2] = 0.25
    parts[1] = torch.linspace(0.26, 0.32, view.public.num_features, dtype=torch.double)
    found = read_parts(view, torch.tensor([5, 6, 7]), parts, torch.zeros(3, dtype=torch.double), 1e-6)
    assert found.nodes.tolist() == [5, 7]
    assert found.rows[0].nonzero().squeeze(1).tolist() == [0, 1] and not bool(found.rows[1].any())
