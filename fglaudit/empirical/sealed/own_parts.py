"""Is what seals this tool's own, and nothing else? A codec, keys or an aggregation to which an author adds something, a
key in the server's context say, or a method of its own, is no longer what is known here.

Each is compared with a fresh one of the same class: what it holds must have the same names, and be of the same classes.
"""

from __future__ import annotations

from collections.abc import Iterator

from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, MaskingSession
from fglaudit.he.bfv import Bfv
from fglaudit.he.ckks import Ckks
from fglaudit.he.codec import Codec
from fglaudit.interfaces import DefenseSession


def changed_codec(codec: Codec) -> str:
    """Return in words what of a codec of SEAL's is not as this tool makes it; else empty."""
    if not isinstance(codec, (Bfv, Ckks)):
        return ""
    fresh = codec_like(codec)
    found = _changed(codec, fresh), _changed(codec.keys, fresh.keys), _changed(codec.server, fresh.server)
    return _first(*found) or ("" if codec.keys.own_keys() else "a key is not the one that SEAL drew for this tool")


def codec_like(codec: Bfv | Ckks) -> Bfv | Ckks:
    """Return a new codec, with keys of its own, of the same class and parameters."""
    if isinstance(codec, Bfv):
        return Bfv(codec.parameters.degree, codec.fixed_point)
    return Ckks(codec.parameters, largest=1.0, weight=1.0, opened=1)


def changed_masking(session: DefenseSession, current: MaskingRound) -> str:
    """Return in words what of a secure aggregation is not as this tool makes it; else empty."""
    from fglaudit.secagg.aggregation import Aggregation

    assert isinstance(session, MaskingSession)
    fresh = MaskingSession(session.defense, session.context, session.served)
    aggregation = Aggregation(2, range(2), 2)
    members = (_changed(member, aggregation.members[0]) for member in current.aggregation.members)
    found = _changed(session, fresh), _changed(current.aggregation, aggregation), *members
    if why := _first(*found, _changed(current.aggregation.server, aggregation.server)):
        return why
    drawn = all(member.own_keys() for member in current.aggregation.members)
    return "" if drawn else "keys or seeds of its clients are not those that this tool drew"


def _first(*found: Iterator[str]) -> str:
    return next((why for each in found for why in each), "")


def _changed(thing: object, fresh: object) -> Iterator[str]:
    kind = type(fresh).__name__
    if type(thing) is not type(fresh):
        yield f"a {type(thing).__name__} in place of a {kind}"
        return
    held, known = vars(thing), vars(fresh)
    for name in held:
        if name not in known:
            yield f"a {kind} has {name}, which none of this tool has"
    for name, value in known.items():
        if name not in held or (type(held[name]) is not type(value) and type(value).__module__ != "builtins"):
            yield f"{name} of a {kind} is not as this tool makes it"
