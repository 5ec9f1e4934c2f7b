"""What a defense publishes about which rows are sent and how; attacks adapt to it (design, section 3, rule 4)."""

from __future__ import annotations

from fglaudit.view import View

_ROWS_STAY = ("none", "drop-singletons", "minimum-neighborhood")


def fewest_neighbors(view: View) -> int:
    """Return how many cross-client neighbours a node must have to receive anything from them; 1 where nothing is dropped."""
    return int(view.public.defense_parameters.get("fewest", 1))


def rows_stay(view: View) -> bool:
    """Whether the rows that do enter messages are those that their owners hold, in every entry."""
    return view.public.defense in _ROWS_STAY
