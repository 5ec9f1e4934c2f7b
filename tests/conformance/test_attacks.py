"""Every attack, on a recording of every protocol that it fits, under every rule; one that reaches no `run` fails."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recordings import OBSERVERS, SETUPS, attack, reached, readable, recorded, seen
from swapped_data import with_data
from torch import Tensor

from fglaudit.attacking import unsuitable
from fglaudit.attacks import ATTACKS
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference, Reconstruction
from fglaudit.recording import Recording
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, check_attack
from fglaudit.view import Observer, View
from fglaudit.wire.side_knowledge import draw_auxiliary

MOST = 3
"""Recordings per attack and rule: of a family that all protocols send, three stand for the others."""


def cases(name: str) -> tuple[tuple[str, Observer], ...]:
    """Return where an attack is held to the rules; nowhere is a failure."""
    found = reached(name)
    assert found, f"{name} reaches run on no recording; add one that it fits to recordings.py"
    return found[:MOST]


def tensors(result: Reconstruction | Inference) -> list[Tensor]:
    """Return all that an attack found."""
    held = [getattr(result, f.name) for f in dataclasses.fields(result)]
    return [value for value in held if isinstance(value, Tensor)]


def attacked(name: str, view: View) -> list[Tensor]:
    """Run an attack."""
    return tensors(attack(name).run(view, rng=derive(0, "attack"), device=CPU))


def with_other_private_data(graph: FederatedGraph, view: View) -> FederatedGraph:
    """Return ``graph`` with other features and labels of all nodes that the observer does not know."""
    known = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for nodes in (view.auxiliary.nodes, view.labels.nodes, *(client.nodes for client in view.own)):
        known[nodes] = True
    keep = known.reshape(-1, *[1] * (graph.x.dim() - 1)).expand(graph.x.shape).clone()
    if view.partial is not None:
        known[view.partial.nodes] = True  # their labels; of their rows not the sensitive columns
        keep[view.partial.nodes] = True
        keep[view.partial.nodes[:, None], view.partial.columns] = False
    y = torch.where(known if graph.y.dim() == 1 else known[:, None], graph.y, graph.y.flip(0))
    return dataclasses.replace(graph, x=torch.where(keep, graph.x, 1 - graph.x.flip(0)), y=y)


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_keep_their_promises(name: str) -> None:
    """Deterministic, well-formed, and neither the view nor the global generator is changed."""
    for where, observer in cases(name):
        check_attack(attack(name), seen(where, observer))


@pytest.mark.parametrize("name", ATTACKS)
def test_rule_1_attacks_see_messages_not_the_truth(name: str) -> None:
    for where, observer in cases(name):
        run, view = recorded(where), seen(where, observer)
        other = with_data(run, with_other_private_data(run.graph, view)).view(observer)
        first, again = attacked(name, view), attacked(name, other)
        assert len(first) == len(again)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_rule_6_attacks_find_a_planted_leak(name: str) -> None:
    flaws = {
        where: planted_flaw(attack(name), seen(where, observer), derive(0, "self-test", name), CPU)
        for where, observer in cases(name)
    }
    assert None in flaws.values(), flaws


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return digests of what every attack finds in a process that was given saved recordings and nothing else."""
    folder = tmp_path_factory.mktemp("recordings")
    wanted = [(name, *cases(name)[0]) for name in ATTACKS]
    for where in {where for _, where, _ in wanted}:
        recording = recorded(where).recording
        shares = {o.auxiliary: draw_auxiliary(recorded(where).graph, o.auxiliary, 0) for o in OBSERVERS}
        dataclasses.replace(recording, side=dataclasses.replace(recording.side, auxiliary=shares)).save(folder / where)
    lines = [f"{name} {where} {OBSERVERS.index(observer)}" for name, where, observer in wanted]
    command = [sys.executable, __file__, str(folder)]
    imports = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, env=imports)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", ATTACKS)
def test_rule_1_attacks_give_the_same_in_a_fresh_process(name: str, fresh: dict[str, str]) -> None:
    where, observer = cases(name)[0]
    assert fresh[name] == digest(attacked(name, seen(where, observer)))


@pytest.mark.parametrize("where", SETUPS)
def test_no_attack_fails_at_any_observer(where: str) -> None:
    """A view is refused with a reason, or attacked."""
    tried = 0
    for name in ATTACKS:
        for place, observer in readable(attack(name)):
            if place != where:
                continue
            view = seen(where, observer)
            why = unsuitable(attack(name), view)
            assert why is None or why.strip()
            if why is None:
                attacked(name, view)
                tried += 1
    assert tried or not recorded(where).transcript.entries or "local" in where


def digest(found: list[Tensor]) -> str:
    """Return a digest of tensors."""
    return hashlib.blake2b(b"".join(t.contiguous().numpy().tobytes() for t in found)).hexdigest()


def _attack_saved(folder: Path) -> None:
    """Body of the fresh process: attack what standard input names, print digests."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        name, where, index = line.split()
        view = Recording.load(folder / where).view(OBSERVERS[int(index)])
        print(name, digest(attacked(name, view)))


if __name__ == "__main__":
    _attack_saved(Path(sys.argv[1]))
