"""The contract of a quantity: who is asked about, what is true, what a guess achieves, how a result is scored.

Feature rows are one quantity among the others (:mod:`fglaudit.quantities.rows.features`): there is one path from a
result to its figures, and one self-test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.finding import Cause, Reason
from fglaudit.graph import ClientGraph, FederatedGraph, last_places
from fglaudit.interfaces import Attack, FederatedProtocol, Inference, Planted, Reconstruction
from fglaudit.quantities.negatives import Negatives
from fglaudit.view import Auxiliary, Observer, PartialRows, View

UNINFORMATIVE = 0.99
"""A control this good leaves no room for an attack to show anything."""
NO_ROW_REACHES = Reason(
    "no node's features reach this observer: no message to it holds rows, or anything computed from rows alone; what"
    " models give away is asked under other quantities",
    Cause.NO_ROW,
)
"""Why nobody's features, nor what is computed of them, can be asked of an observer."""
ALL_ROWS_KNOWN = (
    "this observer knows every row that reaches it beforehand, so that there is none to learn; give it fewer auxiliary"
    " rows"
)
"""Why not, where rows do reach it."""

Result = Reconstruction | Inference
"""What an attack returns, and what a guess is."""


@dataclass(frozen=True)
class ObserverTruth:
    """What is true about a run, and about whom one observer is asked. For the scorer alone.

    Attributes:
        trained: see ``fglaudit.interfaces.Trained.truth``.
        pooled: whether the observer is one client of "each client in turn".
        edges: that a defense left of a client's, by client, where it changed any; global ids [2, E].
        partial: rows that the observer knows but for sensitive columns, as it knows them; None: none.
        shared: what was made of the run for another observer, by name.
    """

    graph: FederatedGraph
    protocol: FederatedProtocol
    observer: Observer
    auxiliary: Auxiliary
    trained: Mapping[str, Tensor]
    pooled: bool
    edges: Mapping[int, Tensor] = field(default_factory=dict)
    partial: PartialRows | None = None
    shared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def clients(self) -> tuple[ClientGraph, ...]:
        """Return the clients' graphs with the edges that they trained with."""
        held = (self.graph.client(k) for k in range(self.graph.num_clients))
        return tuple(c.keeping(self.edges[c.client]) if c.client in self.edges else c for c in held)

    def layer_inputs(self) -> tuple[Tensor, Tensor] | None:
        """Return :meth:`fglaudit.interfaces.FederatedProtocol.layer_inputs` of :meth:`clients`; whoever gets it must
        not change it."""
        if "layer inputs" not in self.shared:
            self.shared["layer inputs"] = self.protocol.layer_inputs(self.graph, self.clients())
        found: tuple[Tensor, Tensor] | None = self.shared["layer inputs"]
        return found

    def strangers(self) -> Tensor:
        """Return ids of the nodes of which the observer holds no row: neither its own nor an auxiliary one, whole or in
        part."""
        unknown = self.foreign()
        unknown[self.auxiliary.nodes] = False
        if self.partial is not None:
            unknown[self.partial.nodes] = False
        return unknown.nonzero().squeeze(1)

    def others(self) -> Tensor:
        """Return the clients that are not observing, ascending."""
        other = torch.ones(self.graph.num_clients, dtype=torch.bool)
        other[list(self.observer.clients)] = False
        return other.nonzero().squeeze(1)

    def owners(self) -> Tensor:
        """Return the client that holds each node [N]: the last one where clients overlap, -1 where none does. Whoever
        gets it must not change it."""
        if "owners" not in self.shared:
            place, client = last_places(self.graph.clients, self.graph.num_nodes)
            self.shared["owners"] = torch.where(place >= 0, client[place], -1)
        found: Tensor = self.shared["owners"]
        return found

    def foreign(self) -> Tensor:
        """Return which nodes no observing client holds, a mask [N]."""
        foreign = torch.ones(self.graph.num_nodes, dtype=torch.bool)
        for k in self.observer.clients:
            foreign[self.graph.clients[k]] = False
        return foreign

    def held_by_others(self, nodes: Tensor) -> Tensor:
        """Return which of ``nodes`` [S] clients hold, but no observing one, a mask [S]."""
        return (self.owners()[nodes] >= 0) & self.foreign()[nodes]

    def clusters(self, nodes: Tensor) -> Tensor:
        """Return the cluster of everything asked about ``nodes`` [S], for intervals: the observing client where every
        client is one in turn, otherwise the client that owns the node (the last one where clients overlap). Nodes that
        no client holds are one more cluster."""
        owner = self.owners()[nodes]
        return self.clusters_of(torch.where(owner >= 0, owner, self.graph.num_clients))

    def clusters_of(self, clients: Tensor) -> Tensor:
        """Return the cluster of everything asked about ``clients`` [S], as :meth:`clusters` does of nodes."""
        return torch.full_like(clients, self.observer.clients[0]) if self.pooled else clients


@dataclass(frozen=True)
class Question:
    """What one observer is asked.

    Attributes:
        subjects: ids [S], or pairs of ids [S, 2].
        truth: [S] or [S, D].
        clusters: [S].
        rest: how many further subjects there are, all of them negative; not listed because they are too many (pairs of
            nodes without an edge).
        among: which nodes these pairs are made of, a mask [N]; None where subjects are no pairs or all nodes count.
        training: which subjects are about training nodes, a mask [S] for a breakdown; None: there is none.
        graded: whether near misses count by how near they come, where a quantity has hits and misses.
    """

    subjects: Tensor
    truth: Tensor
    clusters: Tensor
    rest: int = 0
    among: Tensor | None = None
    training: Tensor | None = None
    graded: bool = False


class Attempt(NamedTuple):
    """What an attack made of one view, beside what a guess says.

    Attributes:
        question: what :meth:`Quantity.ask` returned for the view's observer.
        result, guess: of the kind that the quantity accepts.
    """

    view: View
    question: Any
    result: Any
    guess: Any


class Scores(NamedTuple):
    """Scores of one or several questions.

    Attributes:
        values: the primary metric per scored subject [V]; its mean is the finding's value.
        clusters: of the scored subjects [V].
        columns: further columns of ``findings.csv``.
        negatives: the other side, where the scored subjects are the positives of a ranking whose negatives are a sample
            too.
    """

    values: Tensor
    clusters: Tensor
    columns: Mapping[str, float]
    negatives: Negatives | None = None


@dataclass(frozen=True)
class Comparison:
    """An attack beside its control, over all views of one observer: what a finding is made of.

    Attributes:
        metric: name of the primary metric.
        values, controls: it per scored target, of the attack and of its control [V].
        clusters: cluster of each of them [V].
        columns: further columns of ``findings.csv``.
        breakdown: the primary metric by degree bucket, class and client, for reports.
        wrong: what shows that the attack is not to be believed whatever its self-test says, or None.
        examples: a few targets with truth and result as plain JSON, for reports.
        told: the primary metric of a guess that is told more than the observer, per target [V]; None: there is none.
        negatives: of the attack's rankings and of its control's, in the same order; None: the targets are all there is.
    """

    metric: str
    values: Tensor
    controls: Tensor
    clusters: Tensor
    columns: Mapping[str, float | None]
    breakdown: Mapping[str, dict[str, float]] = field(default_factory=dict)
    wrong: str | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    told: Tensor | None = None
    negatives: tuple[Negatives, Negatives] | None = None

    def among(self, groups: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the mean primary metric of every group of targets, given as masks [V]; none of an empty one."""
        return {name: float(self.values[mask].mean().item()) for name, mask in groups.items() if bool(mask.any())}


class Excess(NamedTuple):
    """By how much a result beats a guess: its advantage, taken apart into targets.

    Attributes:
        values: the contribution of every target [V]; their mean is the advantage.
        clusters: of the targets [V].
        negatives: contributions of the negatives of rankings; None: there are none.
    """

    values: Tensor
    clusters: Tensor
    negatives: Negatives | None = None


class Quantity(ABC):
    """One quantity. ``Q`` below is the question that its :meth:`ask` returns."""

    name: ClassVar[str]
    metric: ClassVar[str]
    """Name of the primary metric; the larger the better, 1 is perfect."""
    asks_last: ClassVar[bool] = False
    """Whether questions are as long as there are clients times nodes: they are then asked only where an attack applies,
    since an observer that is each client in turn has one per client."""

    @abstractmethod
    def ask(self, truth: ObserverTruth) -> Any:
        """Return whom the observer is asked about and what is true (:class:`Question`), or why there is nothing to ask
        (text)."""

    def nothing_to_ask(self, asked: Sequence[Any]) -> str | None:
        """Return why the members of an observer, one question each, cannot be asked, or None."""
        return next((question for question in asked if isinstance(question, str)), None)

    @abstractmethod
    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Any:
        """Return a result from side knowledge alone; ``view.messages`` is not read.

        Args:
            subjects: those of the question, where listing them gives nothing away; the answer may be about others.
            rng: for guesses that are tuned on a sample of known rows.
        """

    @abstractmethod
    def accepts(self, result: object) -> bool:
        """Whether ``result`` is an answer about this quantity."""

    @abstractmethod
    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        """Score the attempts of ``attack``, one per view, beside the guesses."""

    @abstractmethod
    def planted_score(self, planted: Planted, result: Any, rng: torch.Generator) -> float:
        """Return how much of a self-test's planted answer ``result`` got right, in [0, 1]."""

    @abstractmethod
    def planted_words(self, planted: Planted, score: float, least: float) -> str:
        """Say that ``score`` on a planted answer is below ``least``."""

    def unique_exact(self, attempt: Attempt) -> int | None:
        """Return how many feature rows the result has exactly, and the guess has not, that no other node has; None for
        other quantities."""
        return None

    def excess(self, attack: Attack, attempt: Attempt) -> tuple[Excess, ...]:
        """Return by how much the result beats the guess, in every way in which a report might call it a success."""
        compared = self.compare(attack, [attempt])
        left = max(1 - float(compared.controls.double().mean().item()), 1 - UNINFORMATIVE)
        beyond = (compared.values - compared.controls).double() / left
        if compared.negatives is None:
            return (Excess(beyond, compared.clusters),)
        found, control = compared.negatives
        return (Excess(beyond, compared.clusters, found._replace(values=(found.values - control.values) / left)),)


class InferredQuantity(Quantity):
    """A quantity that attacks return an :class:`Inference` of."""

    @abstractmethod
    def ask(self, truth: ObserverTruth) -> Question | str:
        """See :meth:`Quantity.ask`."""

    @abstractmethod
    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        """See :meth:`Quantity.guess`."""

    @abstractmethod
    def judge(self, question: Question, estimate: Tensor) -> Scores:
        """Score ``estimate`` [S] or [S, D], aligned with ``question.subjects``."""

    def planted(self, planted: Planted) -> Question:
        """Return the question that a self-test's planted answer belongs to."""
        return Question(planted.nodes, planted.rows, torch.zeros(len(planted.nodes), dtype=torch.long))

    def score(self, question: Question, result: Inference, guess: Inference) -> Scores:
        """Score ``result``; where it says nothing about a subject, the guess stands."""
        return self.judge(question, self.estimated(question, result, guess))

    def estimated(self, question: Question, result: Inference, guess: Inference) -> Tensor:
        """Return what ``result`` says of the question's subjects, in their order; where it says nothing, the guess."""
        estimate = guess.estimate.clone()
        if result is guess:
            return estimate
        codes, wanted = subject_codes(result.subjects, question.subjects)
        if len(codes):
            order = torch.argsort(codes, stable=True)
            source = order[torch.searchsorted(codes[order], wanted).clamp(max=len(codes) - 1)]
            found = codes[source] == wanted
            estimate[found] = result.estimate[source[found]].to(estimate)
        return estimate

    def accepts(self, result: object) -> bool:
        return isinstance(result, Inference) and result.quantity == self.name

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        for attempt in attempts:
            _require_numbers(type(attack).name, attempt.result.estimate)
        found = [self.score(each.question, each.result, each.guess) for each in attempts]
        control = [self.score(each.question, each.guess, each.guess) for each in attempts]
        beside = {
            f"control_{name}": value
            for name, value in _pooled(control).items()
            if name in ("auc", "cosine", "exact_rate")
        }
        return Comparison(
            metric=self.metric,
            values=torch.cat([s.values for s in found]),
            controls=torch.cat([s.values for s in control]),
            clusters=torch.cat([s.clusters for s in found]),
            columns={**_pooled(found), **beside},
            negatives=_both_negatives(found, control),
        )

    def planted_score(self, planted: Planted, result: Inference, rng: torch.Generator) -> float:
        problem = self.planted(planted)
        guess = self.guess(planted.view, problem.subjects, rng)
        return float(self.score(problem, result, guess).values.mean().item())

    def planted_words(self, planted: Planted, score: float, least: float) -> str:
        return f"on a planted plain leak its {self.metric} was {score:.3f}, not {least:g}"


def _require_numbers(attack: str, estimate: Tensor) -> None:
    """Raise :class:`FglauditError` for an estimate that is no number, which a ranking would put above all others."""
    if odd := int(torch.isnan(estimate).sum().item()):
        raise FglauditError(
            f"estimates are numbers, or -inf for what is least likely; {odd} of {estimate.numel()} that {attack} gave"
            " are not; look for a model that diverged"
        )


def _both_negatives(found: Sequence[Scores], control: Sequence[Scores]) -> tuple[Negatives, Negatives] | None:
    """Return the negatives of an attack's rankings and of its control's; None unless every view has some."""
    sides = [[s.negatives for s in scores if s.negatives is not None] for scores in (found, control)]
    if any(len(side) < len(found) for side in sides):
        return None
    return Negatives.joined(sides[0]), Negatives.joined(sides[1])


def _pooled(scores: Sequence[Scores]) -> dict[str, float | None]:
    """Return the means of the columns over the views, weighted by what was scored; those that a view lacks are left
    out."""
    total = sum(len(s.values) for s in scores)
    common = [name for name in scores[0].columns if all(name in s.columns for s in scores)]
    return {name: sum(s.columns[name] * len(s.values) for s in scores) / total for name in common}


def subject_codes(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return one integer per subject of both lists ([S] or [S, 2]), equal where the subjects are equal."""
    if first.dim() == 1:
        return first, second
    width = int(max(first.max().item() if first.numel() else 0, second.max().item() if second.numel() else 0)) + 1
    return first[:, 0] * width + first[:, 1], second[:, 0] * width + second[:, 1]


def mean_known_row(view: View) -> Tensor:
    """Return the mean [F] of the rows that the observer knows; without any, ones."""
    known = view.known_rows().x
    return known.double().mean(0) if len(known) else torch.ones(view.public.num_features, dtype=torch.double)


def similarity_scores(question: Question, estimate: Tensor) -> Scores:
    """Score vectors [S, D] by their cosines with the truth; a vector of zeros counts as 0."""
    estimate, truth = estimate.double(), question.truth.double()
    cosine = torch.nan_to_num(torch.cosine_similarity(estimate, truth, dim=1))
    error = (estimate - truth).norm(dim=1) / truth.norm(dim=1).clamp(min=1e-12)
    columns = {"cosine": float(cosine.mean().item()), "relative_error": float(error.mean().item())}
    return Scores(cosine, question.clusters, columns)
