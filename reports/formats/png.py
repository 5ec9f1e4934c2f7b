"""Figures as PNG, drawn from the SVG files by ``resvg`` where ``resvg-py`` is installed, at twice their size."""

from __future__ import annotations

import functools

_ZOOM = 2.0
_OPEN = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
_EMPTY, _LETTER = (f'{_OPEN}<text y="15" font-family="sans-serif">{text}</text></svg>' for text in ("", "M"))


@functools.cache
def missing() -> str:
    """Return what PNG files lack here, the package or a font to write with, and what to do; empty if nothing."""
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        return "figures as PNG need resvg-py; the SVG files are there; run: pip install 'fglaudit[png]'"
    if png(_LETTER) != png(_EMPTY):
        return ""
    return (
        "figures as PNG need a font, and none is installed; the SVG files are there; run e.g.: apt install"
        " fonts-dejavu-core"
    )


def draws() -> bool:
    """Whether PNG files can be drawn here."""
    return not missing()


def png(svg: str) -> bytes:
    """Return the drawing ``svg`` as PNG; on one machine equal drawings give equal files."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM))
