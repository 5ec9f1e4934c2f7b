"""Labels solved for in rows of label propagation, on graphs and messages that are out of the ordinary: what is found
is what was sent, and the self-test passes wherever the attack runs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.attacks.codes.label_sums import LabelSums
from fglaudit.attacks.codes.spread_labels import Found, solved_labels
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.graph import FeatureKind, FederatedGraph, canonical_edges
from fglaudit.interfaces import Attack, Defense, Inference
from fglaudit.payloads import SERVER, ClassReports, HopSums
from fglaudit.protocols.private.label_propagation import LabelPropagation
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, Run, record
from fglaudit.view import Observer, View

NEAR = Observer(parties=(0,), topology=True)


def labelled(edges: Tensor, nodes: int, classes: int, every: int, clients: int = 3) -> FederatedGraph:
    """Return a graph of ``edges`` in which one node in ``every`` trains and all others are tested."""
    rng = derive(nodes, "label-sums")
    order = torch.randperm(nodes, generator=rng)
    owned = tuple(part.sort().values for part in order.chunk(clients))
    return FederatedGraph(
        x=torch.ones(nodes, 2),
        y=torch.randint(classes, (nodes,), generator=rng),
        edge_index=canonical_edges(edges, nodes),
        clients=owned,
        train=tuple(ids % every == 0 for ids in owned),
        val=tuple(torch.zeros(len(ids), dtype=torch.bool) for ids in owned),
        test=tuple(ids % every != 0 for ids in owned),
        name="odd",
        num_classes=classes,
        features=FeatureKind.BINARY,
    )


def path(nodes: int) -> Tensor:
    return torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])


def stars(nodes: int, hubs: int) -> Tensor:
    return torch.stack([torch.arange(nodes) % hubs, torch.arange(nodes)])


ODD = {
    "a path": labelled(path(80), 80, 3, 7),
    "one hub": labelled(stars(200, 1), 200, 2, 9),
    "hubs": labelled(stars(150, 5), 150, 7, 3),
    "a clique": labelled(torch.cartesian_prod(torch.arange(20), torch.arange(20)).T, 20, 2, 4),
    "mostly isolated": labelled(path(12), 60, 3, 5),
    "one class": labelled(path(40), 40, 1, 4),
    "six nodes": labelled(path(6), 6, 3, 2),
    "everybody trains but one": dataclasses.replace(
        (whole := labelled(path(30), 30, 3, 4)),
        train=tuple(ids != 7 for ids in whole.clients),
        test=tuple(ids == 7 for ids in whole.clients),
    ),
}


def sent_labels(run: Run) -> Tensor:
    (batch,) = run.transcript.seen_by(Observer(wire=True)).of(ClassReports)
    assert isinstance(batch.payload, ClassReports)
    labels = torch.zeros(run.graph.num_nodes, run.graph.num_classes, dtype=torch.double)
    return labels.index_copy_(0, batch.payload.nodes, batch.payload.values.double())


def wrong(found: Found | None, sent: Tensor) -> int:
    assert found is not None
    return int((found.labels[found.known] != sent[found.known]).any(1).sum())


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(("spread", "epsilon"), [(0.9, 0.0), (0.01, 0.0), (0.999, 1.0)])
def test_on_odd_graphs_nothing_is_wrong_and_the_self_test_passes(name: str, spread: float, epsilon: float) -> None:
    run = record(LabelPropagation(rounds=5, spread=spread, label_epsilon=epsilon), ODD[name])
    sent, tried = sent_labels(run), 0
    for parties in ((0,), (0, 1), (SERVER,), (SERVER, 1)):
        for topology in (True, False):
            view = run.view(Observer(parties=parties, topology=topology, auxiliary=0.1 if topology else 0.0))
            attack: Attack = LabelSums()
            if attack.unsupported(view):
                continue
            tried += 1
            assert wrong(solved_labels(view, CPU), sent) == 0
            found = attack.run(view, rng=derive(0, "attack"), device=CPU)
            assert isinstance(found, Inference) and bool(torch.isfinite(found.estimate).all())
            assert planted_flaw(attack, view, derive(0, "planted"), CPU) is None
    assert tried > 0


def test_an_attack_that_reads_no_later_step_fails_its_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    view = record(LabelPropagation(rounds=5), ODD["a path"]).view(NEAR)
    assert planted_flaw(LabelSums(), view, derive(0, "planted"), CPU) is None
    monkeypatch.setattr("fglaudit.attacks.codes.spread_labels._ENTRIES", 0)
    assert "label_accuracy" in (planted_flaw(LabelSums(), view, derive(0, "planted"), CPU) or "")


@pytest.mark.parametrize("defense", [DropSingletons(), MergeNeighbors(2)], ids=lambda d: str(d.name))
def test_where_edges_were_dropped_rows_of_neighbours_alone_are_read(defense: Defense) -> None:
    """A row of which nothing is left may lack a neighbour's label: nobody is cleared, and the row is not adapted."""
    rng = derive(0, "pairs")
    graph = labelled(torch.randint(120, (2, 220), generator=rng), 120, 3, 9)
    run = record(LabelPropagation(rounds=5), graph, defense)
    view = run.view(NEAR)
    assert not all(LabelSums().models(fact) for fact in view.public.facts)
    found = solved_labels(view, CPU)
    assert found is not None and wrong(found, sent_labels(run)) == 0
    seen = own_nodes(view)
    for batch in view.messages.of(HopSums):
        seen[batch.payload.tensors()["nodes"]] = True
    assert torch.equal(found.known, seen)


@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-2, 0.1])
def test_noise_that_nobody_stated_makes_no_label(noise: float) -> None:
    """Rows of step 0 are read as what they are nearest to; rows of later steps where solving survives the noise."""
    rng = derive(1, "pairs")
    graph = labelled(torch.randint(300, (2, 600), generator=rng), 300, 3, 12)
    run = record(LabelPropagation(rounds=5), graph)
    view = noisy(run.view(NEAR), noise)
    assert wrong(solved_labels(view, CPU), sent_labels(run)) == 0
    assert LabelSums().run(view, rng=rng, device=CPU).estimate.isfinite().all()


def noisy(view: View, std: float) -> View:
    """Return ``view`` with noise on all rows that were propagated."""
    rng, batches = derive(0, "noise"), list(view.messages.of(ClassReports))
    for batch in view.messages.of(HopSums):
        assert isinstance(batch.payload, HopSums)
        sums = batch.payload.sums + std * torch.randn(batch.payload.sums.shape, generator=rng)
        batches.append(dataclasses.replace(batch, payload=HopSums(batch.payload.nodes, sums)))
    return dataclasses.replace(view, messages=MemoryMessages(tuple(batches)))
