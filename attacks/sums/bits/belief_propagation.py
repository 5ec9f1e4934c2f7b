"""Loopy belief propagation over bits and sums: posteriors of all bits from the equations, the noise and the prior.

A constraint says ``sum of coefficients x bits = target + noise``. Its message to one of its bits needs the distribution
of the sum of the others. Where the noise hides every single term that sum is as good as Gaussian (``hidden_terms``);
constraints of at most ``_ENUMERATED`` bits sum over all patterns; longer ones run over their terms with the partial sum
as the state (``partial_sums_grid``). Messages are log odds. Exact on trees; the graphs of boundary nodes and their
remote neighbours are nearly trees.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.attacks.sums.bits.binary_system import BinarySystem
from fglaudit.attacks.sums.bits.hidden_terms import HiddenTerms, hidden
from fglaudit.attacks.sums.bits.partial_sums_grid import MAX_GRID, GridMessages, log_likelihood

_ENUMERATED = 7
_CLAMP = 35.0
_SETTLED = 1e-3
_CELLS_AT_ONCE = 1 << 23
_CELLS_IN_ALL = 1 << 31
"""Work limit of one problem; larger problems get fewer rounds, at least two."""


def bit_log_odds(
    system: BinarySystem, log_odds: Tensor, *, std: Tensor, rounds: int = 12, damping: float = 0.3, share: float = 1.0
) -> Tensor:
    """Return the posterior log odds of a one for every variable [V].

    Args:
        log_odds: prior [V].
        std: standard deviation of each constraint's error [C]; where a constraint is not ``exact`` only a sum above the
            target counts against a pattern.
        rounds: most rounds of message passing.
        damping: share of the old message kept in every round.
        share: of the whole problem, where this is a part of one: that much of the work limit is its own.
    """
    order = system.constraint.argsort(stable=True)
    variable = system.variable[order]
    senders, work = _senders(system, order, std)
    prior = log_odds.clamp(-_CLAMP, _CLAMP)
    back = torch.zeros(len(variable), dtype=torch.double, device=prior.device)
    total = prior
    for _ in range(max(2, min(rounds, int(share * _CELLS_IN_ALL) // max(work, 1)))):
        forth = total[variable].sub_(back).clamp_(-_CLAMP, _CLAMP)
        if len(senders) == 1 and senders[0][0].shape == forth.shape:  # one sender of all messages, in their order
            new = senders[0][1](forth)
        else:
            new = torch.empty_like(back)
            for place, messages in senders:
                new[place] = messages(forth[place])
        new = torch.lerp(new.clamp_(-_CLAMP, _CLAMP), back, damping)
        settled = bool((new - back).abs().amax() < _SETTLED) if len(new) else True
        back = new
        total = prior.index_add(0, variable, back)
        if settled:
            break
    return total


_Sender = tuple[Tensor, Callable[[Tensor], Tensor]]
"""Where the terms of some constraints stand, and what makes their messages from those of the bits, in that shape."""


def _senders(system: BinarySystem, order: Tensor, std: Tensor) -> tuple[list[_Sender], int]:
    """Return what sends the messages of all constraints, terms being in ``order`` [T], and the cells of one round."""
    constraint, weight = system.constraint[order], system.coefficient[order]
    count = len(system.targets)
    sizes = torch.bincount(constraint, minlength=count)
    largest = torch.zeros_like(system.targets).scatter_reduce_(0, constraint, weight, "amax")
    gaussian = hidden(largest, std, system.exact)
    senders: list[_Sender] = []
    place = gaussian[constraint].nonzero().squeeze(1)
    work = len(place)
    if work:
        number = gaussian.cumsum(0) - 1
        terms = HiddenTerms(number[constraint[place]], weight[place], system.targets[gaussian], std[gaussian].square())
        senders.append((place, terms.messages))
    starts = sizes.cumsum(0) - sizes
    sizes = torch.where(gaussian, 0, sizes)
    for n in torch.unique(sizes[sizes > 0]).tolist():
        chosen = (sizes == n).nonzero().squeeze(1)
        cells = 2**n * n if n <= _ENUMERATED else 4 * n * MAX_GRID
        work += cells * len(chosen)
        for part in torch.split(chosen, max(1, _CELLS_AT_ONCE // cells)):
            place = starts[part][:, None] + torch.arange(n, device=part.device)
            facts = {"weight": weight[place], "target": system.targets[part], "std": std[part]}
            facts["exact"] = system.exact[part]
            kind = _Enumerated if n <= _ENUMERATED else GridMessages
            senders.append((place, kind(**facts).messages))
    return senders, work


class _Enumerated:
    """Constraints of one size n that sum over all patterns of their bits [2^n, n]; what no message changes is kept."""

    def __init__(self, weight: Tensor, target: Tensor, std: Tensor, exact: Tensor) -> None:
        n = weight.shape[1]
        bits = torch.arange(n, device=weight.device)
        self._patterns = ((torch.arange(2**n, device=weight.device)[:, None] >> bits) & 1).double()
        self._likelihood = log_likelihood(weight @ self._patterns.T - target[:, None], std, exact)

    def messages(self, forth: Tensor) -> Tensor:
        """Return messages [B, n] from the log odds that the bits send [B, n]."""
        if forth.shape[1] == 1:
            return self._likelihood[:, 1:] - self._likelihood[:, :1]
        chance = torch.softmax(torch.addmm(self._likelihood, forth, self._patterns.T), dim=1)
        ones, zeros = chance @ self._patterns, chance @ (1 - self._patterns)
        return (ones.clamp(min=1e-300) / zeros.clamp(min=1e-300)).log() - forth
