"""Matrices of pairs of clients as heat maps in SVG.

A map's darkest entries are the largest ones between two clients, its lightest the smallest: a client's entry with
itself, which may be many times as large, would leave all others white. The numbers of both stand below.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from textwrap import wrap

import torch
from torch import Tensor

_SIDE, _GAP, _TOP, _COLUMNS, _BELOW = 260, 24, 40, 4, 74
_LIGHT, _DARK = (255, 255, 255), (30, 58, 138)


def heat_maps(title: str, maps: Mapping[str, Tensor]) -> str:
    """Return the figure of ``maps`` [K, K] by caption, K of at least 1."""
    columns = min(_COLUMNS, len(maps))
    width = _GAP + columns * (_SIDE + _GAP)
    height = _TOP + (_SIDE + _BELOW) * -(-len(maps) // columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_GAP}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for place, (caption, matrix) in enumerate(maps.items()):
        down, right = divmod(place, columns)
        x, y = _GAP + right * (_SIDE + _GAP), _TOP + down * (_SIDE + _BELOW)
        parts += [f'<g transform="translate({x} {y})">', *_map(caption, matrix), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _map(caption: str, matrix: Tensor) -> list[str]:
    count = len(matrix)
    off = ~torch.eye(count, dtype=torch.bool)
    between = matrix[off] if count > 1 else matrix.flatten()
    low, high = float(between.min()), float(between.max())
    share = ((matrix - low) / (high - low or 1.0)).clamp(0, 1)
    cell = _SIDE / count
    parts = ['<g shape-rendering="crispEdges">']
    parts += [
        f'<rect x="{j * cell:.2f}" y="{i * cell:.2f}" width="{cell:.2f}" height="{cell:.2f}" fill="{_colour(value)}"/>'
        for i, row in enumerate(share.tolist())
        for j, value in enumerate(row)
    ]
    parts.append(f'</g><rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#6b7280"/>')
    own = float(matrix.diagonal().mean())
    lines = [*wrap(caption, 42), f"others {low:.3g} (white) to {high:.3g}, itself {own:.3g}"]
    parts += [f'<text y="{_SIDE + 16 + 14 * line}">{escape(text)}</text>' for line, text in enumerate(lines)]
    return parts


def _colour(share: float) -> str:
    mixed = (round(light + share * (dark - light)) for light, dark in zip(_LIGHT, _DARK, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
