"""From an entry of a suite's key ``server`` to a behaviour."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from fglaudit.errors import FglauditError, meant, shown, unknown
from fglaudit.parties import HONEST, SERVERS
from fglaudit.parties.base import Behaviour
from fglaudit.registry import construct


def behaviour(entry: str | Mapping[str, Any], where: str = "server") -> Behaviour | None:
    """Return what an entry of the key ``server`` names; None for honest parties.

    Raises:
        FglauditError: an unknown name or field, or a value that the behaviour refuses.
    """
    fields = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
    name = fields.pop("name", None)
    if name == HONEST and not fields:
        return None
    if not isinstance(name, str):
        slip = meant(fields, "name")
        raise FglauditError(f"{where}: a behaviour needs a name; got {shown(entry)}{slip or '; write e.g. honest'}")
    if name == HONEST:
        raise FglauditError(f"{where}: honest parties have no fields; got {shown(fields)}; remove them")
    if name not in SERVERS:
        raise FglauditError(f"{where}: {unknown('behaviour', name, [HONEST, *SERVERS])}")
    module, _, cls = SERVERS[name].partition(":")
    built: Behaviour = construct(getattr(importlib.import_module(module), cls), f"behaviour {name!r}", fields, where)
    return built
