"""Does what a node reports depend on the other nodes of its client? A response protects a node only where it does not.

Real messages are answered again and again in which classes are others: two in equal shares, or one with a single node
that differs. Lies must be as stated in each, not only where nodes of all classes are many: who draws a lie among the
classes that it sees, by how frequent they are, or spares a class's only node, tells of other nodes. And how many nodes
lie must vary: where it is nearly always one number, who knows all true classes but one learns whether that one lies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binom
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.empirical.audits.noise_tests import Found

WORLD = 64
"""Bindings that answer in each of the worlds."""
EQUAL_DRAWS = 8
"""Generators under which a message is answered with some other classes, and nothing else."""

Worlds = list[tuple[str, Tensor]]


def worlds(true: Tensor, message: Tensor, classes: int, rng: torch.Generator) -> Worlds:
    """Return classes [n] of real nodes, their ``true`` ones and others, in words.

    Args:
        message: in which each node [n] reports.
    """
    first = torch.stack([(message == each).nonzero()[0, 0] for each in torch.unique(message)])
    alone = torch.zeros(len(true), dtype=torch.bool)
    alone[first] = True
    found: Worlds = [("", true)]
    for _ in range(2):
        one, other = torch.randperm(classes, generator=rng)[:2].tolist()
        half = torch.rand(len(true), generator=rng) < 0.5
        found.append((f" where all are of class {one} or {other}", torch.where(half, one, other)))
        found.append((f" where each is alone with class {other} among class {one}", torch.where(alone, other, one)))
    return found


def stated_law(keep: float, classes: int) -> Tensor:
    """Return with what chances [classes, classes] a node of every class reports every class, ``keep`` the true one."""
    lie = torch.tensor((1 - keep) / (classes - 1), dtype=torch.float64)
    return torch.where(torch.eye(classes, dtype=torch.bool), keep, lie)


def law(answers: Tensor, true: Tensor, stated: Tensor, where: str) -> list[Found]:
    """Test how often nodes of every class report every class.

    Args:
        answers: [G, n].
        true: classes [n].
        stated: chances [classes, classes].
    """
    classes = len(stated)
    counts = torch.bincount((true * classes + answers).flatten(), minlength=classes**2).view(classes, -1)
    runs = counts.sum(1, keepdim=True)
    p = two_sided(counts.numpy(), runs.expand_as(counts).numpy(), stated.numpy())
    return [
        Found(
            float(p[one, other]),
            f"of {int(runs[one])} nodes of class {one}{where} {int(counts[one, other])} report {other}",
        )
        for one in range(classes)
        for other in range(classes)
        if int(runs[one])
    ]


def shares(answers: Tensor, true: Tensor, message: Tensor, keep: float) -> list[Found]:
    """Test how many nodes lie in all, in every message, and of every class in it: on average, and that it varies."""
    _, by_message = torch.unique(message, return_inverse=True)
    _, by_class = torch.unique(torch.stack([message, true]), dim=1, return_inverse=True)
    found: list[Found] = []
    everybody = torch.zeros_like(by_message)
    for group, words in ((everybody, "a release"), (by_message, "a message"), (by_class, "a class of a message")):
        member = one_hot(group).double()
        lies, sizes = ((answers != true).double() @ member).long().numpy(), member.sum(0).long().numpy()
        total = two_sided(lies.sum(0), len(answers) * sizes, 1 - keep)
        found.append(Found(_least(total), f"nodes of {words} lie too often or too rarely"))
        often = np.array([np.bincount(column).argmax() for column in lies.T])
        hits = (lies == often).sum(0)
        same = np.asarray(binom.sf(hits - 1, len(answers), binom.pmf(often, sizes, 1 - keep))) * (sizes + 1)
        found.append(Found(_least(same), f"of {words} nearly always the same number of nodes lie"))
    return found


def _least(p: npt.NDArray[np.float64]) -> float:
    return min(1.0, len(p) * float(p.min()))


def some_moved(true: Tensor, classes: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return other classes [n] for about half of the nodes, and which nodes [n] keep theirs."""
    kept = torch.rand(len(true), generator=rng) < 0.5
    shift = torch.randint(1, max(2, classes), true.shape, generator=rng)
    return torch.where(kept, true, (true + shift) % classes), kept


def two_sided(
    counts: npt.NDArray[np.int64], runs: int | npt.NDArray[np.int64], chance: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return p-values [...] of binomial counts [...] in ``runs`` draws each."""
    tails = np.minimum(binom.cdf(counts, runs, chance), binom.sf(counts - 1, runs, chance))
    return np.asarray(np.minimum(1.0, 2 * tails))
