"""Differentially private gradient descent on local training (Abadi et al., CCS 2016), for the nodes of a graph.

In every local step the gradient of each training node's loss is clipped to L2 norm ``clip``, the clipped gradients are
added up with Gaussian noise, and the client goes on with that sum: optimizer, averaging and everything that is sent of
the models are computed from it. Every client adds its own noise, so the server need not be trusted. Opacus does the
same for one torch module; here the per-example gradients of all clients are one tensor
(``fglaudit.federated.example_gradients``), equal to Opacus's where both apply (a test).

**Unit: a node.** In a GNN a node is in the losses of its neighbourhood, not in its own alone. Before training every
client drops edges until no node has more than ``degree_bound`` neighbours; ``fglaudit.privacy.degree_bound`` has the
rule, and derives how many losses M one node can change, the rule's own change included. Each moves the sum by at most
``2 clip``: sensitivity ``2 clip M`` per pass over the training nodes, over all clients and batches together.

* ``edges: private``: adjacent graphs differ by one node taken away with its features, label and edges, at most
  ``degree_bound`` of them within its client (a node with more loses its promise about edges, not about features and
  label). Who is a training node, and how many each client has, is public. Only where losses see no other client's
  nodes, and edges between clients enter nothing: elsewhere degrees and dropped edges go to others, or what was
  propagated over them (``structure-only``).
* ``edges: public``: they differ by one node's features and label; all edges are public.

Labels and edges are protected as part of a node; neither has an epsilon of its own.

**What is covered.** Gradients, and so the models. Where features also leave otherwise (FedGCN's sums with one hop or
more) no epsilon is accounted, whatever the noise: the mechanism's description names what is in the clear.

``sampling_rate`` < 1 takes every loss with that probability in a step (Poisson). It saves nothing: the noise per unit
of signal is smallest with all of them, since a node's many losses are rarely drawn together but never all left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fglaudit.context import Context, Examples
from fglaudit.errors import FglauditError
from fglaudit.facts import EDGES, GRADIENTS, DegreeBound, Fact, Sampled, Scaled
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import ModelUpdate
from fglaudit.privacy.accounting import VANISHING_EPSILON, Relation, check_budget
from fglaudit.privacy.degree_bound import bound_degrees, changed_losses
from fglaudit.privacy.mechanism import Mechanism, calibrated, check_clip, clip_fact, noise_fact
from fglaudit.privacy.strength import vanishing_budget
from fglaudit.privacy.subsampled_accounting import poisson_losses_epsilon, smallest_multiplier

Edges = Literal["private", "public"]


class _Session(DefenseSession):
    def __init__(self, defense: DpSgd, context: Context, examples: Examples) -> None:
        self.defense, self.passes = defense, examples.passes
        self.losses = changed_losses(examples, defense.degree_bound, private_edges=defense.edges == "private")
        self.mechanism, self.accounted = self._calibrated()
        self.left_open = context.left_open([ModelUpdate.__name__])

    def _calibrated(self) -> tuple[Mechanism, float]:
        """Return the noise for a node whose losses are all replaced, and the epsilon that it then spends."""
        defense, budget = self.defense, {"epsilon": self.defense.epsilon, "delta": self.defense.delta}
        if defense.sampling_rate == 1:
            found = calibrated(
                "gaussian", defense.clip, Relation.REPLACE, releases=self.passes, gain=float(self.losses), **budget
            )
            return found, found.epsilon(defense.delta, self.passes)
        per_sensitivity, spent = smallest_multiplier(
            lambda z: poisson_losses_epsilon(z, defense.sampling_rate, self.losses, self.passes, defense.delta),
            **budget,
        )
        multiplier = Relation.REPLACE.moves * per_sensitivity
        return Mechanism("gaussian", "l2", defense.clip, Relation.REPLACE, multiplier, float(self.losses)), spent

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Drop edges until no node has more than ``degree_bound`` neighbours."""
        return bound_degrees(client, self.defense.degree_bound, self.defense.seed)

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        """Return the sum of the clipped gradients of the sample, with noise, over its rate [K, D]."""
        norm = torch.linalg.vector_norm(gradients, dim=2)
        scale = self.defense.clip / norm.clamp(min=self.defense.clip)
        if self.defense.sampling_rate < 1:
            chosen = torch.rand(norm.shape, generator=rng) < self.defense.sampling_rate
            scale = scale * chosen.to(scale)
        # A gradient that is not finite counts as zero: otherwise it would be visible through any noise.
        finite = norm.isfinite()
        kept = torch.where(finite, scale, 0.0), torch.where(finite.unsqueeze(2), gradients, 0.0)
        total = torch.einsum("ek,ekd->kd", *kept)
        return self.mechanism.with_noise(total, rng) / self.defense.sampling_rate

    def facts(self) -> tuple[Fact, ...]:
        """The degree bound; then, in every step: clip, sample, noise on the sum, which is divided by the rate."""
        rate = self.defense.sampling_rate
        noise = noise_fact(self.mechanism, GRADIENTS)
        return (
            DegreeBound(EDGES, self.defense.degree_bound, self.defense.seed),
            clip_fact(self.mechanism, GRADIENTS, per="example"),
            *((Sampled(GRADIENTS, rate), noise, Scaled(GRADIENTS, 0.0, 1 / rate)) if rate < 1 else (noise,)),
        )

    def guarantee(self) -> Guarantee:
        defense = self.defense
        if defense.edges == "private":
            adjacency = (
                f"one node with at most {defense.degree_bound} edges within its client taken away: features, label,"
                " edges; who trains is public"
            )
        else:
            adjacency = "one node's features and label replaced; edges and who trains public"
        return Guarantee(
            mechanism=(
                f"dp-sgd sigma={self.mechanism.scale:.4g}, clip {defense.clip:g}, {self.losses} losses change per"
                f" node{self.left_open}"
            ),
            epsilon_claimed=defense.epsilon,
            epsilon_accounted=None if self.left_open else self.accounted,
            delta=defense.delta,
            unit=defense.unit,
            adjacency=adjacency,
            releases=self.passes,
            relation=Relation.ADD_OR_REMOVE if defense.edges == "private" else Relation.REPLACE,
            labels=True,
        )


@dataclass(frozen=True)
class DpSgd(Defense):
    """Clip every training node's gradient and add noise to their sum, in every local step of every client.

    Attributes:
        epsilon, delta: the guarantee over the whole training.
        clip: L2 norm of the gradient of one loss.
        degree_bound: neighbours that a node keeps, D.
        edges: whether a node's edges are part of what is protected: "private", or "public".
        sampling_rate: probability of a loss to be in a step.
        unit: what one record is: "node".
        seed: of the public priorities by which edges are dropped; ``code_seed`` is taken for it.
    """

    name: ClassVar[str] = "dp-sgd"
    shown: ClassVar[tuple[str, ...]] = ("epsilon", "clip", "degree_bound", "edges")
    also: ClassVar[Mapping[str, str]] = {"code_seed": "seed"}

    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    degree_bound: int = 5
    edges: Edges = "private"
    sampling_rate: float = 1.0
    unit: Literal["node"] = "node"
    seed: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, most=VANISHING_EPSILON)
        check_clip(self.clip)
        if self.degree_bound < 1:
            raise FglauditError(f"degree_bound must be at least 1; got {self.degree_bound}; use e.g. degree_bound: 5")
        if not 0 < self.sampling_rate <= 1:
            raise FglauditError(
                f"sampling_rate is a probability in (0, 1]; got {self.sampling_rate:g}; use 1 for all losses"
            )

    def unsupported(self, context: Context) -> str | None:
        examples = context.examples
        if isinstance(examples, str):
            return examples
        if self.edges == "public":
            return None
        if examples.across:
            return (
                f"losses of {context.protocol} see nodes of other clients with these settings, and degrees and dropped"
                " edges with them: edges cannot be private; use edges: public"
            )
        if context.cross_edges:
            return (
                f"edges enter what {context.protocol} sends, or the inputs that it trains on from farther away than its"
                " losses see features: noise on gradients does not hide them; use edges: public"
            )
        if examples.widest is not None and self.degree_bound > examples.widest:
            return (
                f"{context.protocol} draws from at most {examples.widest} neighbours, and which these are depends on"
                f" the others; use degree_bound: {examples.widest} or less"
            )
        return None

    def weakened(self, factor: float) -> DpSgd:
        """Return it with more epsilon and all losses in every step. Clip and degree bound stay: the noise grows with
        them."""
        rate = self.sampling_rate if factor == 1 else 1.0
        return dataclasses.replace(self, epsilon=vanishing_budget(self.epsilon, factor), sampling_rate=rate)

    def bind(self, context: Context) -> DefenseSession:
        if reason := self.unsupported(context):
            raise FglauditError(f"dp-sgd does not apply: {reason}")
        assert not isinstance(context.examples, str)
        return _Session(self, context, context.examples)
