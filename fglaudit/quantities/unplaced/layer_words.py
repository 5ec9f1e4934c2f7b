"""Which words the rows have that clients' first layers read: :mod:`.layer_inputs` without sizes.

A row is exact if all its words are right. A guess has the words that are the most frequent in the rows that the
observer knows, as many as one of these has on average.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Inference
from fglaudit.quantities.base import ObserverTruth, Question
from fglaudit.quantities.unplaced.layer_inputs import LayerInputs
from fglaudit.quantities.unplaced.unplaced_rows import UnplacedRows
from fglaudit.view import View


class LayerWords(UnplacedRows):
    """See the module docstring."""

    name: ClassVar[str] = "layer-words"

    def ask(self, truth: ObserverTruth) -> Question | str:
        asked = LayerInputs().ask(truth)
        return asked if isinstance(asked, str) else dataclasses.replace(asked, truth=(asked.truth != 0).float())

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        known = view.known_rows().x
        words = torch.ones(view.public.num_features, dtype=torch.double)
        if len(known):
            has = (known != 0).double()
            typical = max(1, round(float(has.sum(1).mean().item())))
            words = torch.zeros_like(words).index_fill(0, has.mean(0).topk(min(typical, len(words))).indices, 1.0)
        return Inference(self.name, subjects, words.expand(len(subjects), -1))
