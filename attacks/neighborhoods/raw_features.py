"""Feature rows that FedGAT's clients upload to the server (Algorithm 1): they are read as they are.

The paper proposes homomorphic encryption for this upload and does not implement it. The wire reads the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fglaudit.adversary.modelled import about, known_noise, noisy_rows, training_changed
from fglaudit.adversary.public_rules import noise_std
from fglaudit.attacks.neighborhoods.modelled_facts import GAUSSIAN, changed_rows, sealed_finely
from fglaudit.attacks.neighborhoods.planting import plant_raw_rows
from fglaudit.attacks.neighborhoods.recovered_rows import missing_messages
from fglaudit.attacks.neighborhoods.row_levels import sent_as_held, to_levels
from fglaudit.facts import EDGES, Absent, DegreeBound, DroppedEdges, Fact, Merged
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Payload, RawFeatures
from fglaudit.structure import NoisyRows
from fglaudit.view import View


@dataclass(frozen=True)
class PlainFeatures(Attack):
    """Read the uploaded rows; under noise, a defense's or the protocol's own, return the likeliest rows behind them."""

    name: ClassVar[str] = "raw-features"
    consumes: ClassVar[tuple[type[Payload], ...]] = (RawFeatures,)
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        """Neither edges nor gradients touch an uploaded row, and one that is missing is missed."""
        if fact.target == EDGES:
            return type(fact) in (DroppedEdges, DegreeBound, Merged)
        if type(fact) is Absent or sealed_finely(fact, RawFeatures):
            return about(fact, RawFeatures)
        noise = known_noise(fact, RawFeatures, distributions=GAUSSIAN)
        return noise or noisy_rows(fact) or changed_rows(fact) or training_changed(fact)

    def unsupported(self, view: View) -> str | None:
        return missing_messages(view, RawFeatures)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        mine = torch.tensor(view.observer.clients, dtype=torch.long)
        nodes, parts = [], []
        for batch, payload in view.sent(RawFeatures):
            foreign = ~torch.isin(batch.senders, mine)[batch.entry_messages()]
            nodes.append(payload.nodes[foreign])
            parts.append(payload.x[foreign])
        ids, sent = torch.cat(nodes), torch.cat(parts)
        own_noise = view.public.structure.get(NoisyRows)
        protocols = 0.0 if own_noise is None else own_noise.std
        std = torch.full((len(ids),), math.hypot(noise_std(view, RawFeatures), protocols))
        plain = sent_as_held(view, RawFeatures) and protocols == 0
        confidence = torch.full((len(ids),), 1.0 if plain else 0.5)
        rows = to_levels(view, sent, ids, std, unit_ball=False)
        return Reconstruction(rows, ids, confidence, torch.full((len(ids),), plain))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        plain = replace(view.public, structure=view.public.structure.replace(NoisyRows, std=0.0))
        return plant_raw_rows(replace(view, public=plain), rng)
