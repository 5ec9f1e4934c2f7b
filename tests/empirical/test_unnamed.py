"""A protocol whose `releases` leave out a payload is found out: planted gaps in protocols of every kind, and the replay
that looks for them reaches what is sent late."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from recordings import SETUPS
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.context import Release
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.empirical.fields.forced_replay import Reach
from fglaudit.empirical.fields.unnamed import unnamed_fields
from fglaudit.empirical.judge import judge
from fglaudit.federated.home_head import joined
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import FieldState, Verdict, Word
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import ClassReports
from fglaudit.privacy.counted import Counted, Sent
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.registry import build
from fglaudit.testing import CPU, check_protocol, example_graph, record

LATE = PrivateReports(hops=(2,), code_hops=(2,), width=8, encoder_rounds=6, rounds=2)


def unnamed(protocol: FederatedProtocol, graph: FederatedGraph) -> dict[str, str]:
    return unnamed_fields(protocol, graph, record(protocol, graph).channel.counted, seed=0, device=CPU)


@pytest.mark.parametrize(
    ("where", "arguments", "missing", "found"),
    [
        ("private-reports", {"features_at_home": "own-subgraph"}, "ModelUpdate", "clients' ModelUpdate.vector"),
        ("private-reports", {}, "ClassReports", "noise on models: clients' ClassReports.values"),
        ("fedgcn-1", {}, "NeighborSums", "noise on gradients: clients' NeighborSums.sums"),
        ("cnfgnn-adam", {}, "ModelUpdate", "noise on all releases: clients' ModelUpdate.vector"),
        ("gfl-appnp", {}, "Jacobians", "noise on all releases: clients' Jacobians"),
        ("fedgt", {}, "GlobalNodes", "noise on models: clients' GlobalNodes"),
        ("gap", {"unit": "node"}, "ModelUpdate", "noise on all releases: clients' ModelUpdate.vector"),
        ("progap", {}, "EmbeddingSums", "noise on models: clients' EmbeddingSums"),
        ("fedpub", {}, "FunctionalEmbeddings", "noise on all releases: clients' FunctionalEmbeddings"),
        ("fedsage-simulated", {}, "RawFeatures", "noise on models: clients' RawFeatures.x"),
        ("distributed-gcn", {}, "HiddenStates", "noise on all releases: clients' HiddenStates"),
        ("bds-gcn", {}, "HiddenStates", "noise on all releases: clients' HiddenStates"),
    ],
)
def test_a_release_that_is_left_out_is_named(where: str, arguments: dict[str, Any], missing: str, found: str) -> None:
    setup = SETUPS[where]
    protocol, graph = build("protocol", setup.protocol, {**setup.arguments, **arguments}), setup.graph()
    assert not unnamed(protocol, graph)
    stated = protocol.releases(graph)
    left = tuple(release for release in stated if release.payload.__name__ != missing)
    assert len(left) < len(stated)
    with mock.patch.object(type(protocol), "releases", lambda self, graph: left):
        told = unnamed(protocol, graph)
        assert any(found in words for words in told), told
        with pytest.raises(AssertionError, match="must name every payload"):
            check_protocol(protocol, graph)


def test_a_release_that_does_not_cover_the_training_is_found_out() -> None:
    """With rows of two own steps in the models, reports alone cover nothing."""
    protocol, graph = (
        PrivateReports(features_at_home="own-subgraph", rounds=2),
        example_graph(),
    )  # 32 steps before a round
    (reports, _) = protocol.releases(graph)
    said = Release(ClassReports, 1, None, reports.unit, True, "wrongly", fields=("values",), one_message=True)
    with mock.patch.object(type(protocol), "releases", lambda self, graph: (said,)):
        assert any("noise on ClassReports: clients' ModelUpdate" in words for words in unnamed(protocol, graph))


class Leaky(PrivateReports):
    """Passes on what was predicted, in place of what was reported."""

    def report(self, predicted: Tensor, classes: int, exchange: Any, edges: Any, channel: Any) -> Tensor:
        super().report(predicted, classes, exchange, edges, channel)
        true = one_hot(predicted, classes).float()
        passed = exchange.pass_on(true, channel, self.encoder_rounds, ClassReports)
        return joined(exchange.steps(true, passed, self.hops, channel, self.encoder_rounds))


def judged(protocol: PrivateReports) -> tuple[Verdict, dict[tuple[str, str, str], FieldState]]:
    graph, defense = example_graph(nodes=90), KAryResponse(epsilon=2.0)
    run = record(protocol, graph, defense)
    counted, strange = run.channel.counted, run.truth.unstated
    verdict, fields = judge(protocol, graph, defense, run.session, counted, strange, seed=0, device=CPU)
    return verdict, {(state.observer, state.payload, state.field): state for state in fields}


def test_replays_reach_reports_that_come_after_the_encoder() -> None:
    verdict, fields = judged(LATE)
    assert verdict.word is Word.VERIFIED, verdict.reason
    assert fields["server", "ClassReports", "values"].state == "covered"
    assert {state.state for key, state in fields.items() if key[1] != "report"} == {"covered", "not seen to move"}


def test_what_leaks_after_the_encoder_is_seen() -> None:
    leaky = Leaky(**vars(LATE))
    verdict, fields = judged(leaky)
    assert verdict.word is not Word.VERIFIED
    assert fields["clients", "ClassReports", "values"].state == "nothing"
    assert any("noise on ClassReports: the server's ClassReports" in words for words in unnamed(leaky, example_graph()))


def test_a_replay_goes_on_for_one_round_after_the_last_kind() -> None:
    assert Reach.of(Counted()).rounds == 3
    sent = (Sent("ModelUpdate", True, 1), Sent("ClassReports", False, 20))
    assert Reach.of(Counted(sent)) == Reach(frozenset({("ModelUpdate", True), ("ClassReports", False)}), 22)
