"""Is stated noise drawn from the run's generator, afresh, and whatever the values? A hook is asked again.

What leaves one call may have the stated distribution and hide nothing: noise that everybody can draw again, noise
that a row seeds by itself, earlier values in place of noise. So every hook of a defense that was not written here,
and which states that it draws, is called on copies from one place in the code, in any order: for the run itself, with
another generator, with the same draws and other values, and once as in a neighbouring run, with another memory
(:mod:`fglaudit.wire.observing.neighboring_session`). Noise must differ in the second, in its last bits too, and be the
same in the third; random answers must be alike in the second no more often than by chance. Before all of these it is
called twice where it is seen what it draws (:mod:`fglaudit.wire.observing.rng_audit`). Now and then some more draws are
looked at together, which shows noise that is made of other noise, and at first many of a few messages, two of which,
or of whose rows, are the same where seeds are few. The copies are made before any is called, so whatever a session
remembers, they remember too; it goes on with what the run's own copy remembers. Nothing of a record depends on the
order, which is drawn anew in every process: who knows the run's seed must not know it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fglaudit.facts import Additive, Clipped, Field, Memoised, Rounded, Target
from fglaudit.facts.residuals import Shape, Spending, strange_noise, unchanged
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import is_repeated
from fglaudit.rng import copied, drew_one_word, split, unforeseen
from fglaudit.wire.observing.alike_rows import alike_rows
from fglaudit.wire.observing.dependent_draws import bare_sum
from fglaudit.wire.observing.draw_collisions import answers_alike, bits_alike
from fglaudit.wire.observing.foreign import is_foreign
from fglaudit.wire.observing.isolation import copies_itself, has_slots, outside_state, shared
from fglaudit.wire.observing.neighboring_session import NeighboringSession
from fglaudit.wire.observing.noise_entropy import entropy_deficits
from fglaudit.wire.observing.repeated_draws import FEWEST_DRAWS, of_few, strange_draws
from fglaudit.wire.observing.rng_audit import RngAudit
from fglaudit.wire.observing.stated import MANY, Hook, Stated, Values, draws_at_random, one_message, own, unlike

MOST_ASKED = 2**26
"""Values of one call beyond which a hook is not asked again; what it draws is then not known to be the run's."""
_ONE_WORD = "noise made of one draw of 32 bits or less, so that all of it can be guessed; draw every number from the\
 generator"
_MOST_LOOKED_AT = 8
"""Calls after each of which it is looked at what a session keeps outside of itself."""
MOST_DRAWN, MOST_DRAWS = 2**20, 64
"""Values and draws that are looked at together."""


class _Copies(NamedTuple):
    """Copies of a session before a call.

    Attributes:
        before: is never called.
        called: with the run's values, or other ones.
        watched: are called where it is seen what they draw.
        neighbors: of another memory.
    """

    before: DefenseSession
    called: list[DefenseSession]
    watched: list[DefenseSession]
    neighbors: list[Any]


@dataclass
class CallReplay:
    """Asks the hooks of one session during one run.

    Attributes:
        many: whether many draws are looked at together too, which takes hundreds of calls of a hook.
    """

    session: DefenseSession
    many: bool = True
    spending: Spending = field(default_factory=Spending)
    _asked: int = 0
    _drawn: set[Target] = field(default_factory=set)
    _neighbor: NeighboringSession | None = None
    _outside: bool = False

    def call(
        self,
        hook: Hook,
        given: Values,
        stated: Sequence[Stated],
        rng: torch.Generator,
        few: Callable[[], tuple[Hook, Values]] | None = None,
    ) -> tuple[Any, dict[Target, str]]:
        """Return what ``hook`` returns of the session itself, and what is wrong with what it draws, by target.

        Args:
            few: gives the hook for a few of the messages, and their values; None: for all of them.
        """
        if not is_foreign(self.session):
            return hook(self.session, given, rng)[0], {}
        if self._neighbor is None:
            self._neighbor = NeighboringSession.of(self.session)
        outside = outside_state(self.session)
        made, found = self._call(hook, given, stated, self.draws(rng), few)
        if outside_state(self.session) != outside:
            self._outside = True
        if self._outside:
            why = "its session keeps something outside of itself, where no copy of it can be asked without that"
            found = {**_all([about for about in stated if about.facts], why), **found}
        return made, found

    def overhead(self) -> tuple[tuple[Tensor, Tensor] | None, str | None]:
        """Return the bytes that the session counts beside its messages, and what is wrong with them: who reads how many
        there are must learn nothing of rows."""
        counted = self.session.overhead()
        if counted is None or self._neighbor is None:
            return counted, None
        return counted, self._neighbor.overhead(counted)

    def draws(self, rng: torch.Generator) -> torch.Generator:
        """Return what a hook draws from: where the session is foreign never the run's own generator, from whose state
        it could tell one call of the run from another."""
        return split(rng, "a call") if is_foreign(self.session) else rng

    def _call(
        self,
        hook: Hook,
        given: Values,
        stated: Sequence[Stated],
        rng: torch.Generator,
        few: Callable[[], tuple[Hook, Values]] | None,
    ) -> tuple[Any, dict[Target, str]]:
        asked = [about for about in stated if draws_at_random(about.facts)]
        neighbor = self._neighbor
        assert neighbor is not None
        if sum(value.numel() for value in given.values()) > MOST_ASKED:
            return self._once(hook, given, rng, asked, "too many values to ask for its noise again")
        if not asked:
            kept = {name: own(value) for name, value in given.items()}
            drawn = copied(rng)
            made, left = hook(self.session, given, rng)
            return made, neighbor.beside(hook, given, kept, left, stated, drawn)
        made_copies = self._copied(neighbor, asked, given)
        if isinstance(made_copies, str):
            return self._once(hook, given, rng, asked, made_copies)
        before, copies, watched, neighbors = made_copies
        first_asked = [about for about in asked if about.target not in self._drawn]
        kept, other = {name: own(value) for name, value in given.items()}, _others(given, stated, rng)
        seen = RngAudit.of(hook, watched, kept, rng)
        # All are copies, in any order: a session that knows which of them is the run's own is another one to each.
        seeds = [copied(rng), split(copied(rng), "asked again"), copied(rng), copied(rng)]
        seeds += [split(copied(rng), f"asked again {number}") for number in range(len(copies) - 2)]
        if has_slots(self.session):
            copies[0] = self.session  # what it keeps beside its dictionary cannot be handed on
        sessions = [*copies[:2], *neighbors, *copies[2:]]
        values = [other if number == 2 else kept for number in range(len(sessions))]
        made = self._in_any_order(hook, sessions, values, seeds)
        live, same = made[0], made.pop(3)
        _go_on(self.session, sessions[0])
        keeps = _clipped_around(self.session, stated)
        if neighbor.session is not None:
            neighbor.session = sessions[3] if keeps else sessions[2]
        found = neighbor.compared([about for about in stated if about.facts], live[1], same[1], self._drawn)
        if neighbor.refused:
            found |= _all(asked, "its session cannot be called with other rows, so what it remembers is not known")
        again = {about.target for about in asked if self._memoised(about)}
        for about in asked:
            if (wrong := self._wrong(about, kept, other, [left for _, left in made])) is not None:
                found[about.target] = wrong
            elif _much(about, kept) and drew_one_word(rng, seeds[0]):
                found[about.target] = _ONE_WORD
            elif wrong := seen.wrong(about, kept, live[1], self.spending, again=about.target in again):
                found[about.target] = wrong
        if not self.many:
            return live[0], found
        twice = None if few is None else of_few(before, few(), first_asked, rng, self.spending)
        if twice is None:
            twice = of_few(before, (hook, kept), first_asked, rng, self.spending) or {}
        found |= {target: why for target, why in twice.items() if target not in found}
        looked_at = asked if self._looks_again(rng) else first_asked
        unaccused = [about for about in looked_at if about.target not in found]
        return live[0], found | entropy_deficits(before, unaccused, (hook, kept), few, rng)

    def _copied(self, neighbor: NeighboringSession, asked: Sequence[Stated], given: Values) -> _Copies | str:
        """Return copies of the session, or why none can be asked in its place."""
        if (kind := copies_itself(self.session)) is not None:
            return (
                f"its session holds a {kind}, which has a say in how it is copied, so no copy can be asked; leave such"
                " methods out (with attrs and dataclasses: slots=False)"
            )
        try:
            made = _Copies(
                copy.deepcopy(self.session),
                [copy.deepcopy(self.session) for _ in range(2 + self._more(asked, given))],
                [copy.deepcopy(self.session), copy.deepcopy(self.session)],
                [neighbor.copied(self.session), neighbor.copied(self.session)],
            )
        except Exception as error:  # whatever a session holds
            return f"its session cannot be copied ({type(error).__name__}), so its noise cannot be asked for again"
        if (kind := shared(made.before, made.called[0])) is not None:
            return f"copies of its session share a {kind}, by which a call of one knows of that of another"
        return made

    def _once(
        self, hook: Hook, given: Values, rng: torch.Generator, asked: Sequence[Stated], why: str
    ) -> tuple[Any, dict[Target, str]]:
        """Call the session alone, and say of everything ``asked`` about why it is not asked again."""
        assert self._neighbor is not None
        self._neighbor.lost()
        return hook(self.session, given, rng)[0], _all(asked, why)

    def _wrong(self, about: Stated, kept: Values, other: Values, left: Sequence[Values]) -> str | None:
        """Return what is wrong with what is drawn for one target, or None.

        Args:
            kept, other: what entered, and the other values that one copy was given.
            left: what left the session and its copies, see :meth:`_strange`.
        """
        name, part = about.name, about.part
        sent = [values[name] for values in left if name in values]
        if len(sent) < len(left) or any(value.shape != sent[0].shape for value in sent):
            return "what leaves has another shape when it is asked for again"
        chosen = [v if part is None else v[part] for v in (kept[name], other[name], *sent)]
        if part is None and one_message(about.target, *chosen):
            chosen = [v[:1] for v in chosen]
        return self._strange(about, _ids(kept, chosen[0], part), *chosen)

    def _memoised(self, about: Stated) -> bool:
        """Whether values of ``about`` may leave with what was drawn before."""
        return about.target in self._drawn and any(isinstance(fact, Memoised) for fact in about.facts)

    def _in_any_order(
        self,
        hook: Hook,
        sessions: Sequence[DefenseSession],
        values: Sequence[Values],
        seeds: Sequence[torch.Generator],
    ) -> list[tuple[Any, Values]]:
        """Return what ``hook`` makes of each session, called in an order that nobody knows."""
        made: dict[int, tuple[Any, Values]] = {}
        order = torch.randperm(len(sessions), generator=unforeseen()).tolist()
        outside = outside_state(self.session)
        for turn, number in enumerate(order):
            entered = {name: own(value) for name, value in values[number].items()}
            made[number] = hook(sessions[number], entered, seeds[number])  # one line for all, whoever looks
            # What is kept may be gone when all have been called.
            self._outside |= turn < _MOST_LOOKED_AT and outside_state(self.session) != outside
        return [made[number] for number in range(len(sessions))]

    def _strange(
        self,
        about: Stated,
        groups: Sequence[Tensor],
        given: Tensor,
        other: Tensor,
        live: Tensor,
        another: Tensor,
        alike: Tensor,
        *more: Tensor,
    ) -> str | None:
        again = self._memoised(about)
        self._drawn.add(about.target)
        if live.numel() == 0:
            return None
        if not again and (wrong := self._same_answers(about, given, live, another)) is not None:
            return wrong
        if not any(isinstance(f, Additive) for f in about.facts) or unlike(about.facts):
            return None
        parts = [about.noise(before, after) for before, after in ((given, live), (given, another), (other, alike))]
        if any(part is None for part in parts):
            return None
        (noise, slack, shape), (second, loose, _), (same, wide, _) = (part for part in parts if part is not None)
        if bool(((noise - same).abs() > 4 * (slack + wide)).any()):
            return (
                "noise that depends on the values that it hides, or is not drawn from the run's generator (values that"
                " are rounded or cut before or after it look so too: state that in a fact, in its place)"
            )
        if again:
            return None
        if (wrong := self._same_noise(noise, second, slack + loose, shape)) is not None:
            return wrong
        stepped = any(isinstance(f, Rounded) for f in about.facts)
        if not stepped and (wrong := bits_alike(live, another, shape.scale, self.spending)) is not None:
            return wrong
        single = not any(isinstance(f, Memoised) for f in about.facts)
        if single and (wrong := alike_rows(noise, slack, shape, groups, self.spending)) is not None:
            return wrong
        draws = [part[:2] for part in (about.noise(given, after) for after in more) if part is not None]
        if not draws:
            return None
        noises = torch.cat([noise, *(part[0] for part in draws)], 1)
        slacks = torch.cat([slack, *(part[1] for part in draws)], 1)
        wrong = strange_noise(noises, slacks, shape, torch.zeros_like(noises), self.spending)
        if wrong is not None or not single:
            return wrong
        drawn = torch.stack([noise, *(part[0] for part in draws)])
        return strange_draws(drawn, slacks, shape, self.spending)

    def _same_answers(self, about: Stated, given: Tensor, live: Tensor, another: Tensor) -> str | None:
        """Return why another generator gives the same values, noise aside, where what is drawn should change them."""
        continuous = any(isinstance(f, Additive) for f in about.facts) and live.numel() >= MANY
        if continuous and torch.equal(live, another):
            return "what is stated to be drawn does not come from the run's generator: another one gives the same"
        if about.expects is None:
            return None
        one, two = (value.reshape(len(value), -1).double() for value in (live, another))
        return answers_alike(about.facts, about.expects(given), one, two, self.spending)

    def _same_noise(self, noise: Tensor, second: Tensor, slack: Tensor, shape: Shape) -> str | None:
        """Return why the noise of another generator is the same, or like it, or a bare sum with it."""
        if unchanged(noise - second, slack, shape, self.spending) is not None:
            return "noise that does not come from the run's generator: another one gives the same"
        related = (noise.sign() * second.sign()).sum().abs()
        if float(related) > math.sqrt(2 * noise.numel() * (self.spending.next() + math.log(2))):
            return "noise that does not come from the run's generator alone: another one gives similar noise"
        return bare_sum(noise, second, shape, self.spending)

    def _looks_again(self, rng: torch.Generator) -> bool:
        """Whether this call is one of those whose draws are redrawn, however often a hook was called before: the n-th
        is with probability 1 / n, which no hook foresees."""
        return float(torch.rand(1, generator=split(copied(rng), "looked at"))) * self._asked < 1

    def _more(self, asked: Sequence[Stated], given: Values) -> int:
        """Return how many draws more to look at: enough of them show rows whose noise is made of other rows'. Only now
        and then, since that takes long."""
        self._asked += 1
        if not self.many or self._asked & (self._asked - 1):
            return 0
        most = MOST_DRAWN // max(1, sum(given[about.name].numel() for about in asked))
        shapes = [given[about.name].shape for about in asked if given[about.name].dim() > 0]
        wanted = max((2 * shape[0] // max(1, shape[1:].numel()) + 2 for shape in shapes), default=0)
        slow = not all(about.comparable for about in asked)  # samples are projected out of each draw
        return min(most, FEWEST_DRAWS if slow else MOST_DRAWS, max(4, wanted) if slow else MOST_DRAWS)


def _much(about: Stated, given: Values) -> bool:
    """Whether noise is stated on more numbers than one draw gives."""
    return any(isinstance(fact, Additive) for fact in about.facts) and given[about.name].numel() >= MANY


def _others(given: Values, stated: Sequence[Stated], rng: torch.Generator) -> Values:
    """Return other values in the places of ``given``, but for those that are not comparable, which stay."""
    fixed = {about.name for about in stated if not about.comparable}
    return {
        name: own(value) if name in fixed else _other(value, split(copied(rng), name)) for name, value in given.items()
    }


def _ids(given: Values, value: Tensor, part: Tensor | None) -> list[Tensor]:
    """Return the whole numbers of a message that say what rows of ``value`` are about."""
    whole = [ids for ids in given.values() if not ids.is_floating_point() and ids.dim() == 1]
    chosen = [ids if part is None or len(ids) != len(part) else ids[part] for ids in whole]
    return [ids for ids in chosen if len(ids) == len(value)]


def _clipped_around(session: DefenseSession, stated: Sequence[Stated]) -> bool:
    """Whether ``session`` clips changes to what it got of these payloads, so that what it got is no secret to it."""
    names = {about.target.payload for about in stated if isinstance(about.target, Field)}
    clips = [fact for fact in session.facts() if isinstance(fact, Clipped) and fact.around == "received"]
    return any(isinstance(fact.target, Field) and fact.target.payload in names for fact in clips)


def _go_on(session: DefenseSession, called: DefenseSession) -> None:
    """Let ``session`` go on with what its copy ``called`` remembers now."""
    if called is not session:
        object.__setattr__(session, "__dict__", called.__dict__)


def _all(asked: Sequence[Stated], why: str) -> dict[Target, str]:
    return {about.target: why for about in asked}


def _other(value: Tensor, rng: torch.Generator) -> Tensor:
    """Return other values: entries in other places, shrunk, and with other signs; ids stay."""
    if not value.is_floating_point():
        return value.clone()
    if is_repeated(value):
        return _other(value[:1].clone(), rng).expand_as(value)
    if value.dim() > 1 and len(value) > 1 and bool((value == value[:1]).all()):  # one message, stored for each receiver
        return _other(value[:1], rng).expand_as(value).clone()
    flat = value.detach().cpu().flatten()
    moved = flat[torch.randperm(len(flat), generator=rng)] * (2 * torch.rand(len(flat), generator=rng) - 1).to(flat)
    return moved.view(value.shape).to(value)
