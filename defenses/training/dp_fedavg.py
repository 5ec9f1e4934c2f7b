"""Federated averaging with differential privacy for whole clients (McMahan, Ramage, Talwar and Zhang, ICLR 2018).

Every client's change of its model in a round is scaled down to L2 norm at most ``clip``, and Gaussian noise is added.
Unit: all that one client holds. Who adds the noise, and against whom it therefore helps:

* ``trust: server``: the server, once, to the mean that it returns. The guarantee does not cover the server or an
  eavesdropper on uploads: it holds against clients and for the final model. If a fixed number of clients is drawn every
  round, sampling reduces the epsilon (see below).
* ``trust: local``: every client, to its own upload, enough for this upload alone. It holds against everybody.
* ``trust: distributed``: every client, its share of what ``server`` would add. The sum then has the promised noise, and
  who sees only the sum (secure aggregation) is held to ``epsilon``. Here uploads are seen one by one, so what is
  accounted is what one of them alone gives, about sqrt(m) times less noise with m clients in a round. Clients that tell
  whoever sees the sum what they added to it take their shares off, and so do those that drop out: shares are calibrated
  so that those of all but ``colluding`` clients are enough.

**Adjacency.** One client's changes zeroed out, with the number of clients and their weights in the mean public;
sensitivity ``clip`` times the largest weight. With ``trust: server`` and clients drawn without replacement: one
client's changes replaced, twice that, because only for that form the accountant knows samples of fixed size
(``fglaudit.privacy.subsampled_accounting``). A client knows whether it was drawn itself, so the others are counted as
drawn from one client less, and the promise is against one client, not a coalition. With the other trusts senders are
seen, so the draw hides nobody and every round counts.

**What is covered.** Models. Where features also leave a client in another way, no epsilon is accounted for the
training, and the mechanism's description names what is in the clear.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Context, Uploads
from fglaudit.errors import FglauditError
from fglaudit.facts import Fact, Field
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload, is_repeated
from fglaudit.privacy.accounting import VANISHING_EPSILON, Relation, check_budget
from fglaudit.privacy.mechanism import Mechanism, calibrated, check_clip, clip_fact, noise_fact
from fglaudit.privacy.strength import vanishing_budget
from fglaudit.privacy.subsampled_accounting import fixed_sample_epsilon, smallest_multiplier

Trust = Literal["server", "local", "distributed"]


class _Session(DefenseSession):
    def __init__(self, defense: DpFedAvg, context: Context, uploads: Uploads) -> None:
        self.defense, self.uploads, self.rounds = defense, uploads, context.rounds
        self.drawn = defense.trust == "server" and uploads.senders < uploads.among
        self.relation = Relation.REPLACE if self.drawn else Relation.ZERO_OUT
        self.mechanism, self.accounted = self._calibrated()
        self.left_open = context.left_open([ModelUpdate.__name__])
        self._received: Tensor | None = None

    def _calibrated(self) -> tuple[Mechanism, float]:
        """Return the noise where it is added, and the epsilon of what is seen there."""
        defense, uploads, delta = self.defense, self.uploads, self.defense.delta
        share = 1.0 if defense.trust == "local" else uploads.share
        if self.drawn:
            multiplier, spent = smallest_multiplier(
                lambda z: fixed_sample_epsilon(z, uploads.senders, uploads.among - 1, self.rounds, delta),
                defense.epsilon,
                delta,
            )
            return Mechanism("gaussian", "l2", defense.clip, self.relation, multiplier, share), spent
        whole = calibrated(
            "gaussian",
            defense.clip,
            self.relation,
            epsilon=defense.epsilon,
            delta=delta,
            releases=self.rounds,
            gain=share,
        )
        if defense.trust != "distributed":
            return whole, whole.epsilon(delta, self.rounds)
        # Honest clients' weights come to 1 - k share at least, and the noise in the mean to the root of the sum of
        # their squares, which is least where they are equal.
        honest, weight = uploads.senders - defense.colluding, 1 - defense.colluding * share
        part = replace(whole, multiplier=whole.multiplier * share * math.sqrt(honest) / weight, gain=1.0)
        return part, part.epsilon(delta, self.rounds)

    def changes(self, payload: type[Payload]) -> bool:
        return payload is ModelUpdate

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip what clients send; add noise to it, or to what the server sends if ``trust`` is "server"."""
        if not isinstance(batch.payload, ModelUpdate):
            return batch.payload
        if bool((batch.senders == SERVER).all()):
            self._received = self._returned(batch.round, batch.payload.vector, rng)
            return ModelUpdate(self._received)
        vector = batch.payload.vector
        start = torch.zeros_like(vector)
        if not self.uploads.changes:
            assert self._received is not None, "clients start from models that the server sent"
            start = self._received[batch.senders.to(vector.device)]
        change = self.mechanism.clipped(vector - start)
        if self.defense.trust != "server":
            change = self.mechanism.with_noise(change, rng)
        return ModelUpdate(start + change)

    def _returned(self, round: int, models: Tensor, rng: torch.Generator) -> Tensor:
        """Return what the server releases of its ``models`` [K, D]; those of round 0 depend on nobody."""
        if self.defense.trust != "server" or round == 0:
            return models
        noise = self.mechanism.with_noise(torch.zeros_like(models[0]), rng)
        return (models[0] + noise).expand_as(models) if is_repeated(models) else models + noise

    def facts(self) -> tuple[Fact, ...]:
        """The clip of what clients send, and the noise: on that, or on what the server sends after round 0."""
        sent = Field(ModelUpdate.__name__, direction="up")
        noisy = Field(ModelUpdate.__name__, direction="down", since=1) if self.defense.trust == "server" else sent
        around = "zero" if self.uploads.changes else "received"
        return clip_fact(self.mechanism, sent, around=around), noise_fact(self.mechanism, noisy)

    def guarantee(self) -> Guarantee:
        defense = self.defense
        alone = "; the epsilon accounted is that of one upload seen alone" if defense.trust == "distributed" else ""
        return Guarantee(
            mechanism=(
                f"dp-fedavg sigma={self.mechanism.scale:.4g} added by {ADDED_BY[defense.trust]}, clip"
                f" {defense.clip:g}{alone}{self.left_open}"
            ),
            epsilon_claimed=defense.epsilon,
            epsilon_accounted=None if self.left_open else self.accounted,
            delta=defense.delta,
            unit=defense.unit,
            adjacency=f"one client's changes {self.relation}; the number of clients and their weights public",
            releases=self.rounds,
            server_trusted=defense.trust == "server",
            relation=self.relation,
            coalition=1 if self.drawn else None,
            sum_without=defense.colluding if defense.trust == "distributed" else None,
            labels=True,
        )


ADDED_BY = {
    "server": "the server to the mean",
    "local": "every client",
    "distributed": "every client as its share of the sum's",
}


@dataclass(frozen=True)
class DpFedAvg(Defense):
    """Clip what a client's training changed in a round and add noise, by the server or by the clients.

    Attributes:
        epsilon, delta: the guarantee over the whole training.
        clip: L2 norm of a client's change in one round.
        trust: who adds the noise: "server", "local" or "distributed", see above (what the protocol gap calls
            ``noise_at``, which is taken for it).
        colluding: with ``trust: distributed``, how many clients may tell their shares of the noise, or drop out.
        unit: what one record is: "client".
    """

    name: ClassVar[str] = "dp-fedavg"
    shown: ClassVar[tuple[str, ...]] = ("epsilon", "clip", "trust")
    also: ClassVar[Mapping[str, str]] = {"noise_at": "trust"}

    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    trust: Trust = "server"
    unit: Literal["client"] = "client"
    colluding: int = 0

    def __post_init__(self) -> None:
        if self.colluding < 0 or (self.colluding and self.trust != "distributed"):
            raise FglauditError(
                "colluding counts clients, from 0, whose shares of a sum's noise are known; got colluding: "
                f"{self.colluding} with trust: {self.trust}; use trust: distributed, or 0"
            )
        check_budget(self.epsilon, self.delta, most=VANISHING_EPSILON)
        check_clip(self.clip)

    def unsupported(self, context: Context) -> str | None:
        uploads = context.uploads
        if isinstance(uploads, str):
            return uploads
        if self.trust != "local" and not uploads.mean:
            return (
                f"{context.protocol}'s server does not return one plain mean with these settings, so noise on what it"
                " returns, or shares of it, cannot be calibrated; use trust: local"
            )
        if self.colluding and (self.colluding >= uploads.senders or self.colluding * uploads.share >= 1 - 1e-9):
            return (
                f"{self.colluding} of {uploads.senders} clients of a round may be all of its weight, and then nobody"
                " else's noise is left; lower colluding"
            )
        return None

    def weakened(self, factor: float) -> DpFedAvg:
        """Return it with more epsilon. The clip stays: it scales whole changes, and the noise grows with it."""
        return replace(self, epsilon=vanishing_budget(self.epsilon, factor))

    def bind(self, context: Context) -> DefenseSession:
        if reason := self.unsupported(context):
            raise FglauditError(f"dp-fedavg does not apply: {reason}")
        assert not isinstance(context.uploads, str)
        return _Session(self, context, context.uploads)
