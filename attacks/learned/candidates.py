"""What attacks find once all that was learned of a defense is undone, one source of rows after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from fglaudit.attacks.learned.decoder import decoded_rows, is_decodable
from fglaudit.attacks.learned.delegation import Candidate, results, with_residual, without_facts, without_payload
from fglaudit.attacks.learned.hidden_rows import HiddenRows, hidden_rows
from fglaudit.attacks.learned.own_payloads import own_rows, own_types
from fglaudit.attacks.learned.repeats import Combined, combined
from fglaudit.attacks.learned.undoing import Undone, undone
from fglaudit.facts import ROWS, Absent, Additive, Field, Sealed
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import Embeddings, MaskedMatrices, MaskedVectors, NeighborSums, Payload, RawFeatures
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

_HOOKS = ("prepare", "release")
_OF_NO_MODEL = (NeighborSums, RawFeatures, MaskedMatrices, MaskedVectors)

Again = Callable[[Auxiliary], View]


def changes_messages(view: View) -> bool:
    """Whether a hook of the defense changes rows or messages."""
    return bool(set(view.public.hooks) & set(_HOOKS))


def sent_again(payloads: Iterable[type[Payload]]) -> list[type[Payload]]:
    """Return those of ``payloads`` whose values may be the same in every round: they depend on no model."""
    return [p for p in payloads if p in _OF_NO_MODEL or p in own_types()]


def states_values(view: View) -> bool:
    """Whether anything is stated of what becomes of rows or of payloads in the clear."""
    return any(
        fact.target == ROWS or (isinstance(fact.target, Field) and not isinstance(fact, Sealed | Absent))
        for fact in view.public.facts
    )


def _has_noise(view: View, payload: type[Payload]) -> bool:
    return any(
        isinstance(f, Additive) and isinstance(f.target, Field) and f.target.payload == payload.__name__
        for f in view.public.facts
    )


def candidates(
    few: View, whole: View, seen: tuple[type[Payload], ...], name: str, rng: torch.Generator, device: torch.device
) -> Iterator[Candidate]:
    """Yield what attacks find in ``few`` messages; candidates find it again in those of ``whole``.

    Args:
        seen: the payloads to read.
        name: of the attack that asks, which is not asked itself.
    """
    acts = whole.public.release is not None and changes_messages(whole)
    touched = seen if acts else ()
    source = _Source(few, whole, touched, undone(few, touched, rng, device), name, rng, device)
    yield from source.own_payloads([p for p in own_types() if p in seen])
    hidden = hidden_rows(whole, split(rng, "hidden rows"), device)
    if hidden is not None:
        yield from source.uploads_of(hidden, [p for p in seen if p is not RawFeatures])
    if source.found.payloads:
        yield from source.cleaned(hidden is not None)
    if not acts and states_values(whole):  # no hook does what is stated
        bare = dataclasses.replace(whole, public=dataclasses.replace(whole.public, facts=()))
        yield from results(bare, seen, name, split(rng, "as if nothing were stated"), device)
    together = {p: combined(whole, p, split(rng, p.__name__)) for p in sent_again(touched)}
    repeated = {payload: made for payload, made in together.items() if made is not None}
    for payload, made in repeated.items():
        yield from source.repeats(made, payload, split(rng, f"repeats of {payload.__name__}"))
    noisy = [p for p in seen if p not in {*source.found.payloads, *repeated} and _has_noise(whole, p)]
    if noisy:
        yield from results(without_facts(whole, noisy), noisy, name, split(rng, "as sent"), device)
    for payload in [p for p in seen if is_decodable(few, p)]:
        yield from source.decoded(payload)


@dataclass(frozen=True)
class _Source:
    """What candidates come from.

    Attributes:
        touched: payloads that a hook may have changed.
        found: ``few`` messages with the defense undone.
    """

    few: View
    whole: View
    touched: tuple[type[Payload], ...]
    found: Undone
    name: str
    rng: torch.Generator
    device: torch.device

    def _more(self, known: Auxiliary) -> Undone:
        """Undo the defense in all messages, with what other known rows tell of secrets of the run."""
        whole = dataclasses.replace(self.whole, auxiliary=known)
        return undone(whole, self.touched, self.rng, self.device, self.found.public)

    def _remade(self, make: Again, of_run: bool = False) -> Again | None:
        """Return ``make`` where other known rows, or all messages, tell more."""
        return make if of_run or self.few is not self.whole else None

    def own_payloads(self, payloads: Iterable[type[Payload]]) -> Iterator[Candidate]:
        """Yield rows from payloads of a plugin's own, cleaned, then as the defense left them."""
        for payload in payloads:
            yield from own_rows(self.found.cleaned, payload, split(self.rng, payload.__name__), self.device)
            if self.touched:
                rng = split(self.rng, f"defended {payload.__name__}")
                yield from own_rows(self.whole, payload, rng, self.device, defended=True)

    def uploads_of(self, hidden: HiddenRows, payloads: list[type[Payload]]) -> Iterator[Candidate]:
        """Yield rows from cleaned uploads. Models were trained on hidden rows: what clients computed with them is
        cleaned, what the server made is not."""
        again = self._remade(lambda known: without_facts(self._more(known).uploads, payloads))
        plain = without_facts(self.found.uploads, payloads)
        yield from results(plain, payloads, self.name, split(self.rng, "hidden"), self.device, hidden, again)

    def cleaned(self, hidden: bool) -> Iterator[Candidate]:
        """Yield rows from cleaned messages, then from the same with what cleaning left counted as noise.

        Args:
            hidden: whether models were trained on hidden rows: what they say does not fit rows in the clear.
        """

        def plain_of(undone: Undone) -> View:
            return without_facts(
                without_payload(undone.cleaned, Embeddings) if hidden else undone.cleaned, undone.payloads
            )

        payloads, left = self.found.payloads, self.found.left
        plain = plain_of(self.found)
        again = self._remade(lambda known: plain_of(self._more(known)), self.found.of_run)
        yield from results(plain, payloads, self.name, split(self.rng, "cleaned"), self.device, remade=again)
        if left:
            rough = self._remade(lambda known: with_residual(plain_of(self._more(known)), left))
            rng = split(self.rng, "cleaned roughly")
            yield from results(with_residual(plain, left), payloads, self.name, rng, self.device, remade=rough)

    def repeats(self, together: Combined, payload: type[Payload], rng: torch.Generator) -> Iterator[Candidate]:
        """Yield what attacks find in the combination of what is sent repeatedly."""
        plain = without_facts(together.view, [payload])
        if payload in own_types():
            yield from own_rows(plain, payload, split(rng, "own"), self.device)
        yield from results(with_residual(plain, together.left), [payload], self.name, rng, self.device)

        def again(known: Auxiliary) -> Reconstruction | None:
            return decoded_rows(dataclasses.replace(plain, auxiliary=known), payload, self.device)

        if (rows := again(plain.auxiliary)) is not None:
            yield Candidate(rows, again)

    def decoded(self, payload: type[Payload]) -> Iterator[Candidate]:
        """Yield rows straight from cleaned messages, by regression."""

        def again(known: Auxiliary) -> Reconstruction | None:
            found = self.found if self.few is self.whole else self._more(known)
            return decoded_rows(dataclasses.replace(found.cleaned, auxiliary=known), payload, self.device)

        if (rows := decoded_rows(self.found.cleaned, payload, self.device)) is not None:
            yield Candidate(rows, again)
