"""Rows hidden before a server computed messages from them, and the choice among what was found."""

from __future__ import annotations

import pytest
import torch
from recordings import obfuscated
from torch import Tensor

from fglaudit.attacks.learned.delegation import Candidate, best
from fglaudit.attacks.learned.hidden_rows import HiddenRows, in_levels
from fglaudit.attacks.learned.maps.row_map import Learned
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Auxiliary, Observer, View

CPU = torch.device("cpu")
SEES = Observer(parties=(0,), auxiliary=0.3, degrees=True)


def attention(variant: str, kind: str) -> tuple[View, Tensor]:
    """Return what client 0 of FedGAT sees of obfuscated rows, and the graph's rows [N, F]."""
    graph = example_graph()
    protocol = build("protocol", "fedgat", {"variant": variant, "heads": 2, "hidden": 3, "rounds": 2})
    return record(protocol, graph, obfuscated(kind)).view(SEES), graph.x


@pytest.mark.parametrize(("variant", "kind"), [("matrix", "rotation"), ("vector", "signs"), ("vector", "dense-affine")])
def test_neighbours_rows_come_through_what_clients_do_to_uploads(variant: str, kind: str) -> None:
    """Undefended every row of a neighbour is found exactly; with these maps too."""
    view, x = attention(variant, kind)
    found = build("attack", "learned-inversion", {}).run(view, rng=derive(0, "run"), device=CPU)
    right = torch.isclose(found.rows, x[found.nodes].float(), atol=1e-4).all(1)
    assert len(found.nodes) >= 5 and right.float().mean() >= 0.95
    assert not found.proven.any()


def test_scales_that_hidden_rows_lost_are_told_by_zero_entries() -> None:
    """y = 2x + 3, scaled to norm one: of x = (1, 0, 0, 0), y = (5, 3, 3, 3) / sqrt(52)."""
    inverse = Learned("by hand", 0.0, lambda y: (y - 3) / 2)
    hidden = HiddenRows(Learned("by hand", 0.0, lambda x: 2 * x + 3), inverse)
    view, _ = attention("matrix", "signs")
    sent = torch.tensor([[5.0, 3.0, 3.0, 3.0]]) / 52**0.5
    one = torch.ones(1)
    shown = hidden.shown(Reconstruction(sent, torch.tensor([7]), one, one > 1), view)
    assert torch.equal(shown.rows, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    level = in_levels(torch.tensor([[0.9, 0.1, 0.0, 1.1]]), FeatureKind.SCALED_BINARY)
    assert torch.equal(level, torch.tensor([[0.5, 0.0, 0.0, 0.5]]))


def made(nodes: Tensor, rows: Tensor, confidence: float, again: Reconstruction | None = None) -> Candidate:
    sure = torch.full((len(nodes),), confidence)
    return Candidate(Reconstruction(rows, nodes, sure, sure > 1), lambda _: again)


def test_the_choice_asks_only_about_rows_that_a_result_holds() -> None:
    """Four of eight rows held back are in the good result, all of them in a poor one that is more confident."""
    view, x = attention("matrix", "signs")
    held = Auxiliary(torch.arange(40, 48), x[40:48], torch.zeros(8, dtype=torch.long))
    few, every = torch.arange(44, 50), torch.arange(40, 50)
    good = made(few, x[few], 0.3)
    poor = made(every, torch.ones(10, x.shape[1]), 1.0)
    chosen = best([poor, good], view, view, held, derive(0, "choice"))
    assert chosen is not None and torch.equal(chosen.nodes, few) and torch.equal(chosen.rows, x[few])
    assert best([poor], view, view, held, derive(0, "choice")) is None


def test_what_was_chosen_is_found_again_with_all_known_rows() -> None:
    view, x = attention("matrix", "signs")
    held = Auxiliary(torch.arange(40, 46), x[40:46], torch.zeros(6, dtype=torch.long))
    nodes = torch.arange(40, 50)
    better = Reconstruction(x[:3], torch.arange(3), torch.ones(3), torch.ones(3, dtype=torch.bool))
    chosen = best([made(nodes, x[nodes], 0.3, better)], view, view, held, derive(0, "choice"))
    assert (
        chosen is not None
        and torch.equal(chosen.nodes, better.nodes)
        and chosen.proven is not None
        and not chosen.proven.any()
    )
