"""Which messages attacks compete on, and what tells that one of them found rows."""

import pytest
import torch
from recordings import obfuscated

from fglaudit.attacks.learned import delegation
from fglaudit.attacks.learned.delegation import Candidate, best, without_largest
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import MaskedMatrices
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Auxiliary, Observer, View

CPU = torch.device("cpu")
GRAPH = example_graph()


def seen() -> View:
    """Return what client 0 of FedGAT sees of rows whose columns have other signs."""
    protocol = build("protocol", "fedgat", {"variant": "matrix", "heads": 2, "hidden": 3, "rounds": 1})
    return record(protocol, GRAPH, obfuscated("signs")).view(Observer(parties=(0,), auxiliary=0.3, degrees=True))


def sizes(view: View) -> list[int]:
    return [batch.payload.bytes_per_entry() for batch in view.messages.of(MaskedMatrices)]


def test_attacks_compete_without_the_largest_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    view = seen()
    assert without_largest(view, [MaskedMatrices]) is view
    numbers = sum(batch.payload.numbers() for batch in view.messages.of(MaskedMatrices))
    monkeypatch.setattr(delegation, "_MOST_COMPARED", numbers // 2)
    few = without_largest(view, [MaskedMatrices])
    assert 0 < len(sizes(few)) < len(sizes(view)) and max(sizes(few)) < max(sizes(view))
    assert sum(batch.payload.numbers() for batch in few.messages.of(MaskedMatrices)) <= numbers // 2
    monkeypatch.setattr(delegation, "_MOST_COMPARED", 1)
    assert set(sizes(without_largest(view, [MaskedMatrices]))) == {min(sizes(view))}


def test_the_best_attack_then_reads_all_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    view = seen()
    attack = build("attack", "learned-inversion", {})
    whole = attack.run(view, rng=derive(0, "run"), device=CPU)
    numbers = sum(batch.payload.numbers() for batch in view.messages.of(MaskedMatrices))
    monkeypatch.setattr(delegation, "_MOST_COMPARED", numbers // 2)
    found = attack.run(view, rng=derive(0, "run"), device=CPU)
    right = torch.isclose(found.rows, GRAPH.x[found.nodes].float(), atol=1e-4).all(1)
    assert set(found.nodes.tolist()) == set(whole.nodes.tolist())
    assert len(found.nodes) >= 5 and right.float().mean() >= 0.95


def test_rows_rebuilt_whole_tell_more_than_rows_of_wrong_nodes() -> None:
    """Half of the rows are right, the others are the complement of the truth, which is worse than any guess."""
    view, nodes = seen(), torch.arange(40, 56)
    held = Auxiliary(nodes, GRAPH.x[nodes], torch.zeros(16, dtype=torch.long))
    rows = torch.where((nodes % 2 == 0)[:, None], GRAPH.x[nodes], 1 - GRAPH.x[nodes])
    sure = torch.full((16,), 0.3)
    half = Candidate(Reconstruction(rows, nodes, sure, sure > 1), lambda _: None)
    chosen = best([half], view, view, held, derive(0, "choice"))
    assert chosen is not None and torch.equal(chosen.nodes, nodes) and torch.equal(chosen.rows, rows)
    wrong = Candidate(Reconstruction(1 - GRAPH.x[nodes], nodes, sure * 0.1, sure > 1), lambda _: None)
    assert best([wrong], view, view, held, derive(0, "choice")) is None
