"""Feature rows of other clients from the gradients with which they answer a generator of missing neighbours (FedSage+).

The asking client knows its generator's weights (V, c) of the last layer, the m hidden units a_v that its embeddings
give, and the rows ``x = tanh(a V + c)`` that they make. The answer's gradient of (V, c) is

    sum over v of (a_v, 1)' s_v,    s_v = 2 f (x_v - u_v) (1 - x_v^2),

f a public factor and u_v the holder's row that is nearest to x_v. Where the m vectors (a_v, 1) are linearly
independent, which h + 1 >= m units make likely, least squares gives every s_v, and so every u_v: a row of the other
client, entry by entry. Of the p-th row that is generated per node, m counts the nodes that lack p neighbours or more:
the others add nothing. With more nodes than units, what comes out is the shortest solution and a row is seldom exact.
Rows of discrete data are then rounded; the same row answers many v and is listed once, the most frequent first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.modelled import known_noise, on_gradients, sealed
from fglaudit.adversary.planting import MemoryMessages, planted_rows
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.facts import EDGES, Fact, is_built_in
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.nn.neighbor_generator import FeatureGenerator, nearest
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import GeneratorGradients, GeneratorInputs, MessageBatch, NeighborGenerators, Payload
from fglaudit.rng import split
from fglaudit.structure import Generators
from fglaudit.view import View

ROUNDS = 5
_ALIKE = 1e-3
"""Of a row's length: rows that differ by less are one row. The answers are in single precision."""
_FLAT = 1e-4
"""Slope of tanh below which an entry of an answer says nothing: the generated entry stands for it."""
_PLANTED = 4


@dataclass(frozen=True)
class Answer:
    """What a client asked another one, and what it was answered.

    Attributes:
        client: who answered.
        vector, gradient: the generator and the answer [D].
        inputs, counts: what it was applied to [m, d], [m].
    """

    client: int
    vector: Tensor
    inputs: Tensor
    counts: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class GeneratorTargets(Attack):
    """Solve answers to generators for the rows that they were computed from."""

    name: ClassVar[str] = "generator-targets"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GeneratorGradients, GeneratorInputs, NeighborGenerators)
    metric: ClassVar[str] = "exact_rate"
    quantity: ClassVar[str] = "held-rows"
    first_rounds: ClassVar[int | None] = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Edges and gradients of other losses do not matter. Noise on answers is spread by least squares."""
        if fact.target == EDGES:
            return is_built_in(fact)
        return on_gradients(fact) or known_noise(fact, GeneratorGradients) or sealed(fact, GeneratorGradients)

    def unsupported(self, view: View) -> str | None:
        if (missing := view.public.structure.missing(Generators)) is not None:
            return missing
        if next(answers(view), None) is None:
            return "the observer sees no answer of another client beside the generator that was asked about"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        shape = generator_of(view)
        found: dict[int, list[Tensor]] = {}
        for answer in answers(view):
            found.setdefault(answer.client, []).append(targets(shape, answer, device).cpu())
        clients, rows = [], []
        for client, parts in sorted(found.items()):
            distinct = _distinct(_levels(view, torch.cat(parts)))
            clients.append(torch.full((len(distinct),), client))
            rows.append(distinct)
        owner = torch.cat(clients)
        index = torch.arange(len(owner)) - torch.searchsorted(owner, owner)
        return Inference(type(self).quantity, torch.stack([owner, index], 1), torch.cat(rows).float())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one answer of every client that answers, whose few rows are all nearest to some generated row."""
        rng = split(rng, "plant")
        shape = generator_of(view)
        clients = sorted({answer.client for answer in answers(view)})
        asker = next(receivers(view))
        batches, subjects, truth = [], [], []
        for client in clients:
            vector = initial_model(shape.layout(), rng).unsqueeze(0)
            inputs = torch.randn(1, min(_PLANTED, shape.hidden), shape.embedding, generator=rng)
            counts = torch.full(inputs.shape[:2], float(shape.slots))
            x = planted_rows(view, torch.arange(min(_PLANTED, view.public.num_nodes)), rng).unsqueeze(0)
            everyone = torch.ones(x.shape[:2], dtype=torch.bool)
            sent = shape.gradients(vector, inputs, counts, x, everyone)
            made = shape.rows(vector, shape.units(vector, inputs)).flatten(1, 2)
            used = torch.unique(nearest(made, x, everyone)[0], dim=0)
            there, back = torch.tensor([asker]), torch.tensor([client])
            splits = torch.tensor([0, inputs.shape[1]])
            batches += [
                MessageBatch(1, there, back, NeighborGenerators(vector)),
                MessageBatch(1, there, back, GeneratorInputs(inputs[0], counts[0]), splits),
                MessageBatch(1, back, there, GeneratorGradients(sent)),
            ]
            subjects.append(torch.stack([torch.full((len(used),), client), torch.arange(len(used))], 1))
            truth.append(used)
        planted = without_defense(view, MemoryMessages(tuple(batches)))
        return Planted(planted, torch.cat(truth), torch.cat(subjects))


def generator_of(view: View) -> FeatureGenerator:
    """Return the shape of the generators."""
    stated = view.public.structure.of(Generators)
    return FeatureGenerator(stated.embedding, stated.hidden, stated.slots, view.public.num_features)


def receivers(view: View) -> Iterator[int]:
    """Yield who was answered, answer by answer."""
    for batch in view.messages.of(GeneratorGradients):
        yield from batch.receivers.tolist()


def answers(view: View) -> Iterator[Answer]:
    """Yield the answers of others than the observer's clients in the first rounds, where the observer also sees what
    was asked."""
    asked: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}
    for batch, inputs in view.sent(GeneratorInputs):
        assert batch.splits is not None
        ends = batch.splits.tolist()
        for place, pair in enumerate(zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)):
            part = slice(ends[place], ends[place + 1])
            asked[batch.round, *pair] = inputs.values[part], inputs.counts[part]
    generators: dict[tuple[int, int, int], Tensor] = {}
    for batch, sent in view.sent(NeighborGenerators):
        for place, pair in enumerate(zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)):
            generators[batch.round, *pair] = sent.vector[place]
    for batch, gradients in view.sent(GeneratorGradients):
        for place, (sender, receiver) in enumerate(zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)):
            key = batch.round, receiver, sender
            if batch.round > ROUNDS or sender in view.observer.clients or key not in asked or key not in generators:
                continue
            yield Answer(sender, generators[key], *asked[key], gradients.vector[place])


def targets(shape: FeatureGenerator, answer: Answer, device: torch.device) -> Tensor:
    """Return the rows [r, F] that ``answer`` was computed from, one per generated row that counts."""
    held = answer.vector, answer.inputs, answer.counts, answer.gradient
    vector, inputs, counts, gradient = (each.to(device).double().unsqueeze(0) for each in held)
    units = shape.units(vector, inputs)
    made = shape.rows(vector, units)[0]
    weights = unflatten(gradient, shape.layout())
    sums = torch.cat([weights["rows.weight"][0], weights["rows.bias"]])
    known = torch.cat([units[0], made.new_ones(len(made), 1)], 1)
    counted, slopes = shape.counted(counts)[0], torch.zeros_like(made)
    for slot, part in enumerate(sums.view(len(sums), *made.shape[1:]).unbind(1)):
        asked = counted[:, slot]
        slopes[asked, slot] = torch.linalg.pinv(known[asked].T) @ part
    flat = 1 - made.square()
    step = 2 * shape.share(counts) * flat
    rows = torch.where(flat > _FLAT, made - slopes / step, made)
    return torch.nan_to_num(rows)[counted]


def _levels(view: View, rows: Tensor) -> Tensor:
    """Return ``rows`` [r, F] as data of their kind have them: those of discrete data have two levels."""
    if view.public.features is FeatureKind.REAL:
        return rows
    top = rows.amax(1, keepdim=True).clamp(min=1e-12)
    level = torch.ones_like(top) if view.public.features is FeatureKind.BINARY else top
    return torch.where(rows > level / 2, level, 0.0)


def _distinct(rows: Tensor) -> Tensor:
    """Return the rows with an entry that differ [d, F], scaled to length 1, the most frequent first."""
    unit = normalize(rows[rows.any(1)], dim=1)
    if not len(unit):
        return unit
    alike = unit @ unit.T > 1 - _ALIKE**2 / 2
    first = alike.int().argmax(1)  # the first row that is like it
    kinds, count = torch.unique(first, return_counts=True)
    return unit[kinds[count.argsort(descending=True, stable=True)]]
