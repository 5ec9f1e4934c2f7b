"""Faults of k-ary responses: classes that are reported too truly, unevenly, together, anew, or by what others are."""

from __future__ import annotations

import os

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bench.redteam.planted import Broken, fault
from fglaudit.facts import Randomised
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, ClassReports, MessageBatch, Payload


class BrokenReports(Broken):
    """Randomises reports and remembers them; a fault overrides the chance, the answer, or what is sent."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        fact = next(fact for fact in inner.facts() if isinstance(fact, Randomised))
        self.keep, self.classes = float(fact.parameter("keep")), int(fact.parameter("classes"))
        self.said: dict[int, int] = {}
        self.message = torch.empty(0)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        payload = batch.payload
        if not isinstance(payload, ClassReports) or bool((batch.senders == SERVER).all()):
            return payload
        nodes, true = payload.nodes, payload.values.argmax(1)
        self.message = batch.entry_messages()
        fresh = self.answers(nodes, true, rng)
        said = torch.tensor([self.said.setdefault(n, c) for n, c in zip(nodes.tolist(), fresh.tolist(), strict=True)])
        return self.sent(nodes, one_hot(said.long(), self.classes).to(payload.values), true)

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        lies = torch.rand(len(true), generator=rng) >= self.keep
        return torch.where(lies, self.other(true, rng), true)

    def other(self, true: Tensor, rng: torch.Generator) -> Tensor:
        return (true + torch.randint(1, self.classes, true.shape, generator=rng)) % self.classes

    def sent(self, nodes: Tensor, values: Tensor, true: Tensor) -> Payload:
        return ClassReports(nodes, values)


@fault
class AnotherDraw(BrokenReports):
    """Honest: the same law, drawn otherwise."""


@fault
class KeepsTooOften(BrokenReports):
    """The odds' logarithm is 1.5 times what is stated."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        odds = (self.keep / (1 - self.keep) * (self.classes - 1)) ** 1.5
        self.keep = odds / (odds + self.classes - 1)


@fault
class LiesAreNeighbors(BrokenReports):
    """A lie is always the next class."""

    def other(self, true: Tensor, rng: torch.Generator) -> Tensor:
        return (true + 1) % self.classes


@fault
class LiesBySeed(BrokenReports):
    """Whether and what a node lies follows from its number, which everybody knows."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        draws = [torch.rand(2, generator=torch.Generator().manual_seed(node)).tolist() for node in nodes.tolist()]
        chance, shift = torch.tensor(draws).reshape(-1, 2).unbind(1)
        other = (true + 1 + (shift * (self.classes - 1)).long()) % self.classes
        return torch.where(chance >= self.keep, other, true)


@fault
class OneCoinForAll(BrokenReports):
    """All nodes lie, or none does."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        lies = torch.rand(1, generator=rng) >= self.keep
        return torch.where(lies, self.other(true, rng), true)


@fault
class TwinsLieTogether(BrokenReports):
    """Two nodes share a coin."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        coins = torch.rand(len(true) // 2 + 1, generator=rng).repeat_interleave(2)[: len(true)]
        return torch.where(coins >= self.keep, self.other(true, rng), true)


@fault
class OneClassBare(BrokenReports):
    """Nodes of class 0 never lie."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        return torch.where(true == 0, true, super().answers(nodes, true, rng))


@fault
class EverySecondNodeBare(BrokenReports):
    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        return torch.where(nodes % 2 == 0, true, super().answers(nodes, true, rng))


@fault
class AnswersAnew(BrokenReports):
    """A node that is asked again draws again."""

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        self.said = {}
        return super().release(batch, rng)


@fault
class TruthBelowThePoint(BrokenReports):
    """The true class stands in the lowest digits."""

    def sent(self, nodes: Tensor, values: Tensor, true: Tensor) -> Payload:
        return ClassReports(nodes, values + 1e-6 * true[:, None])


@fault
class RowsInOrderOfTruth(BrokenReports):
    """Rows are sorted by the true class."""

    def sent(self, nodes: Tensor, values: Tensor, true: Tensor) -> Payload:
        order = torch.argsort(true, stable=True)
        return ClassReports(nodes[order], values[order])


@fault
class CoinsOfTheSystem(BrokenReports):
    """Coins do not come from the generator that was handed over."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        return super().answers(nodes, true, torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big")))


@fault
class LiesTellOfRows(BrokenReports):
    """Which of the other classes a lie is says whether the node has an even number of words."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.odd: dict[int, int] = {}
        self.asked = torch.empty(0)

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        self.odd |= dict(zip(client.nodes.tolist(), (client.x > 0.5).sum(1).remainder(2).tolist(), strict=True))
        return self.inner.prepare(client, rng)

    def prepares(self) -> bool:
        return True

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        self.asked = nodes
        return super().answers(nodes, true, rng)

    def other(self, true: Tensor, rng: torch.Generator) -> Tensor:
        shift = torch.randint(1, self.classes, true.shape, generator=rng)
        odd = torch.tensor([self.odd.get(node, -1) for node in self.asked.tolist()])
        return (true + torch.where(odd < 0, shift, 1 + odd % (self.classes - 1))) % self.classes


class _ByOthers(BrokenReports):
    """Lies are drawn with weights [classes] that follow from the other nodes of the same client."""

    def weights(self, counts: Tensor) -> Tensor:
        raise NotImplementedError

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        counts = one_hot(true, self.classes).double()
        together = (self.message[:, None] == self.message).double() @ counts
        weights = self.weights(together) * (1 - counts)
        weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, 1 - counts)
        lies = torch.rand(len(true), generator=rng) >= self.keep
        return torch.where(lies, torch.multinomial(weights, 1, generator=rng)[:, 0], true)


@fault
class LiesAmongObserved(_ByOthers):
    """A lie is a class that some other node of the client has."""

    def weights(self, counts: Tensor) -> Tensor:
        return (counts > 0).double()


@fault
class LiesByFrequency(_ByOthers):
    """Lies have the classes of the client's nodes, as often as these have them."""

    def weights(self, counts: Tensor) -> Tensor:
        return counts


@fault
class OnlyOneOfItsClass(BrokenReports):
    """The only node of its class at a client does not lie: it would be lost."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        alike = (self.message[:, None] == self.message) & (true[:, None] == true)
        return torch.where(alike.sum(1) == 1, true, super().answers(nodes, true, rng))


@fault
class AsManyAsExpected(BrokenReports):
    """Which nodes lie is drawn, how many do is not."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        order = torch.randperm(len(true), generator=rng)
        return torch.where(order < round((1 - self.keep) * len(true)), self.other(true, rng), true)


@fault
class ClassByClass(BrokenReports):
    """Honest, and its draws depend on the classes of all: which nodes they are for does."""

    def answers(self, nodes: Tensor, true: Tensor, rng: torch.Generator) -> Tensor:
        said = true.clone()
        for each in range(self.classes):
            said[true == each] = super().answers(nodes, true[true == each], rng)
        return said


REPORTS = "class-reports"
BROKEN: tuple[tuple[str, str], ...] = tuple(
    (each.__name__, REPORTS)
    for each in (
        *(KeepsTooOften, LiesAreNeighbors, LiesBySeed, OneCoinForAll, TwinsLieTogether, OneClassBare),
        *(EverySecondNodeBare, AnswersAnew, TruthBelowThePoint, RowsInOrderOfTruth, CoinsOfTheSystem),
        *(LiesTellOfRows, LiesAmongObserved, LiesByFrequency, OnlyOneOfItsClass, AsManyAsExpected),
    )
)
"""What is wrong, and with what."""
HONEST: tuple[tuple[str, str], ...] = ((AnotherDraw.__name__, REPORTS), (ClassByClass.__name__, REPORTS))
"""What is right, and on what."""
UNSEEN = (ClassByClass.__name__,)
"""Of these, whose nodes' answers are not seen to be independent."""
