"""Rule 6: an attack proves itself before its silence counts.

On a planted plain leak of the cell's shapes it must succeed; on messages of pure noise it must do no better than its
control. An attack that fails either is reported as `broken-attack`, never as "no leakage".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fglaudit.adversary.local_reports import attack_reports
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import MessageBatch, Payload, is_repeated
from fglaudit.rng import split
from fglaudit.scoring.game import Game
from fglaudit.scoring.metrics import matched_exact, score_rows
from fglaudit.view import Messages, View

PLAIN_LEAK_AT_LEAST = 0.95
"""Share of planted rows an attack must rebuild exactly."""
NOISE_AT_MOST = 0.02
"""How much an attack may exceed its control on messages that carry nothing."""


@dataclass(frozen=True)
class NoiseMessages:
    """The same messages with every floating-point tensor replaced by Gaussian noise of the same mean and spread.

    Attributes:
        ids_below: replace the node ids of rows too, by random ones below this number; 0 keeps them.
    """

    messages: Messages
    seed: int
    ids_below: int = 0

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        rng = torch.Generator()
        rng.manual_seed(self.seed)
        for batch in self.messages.of(payload):
            tensors = {
                name: _noise_like(value, rng) if value.is_floating_point() else value
                for name, value in batch.payload.tensors().items()
            }
            if self.ids_below and "nodes" in tensors:
                tensors["nodes"] = torch.randint(self.ids_below, tensors["nodes"].shape, generator=rng)
            noise = type(batch.payload).from_tensors(tensors)
            yield MessageBatch(batch.round, batch.senders, batch.receivers, noise, batch.splits)


def _noise_like(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Return Gaussian noise of the mean and spread of ``value``; where all messages share one entry they still do."""
    source = value[:1] if is_repeated(value) else value
    noise = torch.randn(source.shape, generator=rng).to(value) * source.std() + source.mean()
    return noise.expand(value.shape)


def exact_share(result: Reconstruction, nodes: torch.Tensor, truth: torch.Tensor, kind: FeatureKind) -> float:
    """Return the share of ``nodes`` [T] whose row in ``result`` equals ``truth`` [T, F]; where an attack never knows
    whose row it has, the share of rows that it has at all."""
    if len(result.rows) == 0 or len(nodes) == 0:
        return 0.0
    if bool((result.nodes < 0).all()):
        return matched_exact(result.rows.to(truth), truth, kind) / len(nodes)
    none = torch.zeros_like(nodes)
    rows, present, _ = Game(nodes, truth, kind, none, none, none, none).answer(result)
    return float(score_rows(rows, present, truth, kind).exact_rate.mean().item())


def self_test(
    attack: Attack,
    view: View,
    control: Reconstruction,
    nodes: torch.Tensor,
    truth: torch.Tensor,
    *,
    rng: torch.Generator,
    device: torch.device,
) -> str | None:
    """Return what is wrong with ``attack`` on ``view``, or None.

    Args:
        control: the prior-only guess of ``nodes``.
        nodes, truth: the cell's real targets [T] and rows [T, F]; the attack itself never gets them.
    """
    planted = attack.plant(view, rng=split(rng, "plant"))
    result = attack.run(planted.view, rng=split(rng, "planted"), device=device)
    if not isinstance(result, Reconstruction):
        return "self-test: it returned no reconstruction"
    found = exact_share(result, planted.nodes, planted.rows, planted.view.public.features)
    if found < PLAIN_LEAK_AT_LEAST:
        return (
            f"self-test: on a planted plain leak it rebuilt {found:.1%} of {len(planted.nodes)} rows, not"
            f" {PLAIN_LEAK_AT_LEAST:.0%}"
        )
    seed = int(torch.randint(2**31, (1,), generator=rng).item())
    blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, seed))
    result = attack_reports(attack, blind, split(rng, "noise"), device)
    if not isinstance(result, Reconstruction):
        return "self-test: it returned no reconstruction"
    kind = view.public.features
    excess = exact_share(result, nodes, truth, kind) - exact_share(control, nodes, truth, kind)
    if excess > NOISE_AT_MOST:
        return (
            f"self-test: on messages of noise it beat its control by {excess:.1%}; it reads something that was not sent"
        )
    return None
