"""Numbers and lists as readers see them. Rounding never turns "almost" into "all" or "a little" into "none"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

MISSING = "\N{EN DASH}"
THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"


def percent(fraction: float | None) -> str:
    """A fraction in [0, 1] as percent with one decimal."""
    if fraction is None:
        return MISSING
    return f"{'0' if fraction == 0 else '100' if fraction == 1 else _points(fraction)}{THIN}%"


def _points(fraction: float) -> str:
    """Percent without the sign."""
    value = 100 * fraction
    if 99.95 <= value < 100:
        return f">{THIN}99.9"
    if 0 < value < 0.05:
        return f"<{THIN}0.1"
    return f"{value:.1f}".replace("-0.0", "0.0").replace("-", MINUS)


def percent_spread(values: Sequence[float], spread: float | None) -> str:
    """Mean over seeds in percent, with the standard deviation in points where there are several seeds."""
    if not values:
        return MISSING
    average = _points(math.fsum(values) / len(values))
    return f"{average}{THIN}%" if spread is None else f"{average} ± {100 * spread:.1f}{THIN}%"


def signed(value: float, digits: int = 1) -> str:
    """``value`` with its sign, also where that is a plus."""
    return f"{value:+.{digits}f}".replace("-", MINUS)


def against(value: float | None, limit: float, form: str = ".3f") -> str:
    """``value`` beside a ``limit``, with as many digits as show on which side of it the value lies.

    Args:
        form: with the fewest digits, e.g. ".3f" or ".4g".
    """
    if value is None:
        return MISSING
    for digits in range(int(form[1:-1]), 18):
        text = f"{value:.{digits}{form[-1]}}"
        if (float(text) > limit, float(text) < limit) == (value > limit, value < limit):
            break
    sign = MINUS if float(text) < 0 else ""
    return f"{sign}{text.removeprefix('-')}"


def seeds_words(seeds: Sequence[int]) -> str:
    """Return ascending ``seeds`` in words: "seed 0", "seeds 0, 1"; three and more that follow one another as "seeds 0
    to 9"; "no seed" without any."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {_seed_list(seeds)}" if seeds else "no seed"


def _seed_list(seeds: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    parts = (f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)
    return ", ".join(parts)


def decimal(value: float | None, digits: int = 3) -> str:
    if value is None:
        return MISSING
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        return f"{0:.{digits}f}"
    if value < 1 <= float(text):  # 0.9996 is not 1
        text = "0." + "9" * digits
    return text.replace("-", MINUS)


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{decimal(low)} to {decimal(high)}"


def epsilon(value: float | None) -> str:
    if value is None:
        return MISSING
    return "∞" if value == float("inf") else f"{value:.3g}" if value < 1000 else f"{value:,.0f}".replace(",", THIN)


def count(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}".replace(",", THIN)


def size(number: float | None) -> str:
    """Bytes with decimal prefixes."""
    if number is None:
        return MISSING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.3g}{THIN}{unit}" if unit != "B" else f"{number:.0f}{THIN}B"
        number /= 1000
    return f"{number:.3g}{THIN}TB"


def plural(number: int, noun: str, many: str = "") -> str:
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"


def listed(names: Iterable[str]) -> str:
    """Return ``a, b and c``."""
    *first, last = list(names) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def few(names: Iterable[str], most: int = 5, sep: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    every = list(names)
    more = f"{';' if ';' in sep else ''} and {len(every) - most} more" if len(every) > most else ""
    return sep.join(every[:most]) + more
