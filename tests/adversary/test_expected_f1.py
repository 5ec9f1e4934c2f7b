"""The entries with the best expected F1, worked out by hand."""

from __future__ import annotations

import torch

from fglaudit.adversary.priors.expected_f1 import best_f1_bits


def test_as_many_of_the_most_probable_entries_as_f1_is_best_for() -> None:
    """Of 0.9, 0.6, 0.35, 0.1 the best 1 to 4 have 2 sum / (m + 1.95): 0.61, 0.76, 0.75, 0.66."""
    chance = torch.tensor([[0.35, 0.9, 0.1, 0.6], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]])
    assert best_f1_bits(chance).tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]]
    assert best_f1_bits(chance, most=1).sum(1).tolist() == [1, 0, 1]
