"""Denoised global nodes, on made-up values and on small runs."""

from __future__ import annotations

import torch

from fglaudit.attacks.global_nodes.global_node_denoising import GlobalNodeDenoising
from fglaudit.attacks.global_nodes.global_node_labels import GlobalNodeLabels
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.facts import Additive, Field
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer

CPU = torch.device("cpu")


def test_denoising_follows_slow_levels_and_beats_the_plain_mean() -> None:
    rng = derive(0, "levels")
    truth = 0.002 * (torch.rand(40, 1, 2, 50, generator=rng) * 2 - 1).sign()
    truth[20:, :, :, :10] = -truth[:20, :, :, :10].flip(0)  # a fifth of the coordinates moves half way
    truth[:] = torch.where(torch.arange(40).view(-1, 1, 1, 1) < 20, truth[:1], truth[-1:])
    uniform = torch.rand(truth.shape, generator=rng) - 0.5
    noisy = truth - 0.001 * uniform.sign() * (1 - 2 * uniform.abs()).clamp(min=1e-9).log()
    found = GlobalNodeDenoising().denoise(noisy, Additive(Field("GlobalNodes"), "laplace", 0.001), 0.002)
    error, mean_error = ((e - truth[-1]).norm() / truth[-1].norm() for e in (found, noisy.mean(0)))
    assert error < 0.1 < mean_error


def test_denoising_undoes_a_changed_order() -> None:
    rng = derive(0, "order")
    truth = 0.002 * torch.randn(1, 3, 200, generator=rng).sign()
    uploads = truth.expand(12, -1, -1, -1) + 0.0005 * torch.randn(12, 1, 3, 200, generator=rng)
    uploads = torch.cat([uploads[:6], uploads[6:, :, [2, 0, 1]]])
    found = GlobalNodeDenoising().denoise(uploads, Additive(Field("GlobalNodes"), "gaussian", 0.0005), 0.002)
    assert (found - truth).norm() < 0.1 * truth.norm()


def test_a_clip_leaves_label_distributions_no_worse_than_a_guess() -> None:
    """Clients of 20 nodes, whose clusters are of unlike sizes: what is left unexplained is error too."""
    protocol = FedGT(
        layers=1, hidden=32, heads=2, feed_forward=32, neighbors=4, global_nodes=3, encoding=2, candidates=8, rounds=6
    )
    graph = example_graph(nodes=240, features=120, clients=12)
    run = record(protocol, graph, ClippedLaplace(clip=0.002, scale=1e-4, on=("GlobalNodes",)))
    view = run.view(Observer(parties=(SERVER,), auxiliary=0.1))
    found = GlobalNodeLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    known, classes = view.known_rows().y, torch.arange(graph.num_classes)
    truth = torch.stack([(graph.y[nodes, None] == classes).double().mean(0) for nodes in graph.clients])
    guess = (known[:, None] == classes).double().mean(0)
    far, guessed = ((each - truth).abs().sum(1).mean() / 2 for each in (found.estimate, guess))
    assert far < guessed + 0.02
