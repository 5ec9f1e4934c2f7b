"""Self-test problems for attacks on exchanged embeddings: few rows per embedding, under independent models.

Every round is the first of a rehearsal of its own, so that models differ as much as initial ones do. Within one
training they differ by a few gradients, and how many equations follow from that depends on the cell.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from fglaudit.adversary.planting import MemoryMessages, rehearsed
from fglaudit.attacks.neighborhoods.planting import PlantedPairs, masked_payload, planted_pairs
from fglaudit.interfaces import Planted
from fglaudit.payloads import Embeddings, MessageBatch, ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View

_NUMBERS_PER_FEATURE = 2


def plant_lone_embeddings(view: View, rng: torch.Generator, rounds: int) -> Planted:
    """Return pairs of an own and a foreign node with the embeddings of the latter alone.

    Args:
        rounds: as many at most; no more than give two numbers per feature.
    """
    rng = split(rng, "plant")
    pairs = planted_pairs(view, rng)
    planted = dataclasses.replace(pairs.view, messages=MemoryMessages(_rounds(pairs, rounds, rng)))
    return Planted(planted, pairs.rows, pairs.nodes)


def plant_linked_embeddings(view: View, rng: torch.Generator, rounds: int) -> Planted:
    """Return the same with masked messages, and with an edge between every two foreign nodes: these are the answer."""
    rng = split(rng, "plant")
    pairs, payload = planted_pairs(view, rng, linked=True), masked_payload(view)
    masked = rehearsed(pairs.view, pairs.graph, [payload], rng).messages.of(payload)
    planted = dataclasses.replace(pairs.view, messages=MemoryMessages((*masked, *_rounds(pairs, rounds, rng))))
    edges = pairs.pairs[1].view(-1, 2)
    return Planted(planted, torch.ones(len(edges)), edges)


def _rounds(pairs: PlantedPairs, most: int, rng: torch.Generator) -> tuple[MessageBatch, ...]:
    """Return models and the embeddings under them, of at most ``most`` rounds."""
    features, width = pairs.view.public.layout["layers.0.weight"]
    batches: list[MessageBatch] = []
    for round in range(min(most, math.ceil(_NUMBERS_PER_FEATURE * features / width))):
        view = rehearsed(pairs.view, pairs.graph, [ModelUpdate, Embeddings], split(rng, f"round {round}"))
        for payload in (ModelUpdate, Embeddings):
            batches += [dataclasses.replace(batch, round=round) for batch in view.messages.of(payload)]
    return tuple(batches)
