"""FedGT's global nodes before any noise: subjects are client ids [S], an estimate is the codebook [S, n_g D].

Asked about are the last uploads of all clients that are not observing. The metric is the cosine with the truth, before
clipping; ``relative_error`` is the length of the error over the length of the truth. A guess knows nothing: zeros,
whose cosine counts as 0.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, ObserverTruth, Question, Scores, similarity_scores
from fglaudit.structure import Centroids
from fglaudit.view import View


class GlobalNodeValues(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "global-nodes"
    metric: ClassVar[str] = "cosine"

    def ask(self, truth: ObserverTruth) -> Question | str:
        if "global_nodes" not in truth.trained:
            return "this protocol has no global nodes"
        values = truth.trained["global_nodes"].flatten(1)
        others = truth.others()
        if len(others) == 0:
            return "there is no other client"
        return Question(others, values[others], truth.clusters_of(others))

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        stated = view.public.structure.of(Centroids)
        width = stated.count * stated.width
        return Inference(self.name, subjects, torch.zeros(len(subjects), width))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return similarity_scores(question, estimate)
