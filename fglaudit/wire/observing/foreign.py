"""Which sessions were not written here: their hooks are asked again, and what they send is not believed unobserved."""

from __future__ import annotations

import sys
from types import FunctionType

from fglaudit.interfaces import DefenseSession
from fglaudit.wire.observing.held_objects import known_class, known_function, objects

_SCHEMES = ("_sealapi_cpp", "cryptography")
"""Libraries of which sealing sessions hold keys, encoders and ciphers."""


def is_foreign(session: DefenseSession) -> bool:
    """Whether ``session`` or anything that it holds, a mechanism or a function say, is of code that was not written
    here: what a session of this package does is done by its parts."""
    kind = type(session)
    home = sys.modules.get(kind.__module__)
    here = kind.__module__.partition(".")[0] == "fglaudit" and getattr(home, kind.__name__, None) is kind
    return not here or any(map(_of_others, objects(session)))


def _of_others(held: object) -> bool:
    if isinstance(held, FunctionType):
        return not known_function(held)
    return not known_class(type(held), _SCHEMES)
