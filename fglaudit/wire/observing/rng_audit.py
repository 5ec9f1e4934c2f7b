"""Is what leaves a hook made of what it draws? It is called where that is seen, once as it is and once redrawn.

A session that knows the run's own call, by the state of its generator or by a memory that its copies share, may send
noise that everybody can draw in that call alone, and honest noise in all that it is compared with. So two more copies
are called before all others, in an order that nobody knows: one that draws what the run's own call will draw, and one
in which everything that is drawn of the run's generator is replaced. The first must leave as the run's own call does,
the second must not, and who is called has nothing by which to tell one from the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.facts import Additive
from fglaudit.facts.residuals import Spending, unchanged
from fglaudit.interfaces import DefenseSession
from fglaudit.rng import copied, unforeseen
from fglaudit.wire.observing.draw_collisions import answers_alike
from fglaudit.wire.observing.neighboring_session import same_bits
from fglaudit.wire.observing.redrawn import Shadowed
from fglaudit.wire.observing.stated import MANY, Hook, Stated, Values, one_message, own, unlike

WATCHED = "noise that is another where it is seen what is drawn"
_REFUSED = "its session cannot be called where it is seen what it draws"
_NOT_DRAWN = "what is stated to be drawn does not come from what is drawn: with other numbers it leaves as before"


@dataclass(frozen=True)
class RngAudit:
    """What left two calls in which it was seen what is drawn.

    Attributes:
        plain, redrawn: the values by name; None: the hook raised an error.
    """

    plain: Values | None
    redrawn: Values | None

    @staticmethod
    def of(hook: Hook, sessions: Sequence[DefenseSession], given: Values, rng: torch.Generator) -> RngAudit:
        """Call two copies of a session on ``given``, with copies of ``rng``."""
        plain, redrawn = sessions
        calls = ((plain, copied(rng)), (redrawn, unforeseen()))
        left: dict[int, Values | None] = {}
        for number in torch.randperm(2, generator=unforeseen()).tolist():
            session, shadow = calls[number]
            values, left[number] = {name: own(value) for name, value in given.items()}, None
            with contextlib.suppress(Exception), Shadowed(rng, shadow):  # whatever a plugin expects
                left[number] = hook(session, values, copied(rng))[1]
        return RngAudit(left[0], left[1])

    def wrong(self, about: Stated, given: Values, left: Values, spending: Spending, *, again: bool) -> str | None:
        """Return why what ``left`` the run's own call, of ``given``, is not made of what it drew, or None.

        Args:
            again: whether it may have been drawn before.
        """
        name = about.name
        if self.plain is None or self.redrawn is None:
            return _REFUSED
        live, plain, redrawn = (values.get(name) for values in (left, self.plain, self.redrawn))
        if live is None or plain is None or redrawn is None or not same_bits(live, plain):
            return WATCHED
        if again or redrawn.shape != live.shape or live.numel() == 0:
            return None  # rejection may end elsewhere; other shapes of the run's own call are told by others
        chosen = [v if about.part is None else v[about.part] for v in (given[name], live, redrawn)]
        if about.part is None and one_message(about.target, *chosen):
            chosen = [value[:1] for value in chosen]
        return _same(about, chosen[0], chosen[1], chosen[2], spending)


def _same(about: Stated, given: Tensor, live: Tensor, redrawn: Tensor, spending: Spending) -> str | None:
    noisy = any(isinstance(fact, Additive) for fact in about.facts)
    if noisy and live.numel() >= MANY and torch.equal(live, redrawn):
        return _NOT_DRAWN
    if about.expects is not None:
        one, two = (value.reshape(len(value), -1).double() for value in (live, redrawn))
        if answers_alike(about.facts, about.expects(given), one, two, spending) is not None:
            return _NOT_DRAWN
    if not noisy or unlike(about.facts):
        return None
    parts = [part for part in (about.noise(given, value) for value in (live, redrawn)) if part is not None]
    if len(parts) < 2:
        return None
    (noise, slack, shape), (second, loose, _) = parts
    return _NOT_DRAWN if unchanged(noise - second, slack + loose, shape, spending) is not None else None
