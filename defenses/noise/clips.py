"""Which payloads a defense clips, to what, and whether a clip of each message bounds what one record can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from fglaudit.context import Context, Release
from fglaudit.errors import FglauditError
from fglaudit.payloads import payload_types
from fglaudit.privacy.mechanism import check_clip


def check_clips(on: tuple[str, ...], clip: tuple[float, ...]) -> None:
    """Raise :class:`FglauditError` unless every payload of ``on`` has a positive clip and none is named twice."""
    payload_types(on)
    if not on or len(set(on)) < len(on) or len(clip) != len(on):
        raise FglauditError(
            f"every payload named in on, once, needs a clip; got on: {list(on)}, clip: {list(clip)}; change one"
        )
    for value in clip:
        check_clip(value)


def named_releases(
    releases: Sequence[Release], on: Sequence[str], clip: Sequence[float]
) -> list[tuple[Release, float]]:
    """Return those of ``releases`` whose payload is named in ``on``, each with its clip."""
    clips = dict(zip(on, clip, strict=True))
    return [(release, clips[release.payload.__name__]) for release in releases if release.payload.__name__ in clips]


def not_clippable(release: Release) -> str | None:
    """Return why a payload cannot be clipped message by message, or None."""
    if release.payload.ragged or len(fields(release.payload)) != 1:  # type: ignore[arg-type]
        return (
            f"clipping works on payloads of one tensor with one entry per message, which {release.payload.__name__}"
            " is not"
        )
    return None


def features_of(context: Context, unit: str) -> str:
    """Return in words what is replaced where a ``unit`` is the record: where clients overlap, one client's copies."""
    if unit != "client":
        return f"one {unit}'s features"
    copies = ", its own copies," if context.holders > 1 else ""
    return f"the features of all nodes of one client{copies}"


def not_bounded_by_clips(context: Context, release: Release, unit: str) -> str | None:
    """Return why the sensitivity per ``unit`` is not that of one clipped message, or None."""
    if why := not_clippable(release):
        return why
    name = release.payload.__name__
    if release.unit != unit:
        return f"{context.protocol} states how {name} depends on one {release.unit}, not on one {unit}"
    if not release.one_message:
        return f"one record may enter several messages of one release of {name}; a clip per message does not bound them"
    return None
