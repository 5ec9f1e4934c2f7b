"""Which facts an attack allows for, asked of the attack itself: with examples of every kind about every target.

A report says ``no: FACT`` in the column ``adapted`` of a row whose attack does not allow for what a defense did; here
that can be read before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    K_ARY,
    MULTI_BIT,
    NORMS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    Correlated,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    KeptColumns,
    Masked,
    Memoised,
    Merged,
    Randomised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
    Target,
)
from fglaudit.interfaces import Attack

Examples = dict[str, Fact]
"""Facts of one kind and target, by what sets each apart."""

_BITS = (("sampled_features", 2), ("bit_epsilon", 1.0), ("low", 0.0), ("high", 1.0))


def _values(target: Target) -> Iterator[Examples]:
    """Yield examples of what may be done to values of any kind."""
    noises = {"gaussian": "gaussian", "laplace": "laplace", "other noise": "uniform"}
    yield {said: Additive(target, name, 1.0) for said, name in noises.items()}
    yield {"to the nearest": Rounded(target, 1.0), "stochastic": Rounded(target, 1.0, stochastic=True)}
    yield {"": Scaled(target, 0.0, 0.5)}
    yield {"": Sampled(target, 0.5)}
    yield {"": Memoised(target)}
    yield {"": Correlated(target, ((1.0,),))}


def _rows(target: Target) -> Iterator[Examples]:
    yield from _values(target)
    yield {f"{norm} per row": Clipped(target, norm, 1.0, "row") for norm in NORMS}
    yield {
        K_ARY: Randomised(target, K_ARY, (("keep", 0.9), ("classes", 3))),
        MULTI_BIT: Randomised(target, MULTI_BIT, _BITS),
        "other reports": Randomised(target, "other"),
    }
    yield {"": KeptColumns(target, (0,))}


def _edges(target: Target) -> Iterator[Examples]:
    yield {"": DroppedEdges(target, 2)}
    yield {"": DegreeBound(target, 2, 0)}
    yield {"": Merged(target, 2)}


def _gradients(target: Target) -> Iterator[Examples]:
    yield from _values(target)
    yield {f"{norm} per example": Clipped(target, norm, 1.0, "example") for norm in NORMS}


def messages(target: Target) -> Iterator[Examples]:
    for examples in _rows(target):
        if not any(isinstance(fact, Clipped) for fact in examples.values()):
            yield examples
    around = {"zero": "", "received": " around what was received"}
    yield {
        f"{norm} per {per}{around[center]}": Clipped(target, norm, 1.0, per, center)
        for per, center, norm in product(("message", "row"), around, NORMS)
    }
    yield {"some clients": Absent(target, (0,)), "a share in each round": Absent(target, (), 0.5)}
    yield {"": Sealed(target, "bfv")}
    yield {"": Masked(target)}


EXAMPLES: dict[str, tuple[Target, Callable[[Target], Iterator[Examples]]]] = {
    "rows": (ROWS, _rows),
    "edges": (EDGES, _edges),
    "gradients": (GRADIENTS, _gradients),
}
"""What facts are about beside messages, with examples of those that a defense states of it."""


def allowed(attack: Attack) -> list[str]:
    """Return the lines in which ``fglaudit show`` says which facts ``attack`` allows for, with the fields it has."""
    kind = type(attack)
    if kind.leaks_only:
        return ["allows for: no fact; its row may show a leak, never its absence"]
    found = {said: _allowed(attack, made(target)) for said, (target, made) in EXAMPLES.items()}
    for payload in sorted({p.__name__ for p in (*kind.reads(), *kind.computed_from)}):
        up, down = (_allowed(attack, messages(Field(payload, "", way))) for way in ("up", "down"))
        found |= {payload: up} if up == down else {f"{payload} sent up": up, f"{payload} sent down": down}
    if not any(found.values()):
        return ["allows for: no fact; under any defense its row may show a leak, never its absence"]
    return [
        "allows for these facts, by what they are about:",
        *(f"  {on}: {said or 'none'}" for on, said in found.items()),
    ]


def _allowed(attack: Attack, kinds: Iterator[Examples]) -> str:
    """Return the kinds that ``attack`` allows for, in brackets which of a kind where it is not all of them."""
    said, whole = [], True
    for examples in kinds:
        allowed = [name for name, fact in examples.items() if attack.models(fact)]
        whole &= len(allowed) == len(examples)
        if allowed:
            name = type(next(iter(examples.values()))).__name__
            said.append(name if len(allowed) == len(examples) else f"{name} ({_brief(allowed)})")
    return "all that is built in" if whole else ", ".join(said)


def _brief(names: list[str]) -> str:
    """Return names with what several have in common once: ``L1 or L2 per row``."""
    groups: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition(" per ")
        groups.setdefault(rest, []).append(first)
    return "; ".join(f"{' or '.join(firsts)}{rest and f' per {rest}'}" for rest, firsts in groups.items())


def allowed_by(cls: type[Any]) -> list[str]:
    """Return :func:`allowed` of an attack with its defaults; where it has none, or cannot be asked, why."""
    try:
        return allowed(cls())
    except Exception as error:  # whatever a plugin's own code raises of facts or defaults that it did not reckon with
        return [f"allows for: not known, as it could not be asked with its defaults: {type(error).__name__}: {error}"]
