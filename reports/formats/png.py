"""Figures as PNG, drawn from the SVG files by ``resvg`` where ``resvg-py`` is installed, at twice their size."""

from __future__ import annotations

import functools
from typing import NamedTuple

_ZOOM = 2.0
_OPEN = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
_EMPTY, _LETTER = (f'{_OPEN}<text y="15" font-family="sans-serif">{text}</text></svg>' for text in ("", "M"))


class Lack(NamedTuple):
    """What PNG files lack here, and what to run."""

    what: str
    fix: str


@functools.cache
def lacking() -> Lack | None:
    """Return what PNG files lack here, the package or a font to write with; None if nothing."""
    try:
        import resvg_py  # noqa: F401
    except Exception:  # a broken build raises whatever its libraries do
        return Lack("resvg-py", "pip install 'fglaudit[png]'")
    if png(_LETTER) != png(_EMPTY):
        return None
    return Lack("a font, and none is installed", "apt install fonts-dejavu-core")


def missing() -> str:
    """Return :func:`lacking` in a sentence, empty if nothing is."""
    lack = lacking()
    return f"figures as PNG need {lack.what}; the SVG files are there; run e.g.: {lack.fix}" if lack else ""


def draws() -> bool:
    """Whether PNG files can be drawn here."""
    return lacking() is None


def png(svg: str) -> bytes:
    """Return the drawing ``svg`` as PNG; on one machine equal drawings give equal files."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM))
