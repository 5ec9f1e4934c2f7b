"""What an attack infers, read from its source: rows of attacks that did not apply say no quantity of their own."""

from __future__ import annotations

from functools import cache

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.plugins.class_source import UnreadableError, class_source

FEATURES = "features"


@cache
def attack_quantity(name: str) -> str:
    """Return the class attribute ``quantity`` of the attack ``name``; "features", its default, for unknown attacks.

    No attack is imported: reports are made where plugins of others may be missing.
    """
    try:
        if name not in registry.names("attack"):
            return FEATURES
        module, _, cls = registry.target("attack", name).partition(":")
        return str(class_source(module, cls).constant("quantity") or FEATURES)
    except (FglauditError, UnreadableError):
        return FEATURES
