"""Attacks on FedGAT's messages as the protocol itself sends them, through the channel and a recorded transcript."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
import torch
from scored_runs import game_of
from swapped_data import with_data

from fglaudit.attacks import ATTACKS
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.interfaces import Attack, Defense, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgat.fedgat import FedGAT, Remote, Variant
from fglaudit.quantities.rows.game import score
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, check_attack, record
from fglaudit.view import Observer

NAMES = ("joint-diagonalisation", "second-moments", "vector-columns", "raw-features")
CLIENT = Observer((0,))
READ_BY: tuple[tuple[Variant, str], ...] = (("matrix", "joint-diagonalisation"), ("vector", "vector-columns"))


def attack(name: str) -> Attack:
    module, cls = ATTACKS[name].split(":")
    plugin: Attack = getattr(importlib.import_module(module), cls)()
    return plugin


def trained(variant: Variant, remote: Remote = "embeddings", defense: Defense | None = None) -> Run:
    return record(FedGAT(variant=variant, remote=remote, rounds=1, local_steps=1), defense=defense)


def rates(run: Run, name: str, observer: Observer) -> tuple[float, float] | None:
    """Share of exact rows at the right node, and under the best assignment; None where the attack does not apply."""
    view = run.view(observer)
    if attack(name).unsupported(view) is not None:
        return None
    result = attack(name).run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    found = score([game_of(run, observer)], [result])
    assert found.false_proofs == 0
    return float(found.rows.exact_rate.mean()), found.matched_rate


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
def test_a_client_recovers_every_row_it_is_sent(variant: Variant, remote: Remote) -> None:
    run = trained(variant, remote)
    reached = [rates(run, name, CLIENT) for name in NAMES]
    applies = [rate for rate in reached if rate is not None]
    assert len(applies) == 2
    assert all(matched == 1.0 for _, matched in applies)


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_the_server_and_the_wire_read_uploads(variant: Variant) -> None:
    run = trained(variant)
    assert rates(run, "raw-features", Observer((SERVER,))) == (1.0, 1.0)
    assert rates(run, "raw-features", Observer(wire=True)) == (1.0, 1.0)
    assert all(rates(run, name, Observer((SERVER,))) is None for name in NAMES[:3])


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_attacks_keep_their_promises(variant: Variant) -> None:
    run = trained(variant)
    for observer in (
        CLIENT,
        Observer((0, 2), auxiliary=0.2),
        Observer((SERVER,)),
        Observer((SERVER, 1)),
        Observer(wire=True),
    ):
        for name in NAMES:
            check_attack(attack(name), run.view(observer))


@pytest.mark.parametrize("variant", ["matrix", "vector"])
def test_other_parties_private_data_is_out_of_reach_once_recorded(variant: Variant) -> None:
    run = trained(variant)
    mine = torch.zeros(run.graph.num_nodes, dtype=torch.bool)
    mine[run.graph.clients[0]] = True
    other = with_data(run, dataclasses.replace(run.graph, x=torch.where(mine[:, None], run.graph.x, 0.0)))
    assert not bool(other.view(Observer((1,))).own[0].x.any())
    for name in NAMES[:3]:
        if attack(name).unsupported(run.view(CLIENT)) is not None:
            continue
        first, second = (attack(name).run(r.view(CLIENT), rng=derive(0, "attack"), device=CPU) for r in (run, other))
        assert isinstance(first, Reconstruction) and isinstance(second, Reconstruction)
        assert torch.equal(first.rows, second.rows) and torch.equal(first.nodes, second.nodes)


def test_noise_on_uploads_stops_the_attack_and_weak_noise_does_not() -> None:
    for variant, name in READ_BY:
        weak = rates(trained(variant, defense=Gaussian(epsilon=1e4, on="RawFeatures")), name, CLIENT)
        strong = rates(trained(variant, defense=Gaussian(epsilon=1.0, on="RawFeatures")), name, CLIENT)
        assert weak is not None and strong is not None
        assert weak[1] == 1.0
        assert strong[1] <= 0.1


def test_dropping_single_neighbours_hides_those_alone() -> None:
    for variant, name in READ_BY:
        kept = rates(trained(variant, defense=DropSingletons()), name, CLIENT)
        assert kept is not None
        assert 0.8 <= kept[1] < 1.0
