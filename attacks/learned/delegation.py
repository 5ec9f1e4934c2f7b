"""Specialised attacks on cleaned messages, found by payload type in the registry, and the choice among what they find.

Whoever knows rows beforehand holds some of them back and sees who rebuilds those best. Without any, the attacks' own
confidence decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from fglaudit import registry
from fglaudit.adversary.local_reports import attack_reports
from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks.learned.hidden_rows import HiddenRows
from fglaudit.facts import Additive, Field
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.rng import split
from fglaudit.view import Auxiliary, Messages, View

_HELD_BACK = 0.25
_FEWEST_HELD = 4
_CONFIDENT = 0.2
_MARGIN = 0.02
_AHEAD = 2.0
"""Standard errors by which a result must beat a guess on rows that were held back."""
_SPREAD = 0.1
"""Least standard deviation of what a result is ahead by: that of few rows may be small by chance."""
_LIKELY = 0.5
_LITTLE = 1e-6
"""Weight of confidence below that: it decides only where nobody has more."""
_NEAR = 0.9
_ALIKE = 0.005
"""Mean cosine to which results rebuild the rows held back alike."""
_SAME = 1 - 1e-5
"""Cosine of rows that are the same."""
_MOST_COMPARED = 2**26
"""Numbers in the messages on which attacks compete."""


@dataclass(frozen=True)
class Candidate:
    """What was found without the rows that were held back.

    Attributes:
        found: the rows.
        again: finds rows with other auxiliary rows, in all messages; None where that fails.
    """

    found: Reconstruction
    again: Callable[[Auxiliary], Reconstruction | None]


@dataclass(frozen=True)
class _Without:
    """Messages but those of one payload."""

    messages: Messages
    payload: type[Payload]

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order."""
        return iter(()) if payload is self.payload else self.messages.of(payload)


def without_payload(view: View, payload: type[Payload]) -> View:
    """Return ``view`` without the messages of ``payload``."""
    return dataclasses.replace(view, messages=_Without(view.messages, payload))


@dataclass(frozen=True)
class _Smaller:
    """Messages without those of ``payloads`` whose entries hold more than ``most`` bytes."""

    messages: Messages
    payloads: frozenset[type[Payload]]
    most: int

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload, in order."""
        for batch in self.messages.of(payload):
            if payload not in self.payloads or batch.payload.bytes_per_entry() <= self.most:
                yield batch


def without_largest(view: View, payloads: Iterable[type[Payload]]) -> View:
    """Return ``view`` without the messages of the largest size, as many sizes as leave no more numbers than attacks
    compete on: one hub's matrices may hold most of all. Where all are of one size, ``view`` itself."""
    read = frozenset(payloads)
    numbers: dict[int, int] = {}
    for payload in read:
        for batch in view.messages.of(payload):
            size = batch.payload.bytes_per_entry()
            numbers[size] = numbers.get(size, 0) + batch.payload.numbers()
    sizes = sorted(numbers)
    totals = accumulate(numbers[size] for size in sizes)
    fitting = [size for size, total in zip(sizes, totals, strict=True) if total <= _MOST_COMPARED] or sizes[:1]
    if len(fitting) == len(sizes):
        return view
    return dataclasses.replace(view, messages=_Smaller(view.messages, read, fitting[-1]))


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
    view: View,
    payloads: Iterable[type[Payload]],
    besides: str,
    rng: torch.Generator,
    device: torch.device,
    hidden: HiddenRows | None = None,
    remade: Callable[[Auxiliary], View] | None = None,
) -> Iterator[Candidate]:
    """Yield what each specialised attack finds; one that fails on these messages finds nothing.

    Args:
        hidden: how rows were hidden before messages were computed from them, where attacks look for hidden rows.
        remade: makes the view anew, of all messages and other auxiliary rows than in ``view``; only those rows are
            replaced by default.
    """
    for attack in specialised(payloads, besides):

        def again(known: Auxiliary, attack: Attack = attack) -> Reconstruction | None:
            seen = dataclasses.replace(view, auxiliary=known) if remade is None else remade(known)
            return _found(attack, seen, rng, device, hidden)

        found = _found(attack, view, rng, device, hidden)
        if found is not None and len(found.rows):
            yield Candidate(found, again)


def _found(
    attack: Attack, view: View, rng: torch.Generator, device: torch.device, hidden: HiddenRows | None
) -> Reconstruction | None:
    try:
        seen = view if hidden is None else hidden.hide(view)
        if not applicable(attack, seen):
            return None
        found = attack_reports(attack, seen, split(rng, type(attack).name), device)
        if not isinstance(found, Reconstruction) or not bool(torch.isfinite(found.rows).all()):
            return None
        return found if hidden is None else hidden.shown(found, view)
    except Exception:  # these messages are not what it was written for
        return None


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
    candidates: Iterable[Candidate], view: View, learning: View, held: Auxiliary, rng: torch.Generator
) -> Reconstruction | None:
    """Return the candidate that rebuilds the rows held back best, if it clearly beats guesses, found again with all
    known rows; the most confident one of those that say too little of the rows held back, where none does, and none was
    found in fewer messages. None where there is none either.

    Args:
        view: with all rows that the observer knows.
        learning: what candidates were found in: without the rows held back, and maybe without some messages.
    """
    listed = [c for c in candidates if len(c.found.rows)]
    chosen = _ahead(listed, view, learning, held, rng)
    if chosen is None and learning.messages is view.messages:
        chosen = _surest(listed, held, view.public.num_nodes)
    if chosen is None:
        return None
    found = (chosen.again(view.auxiliary) if len(held.nodes) else None) or chosen.found
    return _unproven(found)


def guessed(view: View, rng: torch.Generator) -> Reconstruction:
    """Return the guess that is every attack's control."""
    nodes = torch.arange(view.public.num_nodes)
    unknown = nodes[~torch.isin(nodes, view.known_rows().nodes)]
    return prior_only(view, unknown, split(rng, "nothing learned"))


def _ahead(
    listed: Iterable[Candidate], view: View, learning: View, held: Auxiliary, rng: torch.Generator
) -> Candidate | None:
    """Return the candidate that gains most over guesses on the rows held back that it is about, if that is clear: by
    its mean gain, or as it rebuilds more of them whole than rows of other nodes would."""
    if len(held.nodes) == 0:
        return None
    guess = cosines(prior_only(learning, held.nodes, split(rng, "guess")), held, view.public.num_nodes)
    mean = learning.known_rows().x.double().mean(0).expand(len(held.nodes), -1)
    blank = torch.zeros(len(held.nodes))
    guess = torch.maximum(guess, cosines(Reconstruction(mean, held.nodes, blank), held, view.public.num_nodes))
    scored: list[tuple[float, Candidate]] = []
    chance = _same_by_chance(held, learning)
    for candidate in listed:
        about = torch.isin(held.nodes, candidate.found.nodes)
        count = int(about.sum())
        if count < _FEWEST_HELD:
            continue
        rebuilt = cosines(candidate.found, held, view.public.num_nodes)
        gain = (rebuilt - guess)[about]
        spread = max(_SPREAD, float(gain.std().item()) if count > 1 else 0.0)
        whole = int(((rebuilt > _SAME) & (guess <= _SAME) & about).sum())
        by_chance = count * chance + _AHEAD * (count * chance) ** 0.5
        is_ahead = float(gain.mean().item()) > _MARGIN + _AHEAD * spread / count**0.5
        if is_ahead or whole >= _FEWEST_HELD + by_chance:  # a row given to the wrong node is worse than a guess
            scored.append((float(gain.sum().item()), candidate))
    most = max((total for total, _ in scored), default=0.0)
    alike = [candidate for total, candidate in scored if total >= most - _ALIKE * len(held.nodes)]
    return _most_agreed(alike, view.public.num_nodes) if alike else None


def _same_by_chance(held: Auxiliary, learning: View) -> float:
    """Return how often a row held back and another known row are the same."""
    one, other = (
        x.double() / x.double().norm(dim=1, keepdim=True).clamp(min=1e-30) for x in (held.x, learning.known_rows().x)
    )
    return float((one @ other.T > _SAME).double().mean().item()) if len(other) else 0.0


def _most_agreed(alike: Sequence[Candidate], num_nodes: int) -> Candidate:
    """Return the candidate whose rows most of the others found too: a few rows that were held back do not tell apart
    results that differ in others; the first of those with as many."""
    agreed = [0] * len(alike)
    for i, one in enumerate(alike):
        for j, other in enumerate(alike[:i]):
            held = Auxiliary(other.found.nodes, other.found.rows, other.found.nodes)
            there = held.nodes >= 0
            same = cosines(one.found, Auxiliary(*(t[there] for t in (held.nodes, held.x, held.y))), num_nodes)
            count = int((same > _SAME).sum().item())
            agreed[i], agreed[j] = agreed[i] + count, agreed[j] + count
    return alike[agreed.index(max(agreed))]


def _surest(listed: Iterable[Candidate], held: Auxiliary, num_nodes: int) -> Candidate | None:
    """Return the most confident candidate of those that are about too few rows held back to be judged by them, if it is
    confident of any row; of those that are about as confident the one whose rows most of the others found too."""
    scored = []
    for candidate in listed:
        confidence = _by_node(candidate.found)
        judged = int(torch.isin(held.nodes, candidate.found.nodes).sum()) >= _FEWEST_HELD
        if not judged and bool((confidence > _CONFIDENT).any()):
            likely = (confidence - _LIKELY).clamp(min=0).sum() + _LITTLE * confidence.sum()
            scored.append((float(likely.item()), candidate))
    most = max((score for score, _ in scored), default=0.0)
    near = [candidate for score, candidate in scored if score >= _NEAR * most]
    return _most_agreed(near, num_nodes) if near else None


def _by_node(found: Reconstruction) -> Tensor:
    """Return the confidence of each row, once per node that rows are about: what is sent often is no surer for that."""
    confidence, there = found.confidence.double(), found.nodes >= 0
    nodes, number = torch.unique(found.nodes[there], return_inverse=True)
    most = torch.zeros(len(nodes), dtype=torch.double).scatter_reduce(0, number, confidence[there], "amax")
    return torch.cat([most, confidence[~there]])


def _unproven(found: Reconstruction) -> Reconstruction:
    """Return ``found`` without claims of proof: what was learned from examples proves nothing."""
    return dataclasses.replace(found, proven=torch.zeros(len(found.rows), dtype=torch.bool))
