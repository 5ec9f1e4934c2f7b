"""One round of GFL-APPNP's exchange of hidden representations and Jacobians (Wu et al. 2022, Algorithm 1, section 5.2).

All clients send ``h_j`` and ``dh_j / dW``; the server returns to client k the sums over the others, weighted by A.
Where nobody records or changes Jacobians only their sizes are announced, and the sums are used in factored form (see
``jacobians``).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fglaudit.federated.node_clients import NodeClients
from fglaudit.federated.perceptron_steps import Compensation
from fglaudit.federated.sending import from_server, to_server
from fglaudit.interfaces import Channel
from fglaudit.nn.weights import Layout, unflatten
from fglaudit.payloads import (
    HiddenRepresentations,
    Jacobians,
    PropagatedJacobians,
    PropagatedRepresentations,
)
from fglaudit.protocols.gfl_appnp.jacobians import FactorPropagation, FullJacobians, Hidden

BUCKET_BYTES = 2**28
"""Jacobians of about this size are formed and sent at once."""


class Sharing:
    """The exchange of hidden representations and Jacobians under a new global model."""

    def __init__(
        self,
        channel: Channel,
        weights: Tensor,
        data: NodeClients,
        trainers: Tensor,
        layout: Layout,
        noise_scale: float | None,
        noise: torch.Generator,
    ) -> None:
        """Set up the exchange.

        Args:
            weights: A without its diagonal [N, N].
            data: all clients' samples [N, S, ...].
            trainers: the clients that use what they receive [T].
            noise_scale: standard deviation of the noise on uploaded Jacobians (V1); 0 for none; None where no Jacobians
                are sent (V2).
            noise: draws it.
        """
        self.channel, self.weights, self.data, self.trainers = channel, weights, data, trainers
        self.layout, self.noise_scale, self.noise = layout, noise_scale, noise
        self.nodes = torch.arange(len(weights))
        self.factors = FactorPropagation(weights[trainers], data.x)
        used = weights[trainers].double()
        values, vectors = torch.linalg.eigh(used @ used.T)
        self.mixing = (vectors * values.clamp(min=0).sqrt()).float()  # noise in the sums: covariance A A'

    def exchange(self, round: int, received: Tensor, *, last: bool) -> tuple[Hidden, Tensor, Compensation | None]:
        """Send everything of one round.

        Args:
            received: the global model as each client got it [N, D].
            last: whether this follows the last local steps; Jacobians are then not needed.

        Returns:
            The clients' own hidden values, ``C_k`` as received [N, C], and the trainers' dC_k; None where none are
            sent.
        """
        first, second = unflatten(one_model(received), self.layout).values()
        hidden = Hidden.of(self.data.x, first, second)
        sent = to_server(self.channel, round, self.nodes, HiddenRepresentations(hidden.mean))
        sums = PropagatedRepresentations(self.weights @ sent.values)
        arrived = from_server(self.channel, round, self.nodes, sums)
        if self.noise_scale is None or last:
            return hidden, arrived.values, None
        wanted = self.channel.wants(Jacobians, round) or self.channel.wants(PropagatedJacobians, round)
        if wanted or len(second) > 1:
            return hidden, arrived.values, self.full(round, hidden, self.noise_scale)
        return hidden, arrived.values, self.announced(round, hidden, self.noise_scale)

    def full(self, round: int, hidden: Hidden, noise_scale: float) -> FullJacobians:
        """Form and send every Jacobian and every sum of them; return the trainers' sums as received."""
        total: Tensor | None = None
        for nodes in self.buckets():
            values = hidden.jacobians(self.data.x, int(nodes[0]), int(nodes[-1]) + 1)
            if noise_scale > 0:
                drawn = torch.randn(values.shape, generator=self.noise).to(values)
                values = values + noise_scale * drawn
            arrived = to_server(self.channel, round, nodes, Jacobians(values))
            part = self.weights[:, nodes] @ arrived.values.flatten(1)
            total = part if total is None else total.add_(part)
        assert total is not None
        kept = torch.zeros(len(self.nodes), dtype=torch.bool)
        kept[self.trainers.cpu()] = True
        used = []
        for nodes in self.buckets():
            sums = PropagatedJacobians(total[nodes].view(len(nodes), hidden.output.shape[2], -1))
            returned = from_server(self.channel, round, nodes, sums)
            used.append(returned.values[kept[nodes]])
        return FullJacobians.of(torch.cat(used), self.data.x.shape[2], self.hidden_units())

    def announced(self, round: int, hidden: Hidden, noise_scale: float) -> Compensation:
        """Count the messages of :meth:`full` on the wire without forming them; return the trainers' factored sums."""
        shape = (len(self.nodes), hidden.output.shape[2], self.parameters())
        absent = torch.empty(shape, dtype=hidden.output.dtype, device="meta")
        to_server(self.channel, round, self.nodes, Jacobians(absent))
        from_server(self.channel, round, self.nodes, PropagatedJacobians(absent))
        sums = self.factors(hidden)
        if noise_scale == 0:
            return sums
        values = sums.full()
        drawn = torch.randn(values.shape, generator=self.noise).to(values)
        mixed = (self.mixing @ drawn.flatten(1)).view_as(values)
        return FullJacobians.of(values + noise_scale * mixed, self.data.x.shape[2], self.hidden_units())

    def parameters(self) -> int:
        """Number of the encoder's weights D."""
        return sum(a * b for a, b in self.layout.values())

    def hidden_units(self) -> int:
        """Number of the encoder's hidden units H."""
        return next(iter(self.layout.values()))[1]

    def buckets(self) -> Iterator[Tensor]:
        """Yield node ids in groups whose Jacobians have about ``BUCKET_BYTES`` together."""
        size = self.parameters() * list(self.layout.values())[-1][1] * 4
        yield from torch.split(self.nodes, max(1, BUCKET_BYTES // size))


def one_model(received: Tensor) -> Tensor:
    """Return the one model that all clients received as [1, D], or all [N, D] where they differ."""
    same = received.stride(0) == 0 or torch.equal(received, received[:1].expand_as(received))
    return received[:1] if same else received
