"""Does an attack work through a defense at all? Its planted problem, sent through the defense.

Of a defense with a strength that is asked by recording the cell again at next to none of it. One without (encryption,
a code of its own) is asked with rows that the attacker made up: the leak that the attack's self-test plants is sent
through a fresh bind of the public defense, and must be found all the same. Otherwise its failure may be due to the way
in which messages are written, and says nothing of what they carry (rule 4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.known_graph import known_edges, own_clients
from fglaudit.adversary.planting import dealt, planted_federation, planted_rows
from fglaudit.interfaces import Attack
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.quantities import quantity
from fglaudit.rng import derive, split
from fglaudit.tracebacks import kept
from fglaudit.view import Messages, PublicFacts, View

FOUND_AT_LEAST = 0.5
"""Share of a planted answer that shows that an attack works through a defense."""


@dataclass
class _Defended:
    """``PublicFacts.rehearse`` under the defense; notes whether it was called."""

    public: PublicFacts
    called: bool = field(default=False)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.called = True
        assert self.public.rehearse is not None
        return self.public.rehearse(*arguments, **{**named, "defended": True})


@dataclass(frozen=True)
class _ReleasedMessages:
    """Messages of a planted problem as the public defense lets them out."""

    messages: Messages
    view: View
    seed: int

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        release = self.view.public.release
        batches = list(self.messages.of(payload))
        if release is None or not batches:
            return iter(batches)
        rng = derive(self.seed, payload.__name__)
        nodes = torch.arange(self.view.public.num_nodes)
        owner = dealt(self.view, (own_clients(self.view) < 0).nonzero().squeeze(1))
        x = planted_rows(self.view, nodes, rng)
        graph = planted_federation(self.view, x, known_edges(self.view), owner, rng)
        return iter(release(graph, batches, rng=rng).batches)


@dataclass(frozen=True)
class Through:
    """Whether an attack was seen to work through a defense.

    Attributes:
        works: whether it was.
        raised: what was raised instead of a result, in words; empty where the attack gave one.
    """

    works: bool
    raised: str = ""


def works_through(attack: Attack, view: View, rng: torch.Generator, device: torch.device) -> Through:
    """Return whether ``attack`` finds its planted leak when that is sent through the defense of ``view``.

    An attack that fails on it, whatever the error, was not seen to work through the defense; the error is told.
    """
    public = view.public
    if public.release is None:
        return Through(False)
    kind = quantity(type(attack).quantity)
    rehearse = _Defended(public)
    try:
        hidden = dataclasses.replace(view, public=dataclasses.replace(public, rehearse=rehearse))
        planted = planted_for(attack, hidden, split(rng, "plant"))
        seed = int(torch.randint(2**31, (1,), generator=rng).item())
        sent = planted.view.messages
        stated = dataclasses.replace(planted.view.public, facts=public.facts)
        seen = dataclasses.replace(
            planted.view,
            public=stated,
            messages=sent if rehearse.called else _ReleasedMessages(sent, view, seed),
        )
        result = attack.run(seen, rng=split(rng, "planted"), device=device)
        if not kind.accepts(result):
            return Through(False)
        found = kind.planted_score(dataclasses.replace(planted, view=seen), result, split(rng, "planted guess"))
    except (Exception, SystemExit) as error:  # code of the attack and of the defense: it must not end a run
        name = type(attack).name
        why = kept(error, f"attack {name} on rows planted behind the defense")
        return Through(False, f"{name} or the defense raised {why}")
    return Through(bool(found >= FOUND_AT_LEAST))
