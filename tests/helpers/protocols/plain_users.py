"""nFedGNN's and CNFGNN's users as N separate ones with whole weight matrices, autograd and torch's own optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive, split
from fglaudit.testing import Run


def server_logits(latents: Tensor, weights: Mapping[str, Tensor], edges: Tensor) -> Tensor:
    """Return the server's layers written densely: ``[N, N]`` adjacency or attention, neighbours by a mask."""
    nodes = len(latents)
    closed = torch.eye(nodes, dtype=torch.float64)
    closed[edges[0], edges[1]] = 1
    if len(weights) == 1:
        scale = closed.sum(1).rsqrt()
        adjacency = scale[:, None] * closed * scale
        return adjacency @ torch.relu(adjacency @ latents) @ weights["layers.1.weight"]
    hidden = latents
    for layer in (0, 1):
        own, neighbor = weights[f"layers.{layer}.attention_own"], weights[f"layers.{layer}.attention_neighbor"]
        if layer == 1:
            hidden = functional.elu(hidden) @ weights["layers.1.weight"]
        heads = []
        for z, a_1, a_2 in zip(hidden.chunk(len(own), 1), own, neighbor, strict=True):
            scores = functional.leaky_relu((z @ a_1)[:, None] + (z @ a_2)[None, :], 0.2)
            heads.append(scores.masked_fill(closed == 0, -torch.inf).softmax(1) @ z)
        hidden = torch.cat(heads, 1)
    return hidden


def laplacian(latents: Tensor, edges: Tensor) -> Tensor:
    """Equation (6), term by term."""
    total = sum(((latents[i] - latents[j]) ** 2).sum() for i, j in edges.T.tolist())
    return torch.as_tensor(total) / (edges.shape[1] + len(latents))


def optimizer(name: str, weights: Sequence[Tensor], rate: float, decay: float) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if name == "adam" else torch.optim.SGD
    return kind(weights, lr=rate, weight_decay=decay)


class PlainUsers:
    """N users, each with a whole matrix [F, D] and an optimizer of its own, and a server; everything by autograd."""

    def __init__(self, run: Run) -> None:
        self.protocol, self.graph = run.protocol, run.graph
        assert isinstance(self.protocol, NFedGNN | CNFGNN)
        layout = self.protocol.model().layout(self.graph.num_features, self.graph.num_classes)
        drawn = self.protocol.model().initial(layout, split(derive(0, "train"), "weights"))
        (_, first), *rest = drawn.items()
        self.first = first.double()
        self.users = [self.first.clone().requires_grad_() for _ in range(self.graph.num_nodes)]
        self.server = {name: weight.double().requires_grad_() for name, weight in rest}
        rate = self.protocol.server_learning_rate
        self.server_optimizer = optimizer(
            self.protocol.server_optimizer, list(self.server.values()), rate, self.protocol.weight_decay
        )
        self.optimizers = [self.user_optimizer(w) for w in self.users]
        self.losses: list[float] = []

    def user_optimizer(self, weight: Tensor) -> torch.optim.Optimizer:
        assert isinstance(self.protocol, NFedGNN | CNFGNN)
        return optimizer(self.protocol.optimizer, [weight], self.protocol.learning_rate, self.protocol.weight_decay)

    def latents(self) -> Tensor:
        return torch.stack([x @ w for x, w in zip(self.graph.x, self.users, strict=True)])

    def step(self, latents: Tensor, chosen: Sequence[int]) -> Tensor:
        """Learn from ``latents`` and let the ``chosen`` users step; return all gradients [N, D]."""
        assert isinstance(self.protocol, NFedGNN | CNFGNN)
        received = latents.detach().requires_grad_()
        train = torch.cat(self.graph.train)
        outputs = server_logits(received, self.server, self.graph.edge_index)
        loss = functional.cross_entropy(outputs[train], self.graph.y[train], reduction=self.protocol.loss)
        if isinstance(self.protocol, NFedGNN):
            loss = loss + self.protocol.smoothness * laplacian(received, self.graph.edge_index)
        self.losses.append(float(loss.item()))
        for each in (self.server_optimizer, *self.optimizers):
            each.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.server_optimizer.step()
        assert received.grad is not None
        for k in chosen:
            (self.graph.x[k] @ self.users[k] @ received.grad[k]).backward()  # type: ignore[no-untyped-call]
            self.optimizers[k].step()
        return received.grad
