"""Typed public statements of what happens to a payload between its owner and the wire: noise, clip, rounding, drop ...

A defense states its facts in the order in which they apply (``DefenseSession.facts``); attacks read them and say
which of them they allow for (``Attack.models``). Nothing is believed unobserved: every fact can be compared with what
entered and left the defense's hooks (:mod:`fglaudit.wire.observing.observed`). The list is closed for what is built
in; a plugin may subclass :class:`Fact`, and nobody models its fact until an attack does.
"""

from fglaudit.facts.base import Fact, Unstated
from fglaudit.facts.edges import DegreeBound, DroppedEdges, Merged
from fglaudit.facts.lookup import KINDS, before_noise, first, is_built_in, kind_of, name_of, on, rebuilt
from fglaudit.facts.messages import LARGEST_FLOODING, Absent, Foreign, Sealed
from fglaudit.facts.noise import Additive, Correlated, Masked, Memoised
from fglaudit.facts.targets import EDGES, GRADIENTS, ROWS, Edges, Field, Gradients, Rows, Target
from fglaudit.facts.values import K_ARY, MULTI_BIT, NORMS, Clipped, KeptColumns, Randomised, Rounded, Sampled, Scaled

__all__ = [
    "EDGES",
    "GRADIENTS",
    "KINDS",
    "K_ARY",
    "LARGEST_FLOODING",
    "MULTI_BIT",
    "NORMS",
    "ROWS",
    "Absent",
    "Additive",
    "Clipped",
    "Correlated",
    "DegreeBound",
    "DroppedEdges",
    "Edges",
    "Fact",
    "Field",
    "Foreign",
    "Gradients",
    "KeptColumns",
    "Masked",
    "Memoised",
    "Merged",
    "Randomised",
    "Rounded",
    "Rows",
    "Sampled",
    "Scaled",
    "Sealed",
    "Target",
    "Unstated",
    "before_noise",
    "first",
    "is_built_in",
    "kind_of",
    "name_of",
    "on",
    "rebuilt",
]
