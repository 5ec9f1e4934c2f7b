"""Feature rows that FedGAT's clients upload to the server (Algorithm 1): they are read as they are.

The paper proposes homomorphic encryption for this upload and does not implement it. The wire reads the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.public_rules import norm_bound, rows_unaltered
from fglaudit.attacks.neighborhoods.planting import plant_masked_pairs
from fglaudit.attacks.neighborhoods.recovered_rows import missing_messages
from fglaudit.attacks.neighborhoods.row_levels import to_levels
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Payload, RawFeatures
from fglaudit.view import View


@dataclass(frozen=True)
class PlainFeatures(Attack):
    """Read the uploaded rows; under noise return the likeliest rows behind them."""

    name: ClassVar[str] = "raw-features"
    consumes: ClassVar[tuple[type[Payload], ...]] = (RawFeatures,)
    metric: ClassVar[str] = "exact_rate"

    def unsupported(self, view: View) -> str | None:
        return missing_messages(view, RawFeatures)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        noise = view.public.noise.get(RawFeatures.__name__)
        mine = torch.tensor(view.observer.clients, dtype=torch.long)
        nodes, parts = [], []
        for batch in view.messages.of(RawFeatures):
            payload = batch.payload
            assert isinstance(payload, RawFeatures)
            foreign = ~torch.isin(batch.senders, mine)[batch.entry_messages()]
            nodes.append(payload.nodes[foreign])
            parts.append(payload.x[foreign])
        ids, sent = torch.cat(nodes), torch.cat(parts)
        std = torch.full((len(ids),), 0.0 if noise is None else noise.std)
        plain = noise is None and rows_unaltered(view)
        confidence = torch.full((len(ids),), 1.0 if plain else 0.5)
        rows = to_levels(view, sent, ids, std, norm_bound(view))
        return Reconstruction(rows, ids, confidence, torch.full((len(ids),), plain))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_masked_pairs(view, rng, RawFeatures)
