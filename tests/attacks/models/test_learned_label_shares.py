"""Label shares decoded from uploads by shadow clients: what is read, what is refused, and what noise leaves."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from drawn_masks import drawn_training
from scored_runs import inferred, truth_about

from fglaudit.adversary.uploads.held import sent_models
from fglaudit.adversary.uploads.means import ModelRound
from fglaudit.attacking import unsuitable
from fglaudit.attacks.models.learned_label_shares import LearnedLabelShares
from fglaudit.attacks.models.property_decoder import SKETCHES, deviations
from fglaudit.attacks.models.shadow_clients import ShadowClients, Uploads, guessed_traits, shadow_clients
from fglaudit.attacks.models.update_statistics import UpdateReader, of_layer
from fglaudit.defenses.training.dp_sgd import DpSgd
from fglaudit.errors import FglauditError
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FederatedGraph
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Observer

KNOWING = Observer(parties=(SERVER,), topology=True, auxiliary=0.4)
PLAIN = FedGCN(hops=2, rounds=5, local_steps=1, learning_rate=0.2, weight_decay=0.0, dropout=0.0)
FEW = LearnedLabelShares(federations=40)


def skewed() -> FederatedGraph:
    """Return a graph whose clients have few nodes of other classes than their own one."""
    graph = drawn_training(nodes=180, features=60, share=0.5)
    draw = derive(0, "skew")
    stray = torch.rand(180, generator=draw) < 0.2
    owner = torch.where(stray, torch.randint(3, (180,), generator=draw), graph.y % 3)
    clients = tuple((owner == k).nonzero().squeeze(1) for k in range(3))
    train = tuple(torch.rand(len(nodes), generator=draw) < 0.5 for nodes in clients)
    none = tuple(torch.zeros_like(mask) for mask in train)
    return dataclasses.replace(graph, clients=clients, train=train, val=none, test=tuple(~mask for mask in train))


def overlaps(run: Run) -> tuple[float, float]:
    """Return the overlap of the attack, and of the guess."""
    kind, view = inferred("training-labels"), run.view(KNOWING)
    asked = kind.ask(truth_about(run, KNOWING))
    assert not isinstance(asked, str)
    found = FEW.run(view, rng=derive(0, "attack"), device=CPU)
    guess = kind.guess(view, asked.subjects, derive(0, "guess"))
    return tuple(float(kind.score(asked, r, guess).values.mean().item()) for r in (found, guess))  # type: ignore[return-value]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_shares_are_decoded_whatever_steps_clients_take(optimizer: Optimizer) -> None:
    protocol = dataclasses.replace(PLAIN, optimizer=optimizer, learning_rate=0.2 if optimizer == "sgd" else 0.01)
    value, control = overlaps(record(protocol, skewed()))
    assert value > 0.85 > 0.7 > control


def test_differentially_private_steps_hide_shares_and_at_no_strength_show_them() -> None:
    private = DpSgd(epsilon=4.0, edges="public", degree_bound=2)
    hidden, control = overlaps(record(PLAIN, skewed(), private))
    shown, _ = overlaps(record(PLAIN, skewed(), private.weakened(1e-6)))
    assert hidden < control + 0.1 < control + 0.2 < shown


def test_shadow_clients_step_from_the_models_that_were_attacked() -> None:
    """A federation drawn like the attacked one moves about as far: were its changes taken from models of its own, later
    rounds would be far off."""
    run = record(PLAIN, skewed())
    found = shadow_clients(run.view(KNOWING), 20, 5, derive(0, "shadows"), CPU)
    mine, theirs = (part.sketches.norm(dim=1).mean() for part in (found.shadow, found.attacked))
    assert 0.6 < float((mine / theirs).item()) < 1.6
    assert bool((found.shares.sum(1) - 1).abs().max() < 1e-9)


def test_sketches_keep_products_and_small_layers() -> None:
    run = record(PLAIN, skewed())
    view = run.view(KNOWING)
    reader = UpdateReader.of(view, derive(0, "sketch"))
    (_, models), *_ = sent_models(view, 1)
    sketch = reader.sketch(models)
    torch.testing.assert_close(sketch @ sketch.T, models.change @ models.change.T)  # both layers are short here
    turned = ModelRound(-models.received, -models.change)
    torch.testing.assert_close(reader.statistics(turned), reader.statistics(models), rtol=1e-4, atol=1e-4)


def test_a_decoder_of_noise_says_nothing() -> None:
    """Sketches that have nothing to do with the shares are answered with no deviation, others with the right one."""
    draw = derive(0, "decoder")
    shares, noise = torch.rand(200, 3, generator=draw), torch.randn(210, 12, generator=draw)
    federation, clients = torch.arange(20).repeat_interleave(10), torch.arange(10)
    asked = torch.rand(10, 3, generator=draw)
    mixed = torch.cat([shares, asked]) @ torch.randn(3, 12, generator=draw)
    for values, least, most in ((noise, 0.0, 0.05), (mixed, 0.15, 1.0)):
        statistics = torch.zeros(210, 2)
        parts = [Uploads(clients, values[a:b], statistics[a:b]) for a, b in ((200, 210), (0, 200))]
        found = ShadowClients(parts[0], parts[1], federation, shares, torch.ones(200))
        answer = deviations(found, shares, (SKETCHES,))
        assert least <= float(answer.square().mean().sqrt().item()) <= most
    torch.testing.assert_close(answer, (asked - asked.mean(0)).double(), rtol=0.05, atol=0.02)


def test_traits_are_guessed_from_summaries() -> None:
    draw = derive(0, "traits")
    traits = torch.rand(40, 2, generator=draw, dtype=torch.double)
    summaries = torch.cat([traits[:, :1] * 3, torch.randn(40, 2, generator=draw, dtype=torch.double)], 1)
    mean, error = guessed_traits(summaries, traits, torch.tensor([2.4, 0.0, 0.0], dtype=torch.double))
    assert abs(float(mean[0].item()) - 0.8) < 0.05
    assert float(error[0].item()) < 0.1 < 0.2 < float(error[1].item())


def test_what_it_takes() -> None:
    run = record(dataclasses.replace(PLAIN, rounds=1), skewed())
    blind = Observer(parties=(SERVER,), auxiliary=0.4)
    assert "topology: true" in (unsuitable(FEW, run.view(blind)) or "")
    bare = Observer(parties=(SERVER,), topology=True)
    assert "auxiliary" in (unsuitable(FEW, run.view(bare)) or "")
    watching = Observer(parties=(0,), topology=True, auxiliary=0.4)
    assert "upload" in (unsuitable(FEW, run.view(watching)) or "")
    with pytest.raises(FglauditError, match="use 1 to 10"):
        LearnedLabelShares(rounds=11)
    with pytest.raises(FglauditError, match="at least 10 shadow federations; got 5"):
        LearnedLabelShares(federations=5)


def test_statistics_of_a_layer_that_did_not_change_are_finite() -> None:
    for shape in ((2, 5, 3), (2, 4)):
        assert bool(of_layer(torch.zeros(shape)).isfinite().all())
