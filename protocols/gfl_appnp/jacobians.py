"""Hidden representations of all nodes and their Jacobians: factored, in full, and propagated.

Encoder ``h(x) = relu(x W1) W2``; node j's representation is the mean over its S samples. With
``G_j = mean_s x_js 1[x_js W1 > 0]`` [F, H] and ``a_j = mean_s relu(x_js W1)`` [H] its Jacobian is

* ``dh_j[c] / dW1[f, h] = W2[h, c] G_j[f, h]``,
* ``dh_j[c] / dW2[h, c'] = [c = c'] a_j[h]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.sparse import SparseMatrix

SPARSE_BELOW = 0.1
"""Share of non-zero features under which propagated factors are sums over the non-zero ones."""


@dataclass(frozen=True)
class Hidden:
    """The encoder's values on all samples.

    Attributes:
        active: ``relu(x W1)`` [N, S, H].
        output: [N, S, C].
        second: W2 [1 or N, H, C].
    """

    active: Tensor
    output: Tensor
    second: Tensor

    @staticmethod
    def of(x: Tensor, first: Tensor, second: Tensor) -> Hidden:
        """Encode ``x`` [N, S, F] with one model for all nodes ([1, F, H], [1, H, C]) or one for each."""
        active = apply(x, first).relu()
        return Hidden(active, apply(active, second), second)

    @property
    def mean(self) -> Tensor:
        """``h_j`` [N, C]."""
        return self.output.mean(1)

    def jacobians(self, x: Tensor, low: int, high: int) -> Tensor:
        """Return the full Jacobians of nodes ``low`` ... ``high - 1`` [n, C, D], parameters in the order W1, W2."""
        active, second = self.active[low:high], self.second if len(self.second) == 1 else self.second[low:high]
        samples, classes = x.shape[1], self.output.shape[2]
        factor = x[low:high].transpose(1, 2) @ (active > 0).to(x) / samples
        first = factor.unsqueeze(1) * second.transpose(1, 2).unsqueeze(2)
        same = torch.eye(classes, dtype=x.dtype, device=x.device)
        last = same.view(1, classes, 1, classes) * active.mean(1).view(-1, 1, active.shape[2], 1)
        return torch.cat([first.flatten(2), last.flatten(2)], 2)


def apply(x: Tensor, weights: Tensor) -> Tensor:
    """Return ``x`` [N, S, a] times ``weights`` [1 or N, a, b]."""
    return x @ weights[0] if len(weights) == 1 else x @ weights


@dataclass(frozen=True)
class FullJacobians:
    """Propagated Jacobians as received; implements :class:`fglaudit.federated.perceptron_steps.Compensation`.

    Attributes:
        over_first: ``dC_k / dW1`` [T, C, F, H].
        over_second: ``dC_k / dW2`` [T, C, H, C].
    """

    over_first: Tensor
    over_second: Tensor

    @staticmethod
    def of(values: Tensor, features: int, hidden: int) -> FullJacobians:
        """Read values [T, C, D]."""
        clients, classes, _ = values.shape
        first, second = torch.split(values, [features * hidden, hidden * classes], 2)
        return FullJacobians(
            first.reshape(clients, classes, features, hidden), second.reshape(clients, classes, hidden, classes)
        )

    def against(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) @ self.over_first).transpose(1, 2)

    def first(self, residuals: Tensor) -> Tensor:
        return torch.einsum("tc,tcfh->tfh", residuals, self.over_first)

    def second(self, residuals: Tensor) -> Tensor:
        return torch.einsum("tc,tchd->thd", residuals, self.over_second)


@dataclass(frozen=True)
class FactoredJacobians:
    """Propagated Jacobians in factored form: the same as :class:`FullJacobians`, without noise, for one common model.

    Attributes:
        factor: ``sum_{j != k} A_kj G_j`` [T, F, H].
        active: ``sum_{j != k} A_kj a_j`` [T, H].
        weights: W2 [H, C].
    """

    factor: Tensor
    active: Tensor
    weights: Tensor

    def against(self, x: Tensor) -> Tensor:
        return (x @ self.factor).unsqueeze(2) * self.weights.T

    def first(self, residuals: Tensor) -> Tensor:
        return self.factor * (residuals @ self.weights.T).unsqueeze(1)

    def second(self, residuals: Tensor) -> Tensor:
        return self.active.unsqueeze(2) * residuals.unsqueeze(1)

    def full(self) -> Tensor:
        """Return the full propagated Jacobians [T, C, D]."""
        clients, _, hidden = self.factor.shape
        classes = self.weights.shape[1]
        first = self.factor.unsqueeze(1) * self.weights.T.view(1, classes, 1, hidden)
        same = torch.eye(classes, dtype=self.factor.dtype, device=self.factor.device)
        second = same.view(1, classes, 1, classes) * self.active.view(clients, 1, hidden, 1)
        return torch.cat([first.flatten(2), second.flatten(2)], 2)


class FactorPropagation:
    """Sums factors over all nodes for T receivers; parts that do not change between rounds are prepared once.

    Args:
        weights: A without its diagonal, rows of the receivers [T, N].
        x: [N, S, F].
    """

    def __init__(self, weights: Tensor, x: Tensor) -> None:
        self._weights, self._x = weights, x
        self._sums: SparseMatrix | None = None
        if x.shape[1] == 1 and int(torch.count_nonzero(x).item()) < SPARSE_BELOW * x.numel():
            node, _, feature = x.nonzero(as_tuple=True)
            receivers = len(weights)
            row = torch.arange(receivers, device=x.device).unsqueeze(1) * x.shape[2] + feature
            value = weights[:, node] * x[node, 0, feature]
            shape = (receivers * x.shape[2], len(x))
            self._sums = SparseMatrix.from_entries(row.flatten(), node.repeat(receivers), value.flatten(), shape)

    def __call__(self, hidden: Hidden) -> FactoredJacobians:
        """Return the propagated factors under one common model."""
        mask = (hidden.active > 0).to(self._x)
        receivers, features = len(self._weights), self._x.shape[2]
        if self._sums is not None:
            factor = (self._sums @ mask.squeeze(1)).view(receivers, features, -1)
        elif self._x.shape[1] == 1:
            weighted = self._weights.unsqueeze(1) * self._x.squeeze(1).T  # [T, F, N]
            factor = weighted @ mask.squeeze(1)
        else:
            own = self._x.transpose(1, 2) @ mask / self._x.shape[1]
            factor = (self._weights @ own.flatten(1)).view(receivers, features, -1)
        return FactoredJacobians(factor, self._weights @ hidden.active.mean(1), hidden.second[0])
