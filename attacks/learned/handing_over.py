"""Specialised attacks on cleaned messages, found by payload type in the registry, and the choice among what they find.

Whoever knows rows beforehand holds some of them back and sees who rebuilds those best. Without any, the attacks' own
confidence decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from fglaudit import registry
from fglaudit.adversary.local_reports import attack_reports
from fglaudit.adversary.prior_only import prior_only
from fglaudit.facts import Additive, Field
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import Payload
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

_HELD_BACK = 0.25
_FEWEST_HELD = 4
_CONFIDENT = 0.2
_MARGIN = 0.02
_AHEAD = 2.0
"""Standard errors by which a result must beat a guess on rows that were held back."""


def specialised(payloads: Iterable[type[Payload]], besides: str) -> Iterator[Attack]:
    """Yield the attacks on feature rows that read one of ``payloads``, with their defaults."""
    wanted = {payload.__name__ for payload in payloads}
    for name in registry.names("attack"):
        if name == besides:
            continue
        kind = registry.load("attack", name)
        if kind.quantity == "features" and wanted & {p.__name__ for p in kind.consumes}:
            yield registry.build("attack", name, {})


def applicable(attack: Attack, view: View) -> bool:
    """Whether the observer has all that ``attack`` reads, and it can work on it."""
    seen = (next(iter(view.messages.of(payload)), None) is not None for payload in type(attack).consumes)
    return all(seen) and attack.unsupported(view) is None


def results(
    view: View, payloads: Iterable[type[Payload]], besides: str, rng: torch.Generator, device: torch.device
) -> Iterator[Reconstruction]:
    """Yield what each specialised attack finds; one that fails on these messages finds nothing."""
    for attack in specialised(payloads, besides):
        try:
            if applicable(attack, view):
                found = attack_reports(attack, view, split(rng, type(attack).name), device)
                if isinstance(found, Reconstruction) and bool(torch.isfinite(found.rows).all()):
                    yield found
        except Exception:
            continue


def without_facts(view: View, payloads: Iterable[type[Payload]]) -> View:
    """Return ``view`` as if nothing were stated of ``payloads``."""
    names = {payload.__name__ for payload in payloads}
    rest = tuple(f for f in view.public.facts if not (isinstance(f.target, Field) and f.target.payload in names))
    return dataclasses.replace(view, public=dataclasses.replace(view.public, facts=rest))


def with_residual(view: View, errors: Mapping[tuple[str, str], float]) -> View:
    """Return ``view`` with what cleaning left of (payload, field) stated as noise of that standard deviation."""
    noise = tuple(Additive(Field(payload, name), "gaussian", std) for (payload, name), std in errors.items())
    return dataclasses.replace(view, public=dataclasses.replace(view.public, facts=(*view.public.facts, *noise)))


def holding_back(view: View, rng: torch.Generator) -> tuple[View, Auxiliary]:
    """Return ``view`` with fewer auxiliary rows, and those that were held back."""
    known = view.auxiliary
    count = round(_HELD_BACK * len(known.nodes))
    if count < _FEWEST_HELD or known.x.dim() != 2:
        return view, Auxiliary.empty(view.public.num_features)
    order = torch.randperm(len(known.nodes), generator=rng)
    kept, held = order[count:].sort().values, order[:count].sort().values
    rest = Auxiliary(known.nodes[kept], known.x[kept], known.y[kept])
    return dataclasses.replace(view, auxiliary=rest), Auxiliary(known.nodes[held], known.x[held], known.y[held])


def cosines(found: Reconstruction, held: Auxiliary, num_nodes: int) -> Tensor:
    """Return the cosine of the rows found for the nodes that were held back [H]; 0 where there is none."""
    place = torch.full((num_nodes,), -1)
    there = found.nodes >= 0
    place[found.nodes[there]] = there.nonzero().squeeze(1)
    at = place[held.nodes]
    rows = found.rows.double()[at.clamp(min=0)]
    truth = held.x.double()
    product = (rows * truth).sum(1) / (rows.norm(dim=1) * truth.norm(dim=1)).clamp(min=1e-30)
    return torch.where(at >= 0, product, 0.0)


def best(
    candidates: Iterable[Reconstruction], view: View, learning: View, held: Auxiliary, rng: torch.Generator
) -> Reconstruction:
    """Return the candidate that rebuilds the rows held back best, if it clearly beats guesses; the most confident one
    where none were held back. Where there is none, the guess that is every attack's control.

    Args:
        view: with all rows that the observer knows.
        learning: without those held back.
    """
    listed = [
        dataclasses.replace(c, proven=torch.zeros(len(c.rows), dtype=torch.bool)) for c in candidates if len(c.rows)
    ]
    if len(held.nodes):
        guess = cosines(prior_only(learning, held.nodes, split(rng, "guess")), held, view.public.num_nodes)
        mean = learning.known_rows().x.double().mean(0).expand(len(held.nodes), -1)
        blank = torch.zeros(len(held.nodes))
        guess = torch.maximum(guess, cosines(Reconstruction(mean, held.nodes, blank), held, view.public.num_nodes))
        ahead = [cosines(c, held, view.public.num_nodes) - guess for c in listed]
        clear = [d.mean().item() if d.mean() > _MARGIN + _AHEAD * d.std() / len(d) ** 0.5 else -1.0 for d in ahead]
        if clear and max(clear) > 0:
            return listed[clear.index(max(clear))]
    elif listed:
        surest = max(listed, key=lambda c: float(c.confidence.double().sum().item()))
        if bool((surest.confidence > _CONFIDENT).any()):
            return surest
    nodes = torch.arange(view.public.num_nodes)
    unknown = nodes[~torch.isin(nodes, view.known_rows().nodes)]
    return prior_only(view, unknown, split(rng, "nothing learned"))


def _unproven(found: Reconstruction) -> Reconstruction:
    """Return ``found`` without claims of proof: what was learned from examples proves nothing."""
    return dataclasses.replace(found, proven=torch.zeros(len(found.rows), dtype=torch.bool))
