"""The device of pretence refuses what a GPU refuses, and counts what crosses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from places import found_gpu
from pretend_device import PRETEND, RefusedError, Traffic, pretending
from torch import Tensor

from fglaudit.nn.sparse import SparseMatrix
from fglaudit.rng import derive, moved

REFUSED: dict[str, Callable[[Tensor], object]] = {
    "two devices": lambda x: x + torch.ones(4),
    "one tensor of a list elsewhere": lambda x: torch.cat([x, torch.ones(4)]),
    "a value to be put in": lambda x: x.index_put((torch.tensor([0, 1]),), torch.ones(2)),
    "a CPU tensor indexed by the device": lambda x: torch.zeros(4)[x.long()],
    "a generator of the CPU": lambda x: torch.rand(4, device=x.device, generator=torch.Generator()),
    "filled in place": lambda x: x.normal_(generator=torch.Generator()),
    "a generator of the device for the CPU": lambda x: torch.rand(4, generator=torch.Generator(x.device)),
    "numpy": lambda x: x.numpy(),
    "sorted by indices of the CPU": lambda x: x.gather(0, torch.tensor([0])),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    with pretending(), pytest.raises(RefusedError):
        REFUSED[what](torch.arange(4.0, device=PRETEND))


@pytest.mark.gpu
@pytest.mark.parametrize("what", REFUSED)
def test_a_gpu_refuses_the_same(what: str) -> None:
    device = found_gpu()
    with pytest.raises((RuntimeError, TypeError)):
        REFUSED[what](torch.arange(4.0, device=device))


def test_allowed() -> None:
    """Numbers of the CPU, and indices of the CPU into a tensor of the device."""
    with pretending():
        x = torch.arange(4.0, device=PRETEND)
        assert (x + torch.tensor(1.0))[torch.tensor([3])].cpu().tolist() == [4.0]
        x[torch.tensor([0])] = 7.0
        assert x.device == PRETEND and x.cpu().tolist() == [7.0, 1.0, 2.0, 3.0]


def test_what_crosses_is_counted() -> None:
    with pretending() as traffic:
        x = torch.arange(4.0).to(PRETEND)
        assert (traffic.up, traffic.down, traffic.scalars, traffic.waits) == (1, 0, 0, 0)
        x.cpu()
        assert (traffic.up, traffic.down) == (1, 1)
        x.sum().item(), bool(x[0] > 0), x.tolist()
        assert traffic.scalars == 3
        x.nonzero(), x[x > 1], torch.unique(x)
        assert traffic.waits == 3 and traffic.total() == 8
        (x * 2 + 1).sum()
        assert traffic.total() == 8
    assert traffic == Traffic(1, 1, 3, 3)


def test_computing_there_gives_the_numbers_of_the_cpu() -> None:
    """Autograd, vmap, sparse products, generators and optimizers."""

    def trained(device: torch.device) -> Tensor:
        rng = moved(derive(0, "numbers"), device)
        x = torch.rand(6, 3, generator=rng, device=device)
        matrix = SparseMatrix.from_entries(
            torch.tensor([0, 1, 1, 5], device=device),
            torch.tensor([5, 0, 2, 3], device=device),
            torch.ones(4, device=device),
            (6, 6),
        )
        weight = torch.rand(3, 2, generator=rng, device=device).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (matrix @ (x @ weight)).square().sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        fixed = weight.detach()
        each = torch.func.vmap(torch.func.grad(lambda row: (row.unsqueeze(0) @ fixed).square().sum()))(x)
        return torch.cat([weight.detach().flatten(), each.flatten()]).cpu()

    expected = trained(torch.device("cpu"))
    with pretending():
        assert torch.equal(trained(PRETEND), expected)
