"""The scorer's side: the truth of a run, self-tests, and findings made of attacks' outputs."""

from __future__ import annotations

from fglaudit.scoring.output import Output
from fglaudit.scoring.score import Measurement, score
from fglaudit.scoring.truth import GroundTruth

__all__ = ["GroundTruth", "Measurement", "Output", "score"]
