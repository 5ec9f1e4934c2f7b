"""What ``fglaudit compare`` prints."""

from __future__ import annotations

from collections import Counter

from fglaudit.reports.compare import Change, Comparison, Difference
from fglaudit.reports.numbers import few, plural


def comparison_text(found: Comparison) -> str:
    """Return the comparison for a terminal: counts per observer and quantity, then what changed."""
    lines = [f"{found.first} -> {found.second}: better and worse are for privacy; for accuracy, higher is better"]
    total = Counter(difference.change for difference in found.differences)
    moved = [f"{total[c]} {c.value}" for c in Change if total[c] and c not in (Change.EQUAL, Change.UNTESTED)]
    if moved or total[Change.EQUAL]:
        lines.append(f"in all: {', '.join(moved) or 'nothing changed where both runs have a result'}")
    groups: dict[tuple[str, str], list[Difference]] = {}
    for difference in found.differences:
        groups.setdefault((difference.observer, difference.quantity), []).append(difference)
    same: dict[tuple[str, Change], list[str]] = {}
    for (observer, quantity), mine in groups.items():
        changes = {difference.change for difference in mine}
        if observer and (len(changes) == 1 and changes <= {Change.EQUAL, Change.UNTESTED}):
            same.setdefault((observer, changes.pop()), []).append(quantity)
            continue
        counts = Counter(difference.change for difference in mine)
        told = ", ".join(f"{counts[change]} {change.value}" for change in Change if counts[change])
        lines.append(f"{observer + ': ' if observer else ''}{quantity}: {told} ({plural(len(mine), 'setting')})")
        for difference in mine:
            if difference.change in (Change.EQUAL, Change.UNTESTED):
                continue
            pairs = f"{difference.paired} paired" if difference.paired else "unpaired"
            lines.append(f"  {difference.change.value:<14} {difference.setting} ({pairs}): {difference.text}")
    lines += [f"{observer}: {change.value}: {', '.join(which)}" for (observer, change), which in same.items()]
    return "\n".join([*lines, *_left_out(found)])


def _left_out(found: Comparison) -> list[str]:
    """Return a line for everything that one run alone has, that did not finish, or that cannot be read."""
    lines = list[str]()
    first, second = found.first, found.second
    for where, names in ((first, found.only_first), (second, found.only_second)):
        lines += [f"only in {where}: {name}" for name in names]
    for where, names in ((first, found.unfinished_first), (second, found.unfinished_second)):
        lines += [f"failed or not run in {where}, and left out: {name}" for name in names]
    for where, names in ((first, found.unreadable_first), (second, found.unreadable_second)):
        lines += [f"cannot be read in {where}: {few(names, 2, '; ')}"] if names else []
    return lines
