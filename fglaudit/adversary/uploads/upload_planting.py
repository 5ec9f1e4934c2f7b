"""Self-test problems for attacks on uploads: a view with other messages, all of them in the clear."""

from __future__ import annotations

import dataclasses

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.view import View


def without_defense(view: View, messages: MemoryMessages) -> View:
    """Return ``view`` with these messages, all of them in the clear."""
    public = dataclasses.replace(view.public, facts=())
    return dataclasses.replace(view, messages=messages, public=public)
