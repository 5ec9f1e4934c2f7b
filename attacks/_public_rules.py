"""What a defense publishes about which rows are sent and how; attacks adapt to it (design, section 3, rule 4)."""

from __future__ import annotations

from collections.abc import Mapping

from fglaudit.payloads import Payload
from fglaudit.view import View

_FLOODED = 8.0
"""Standard deviations of flooding noise that are taken for its largest value."""
_ROWS_STAY = ("none", "drop-singletons", "minimum-neighborhood")


def fewest_neighbors(view: View) -> int:
    """Return how many cross-client neighbours a node must have to receive anything from them; 1 where nothing is dropped."""
    return int(view.public.defense_parameters.get("fewest", 1))


def summand_error(view: View, payload: type[Payload]) -> float:
    """Return the largest error that encryption or secure aggregation adds to what each sender puts into a sum: half a step of
    fixed point; of approximate ciphertexts the noise that hides their own errors."""
    facts, name = view.public.defense_parameters, payload.__name__
    steps = facts.get("resolution", {})
    step = float(facts.get(f"step of {name}", steps.get(name, 0.0) if isinstance(steps, Mapping) else 0.0))
    return step / 2 + _FLOODED * float(facts.get(f"flooding of {name}", 0.0))


def rows_stay(view: View) -> bool:
    """Whether the rows that do enter messages are those that their owners hold, in every entry."""
    return view.public.defense in _ROWS_STAY
