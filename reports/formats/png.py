"""Figures as PNG, drawn from the SVG files by ``resvg`` where ``resvg-py`` is installed, at twice their size."""

from __future__ import annotations

import functools

MISSING = "figures as PNG need resvg-py, and a font; the SVG files are there; run: pip install 'fglaudit[png]'"
_ZOOM = 2.0
_OPEN = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
_EMPTY, _LETTER = (f'{_OPEN}<text y="15" font-family="sans-serif">{text}</text></svg>' for text in ("", "M"))


@functools.cache
def draws() -> bool:
    """Whether PNG files can be drawn here: the package is installed, and finds a font to write with."""
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        return False
    return png(_LETTER) != png(_EMPTY)


def png(svg: str) -> bytes:
    """Return the drawing ``svg`` as PNG; on one machine equal drawings give equal files."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM))
