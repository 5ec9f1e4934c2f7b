"""Random rows in the input layer, and the facts that attacks on global nodes allow for."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from recordings import recorded, seen

from fglaudit.adversary.uploads.held import input_map, model_rounds
from fglaudit.attacks import ATTACKS
from fglaudit.attacks.global_nodes.reports import Reports
from fglaudit.facts import EDGES, ROWS, Absent, Additive, Clipped, DroppedEdges, Fact, Field, Randomised
from fglaudit.payloads import SERVER
from fglaudit.registry import build
from fglaudit.view import Observer

ATTACKED = tuple(name for name in ATTACKS if name.startswith(("global-node", "one-node")))
OF_BITS = (("offset", 0.5), ("factor", 2.0), ("std", 3.0))


@dataclasses.dataclass(frozen=True)
class Own(Fact):
    """A plugin's fact."""


def test_the_layer_reads_expected_reports() -> None:
    view = seen("fedgt", Observer(parties=(SERVER,), auxiliary=0.5))
    models = next(model_rounds(view, 1)).received
    plain, bias = input_map(view, models)
    bits = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=(Randomised(ROWS, "b", OF_BITS),)))
    weight, shift = Reports.of(bits).layer(bits, models)
    rows = recorded("fedgt").graph.x[:4]
    torch.testing.assert_close(rows @ weight + shift, (rows - 0.5) / 2 @ plain + bias)
    torch.testing.assert_close(Reports.of(bits).covariance(weight), 9 * plain.mT @ plain)
    assert Reports.of(view) == Reports()


@pytest.mark.parametrize("name", ATTACKED)
def test_unknown_facts_and_missing_uploads_are_not_modelled(name: str) -> None:
    sent = Field("GlobalNodes", direction="up")
    assert not any(build("attack", name, {}).models(Own(target)) for target in (ROWS, EDGES, sent))
    assert not build("attack", name, {}).models(Absent(sent, share=0.2))
    assert build("attack", name, {}).models(DroppedEdges(EDGES, 2))
    assert build("attack", name, {}).models(Additive(sent, "gaussian", 1.0))


def test_single_nodes_behind_a_clip_are_not_modelled() -> None:
    clip = Clipped(Field("GlobalNodes", direction="up"), "L2", 1.0)
    assert [name for name in ATTACKED if not build("attack", name, {}).models(clip)] == ["one-node-clusters"]
