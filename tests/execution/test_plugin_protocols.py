"""What a run says of a protocol of another author rests on the rules that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from untrue_protocols import Pooled, Told

import fglaudit
from fglaudit.cli import main
from fglaudit.conformance import of_runs
from fglaudit.conformance.of_runs import checked, protocol_audit
from fglaudit.execution.exit_code import ExitCode
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Outcome, Word
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import Recording
from fglaudit.scaffold import scaffold
from fglaudit.testing import example_graph, record

GRAPH = example_graph()


def recorded(protocol: FederatedProtocol) -> Recording:
    """Return a recording whose guarantee was verified."""
    recording = record(protocol, GRAPH).recording
    return replace(recording, verdict=replace(recording.verdict, word=Word.VERIFIED, reason="audited"))


def test_of_protocols_of_this_package_nothing_is_asked() -> None:
    recording = recorded(FedGCN(rounds=2, hops=1))
    assert checked(recording, FedGCN(rounds=2, hops=1), GRAPH) is recording


def test_where_no_rule_is_seen_broken_nothing_changes_but_an_audit() -> None:
    recording = recorded(Told(rounds=2, hops=1))
    found = checked(recording, Told(rounds=2, hops=1), GRAPH)
    (audit,) = found.verdict.audits
    assert (audit.name, audit.outcome) == ("protocol", Outcome.PASSED)
    assert replace(found, verdict=recording.verdict) == recording and found.verdict.word is Word.VERIFIED


def test_where_a_rule_is_broken_nothing_is_verified() -> None:
    found = checked(recorded(Told(rounds=2, hops=1, gain=0.5)), Told(rounds=2, hops=1, gain=0.5), GRAPH)
    assert found.verdict.word is Word.CLAIMED and "the gain is" in found.verdict.reason
    assert found.fields[-1].state == "unexamined" and "breaks a rule" in found.fields[-1].reason


@dataclass(frozen=True)
class LargePooled(Pooled):
    """Pools rows where there are more than those of the small graph."""

    name: ClassVar[str] = "large-pooled"

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        kept = replace(self, pooled=graph.num_nodes > 60)
        return Pooled.train(kept, graph, channel, rng=rng, device=device)


def test_what_is_done_on_the_graph_of_the_run_alone_is_seen_there() -> None:
    large = example_graph(nodes=90)
    assert protocol_audit(LargePooled(), GRAPH).outcome is Outcome.PASSED
    audit = protocol_audit(LargePooled(), large)
    assert audit.outcome is Outcome.UNTESTED and "breaks a rule on this graph" in audit.detail
    assert protocol_audit(LargePooled(pooled=False), GRAPH).outcome is Outcome.PASSED


def test_where_messages_are_too_large_to_be_asked_again_nothing_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_runs, "MOST_BYTES", 10)
    found = checked(recorded(Told(rounds=2, hops=1)), Told(rounds=2, hops=1), example_graph(nodes=90))
    assert found.verdict.word is Word.CLAIMED and "is not checked on this graph" in found.verdict.reason
    assert found.fields[-1].state == "unexamined"


class Raising(Told):
    """Raises where it is asked whom its messages reach."""

    def exposed(self, *_: object) -> None:  # type: ignore[override]
        raise RuntimeError("not on this graph")


def test_what_cannot_be_checked_is_no_pass() -> None:
    audit = protocol_audit(Raising(rounds=2, hops=1), GRAPH)
    assert audit.outcome is Outcome.UNTESTED and "could not be checked: RuntimeError" in audit.detail


@pytest.mark.parametrize(("pooled", "code"), [(False, 0), (True, ExitCode.GATE)])
def test_a_gate_lets_data_that_stay_where_they_are_pass_and_no_others(
    pooled: bool, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = fglaudit.audit("csbm-dnc", protocol=Pooled(pooled=pooled), clients=3, observers=["server"], split="random")
    report.save(tmp_path / "run")
    policy = tmp_path / "policy.yaml"
    policy.write_text("accuracy: {min: 0.0}\n")
    with pytest.raises(SystemExit) as ended:
        main(["gate", str(tmp_path / "run"), str(policy)])
    said = "".join(capsys.readouterr())
    assert ended.value.code == code, said
    assert ("and no message is sent at all" in said) == pooled
    assert ("UNCHECKED: protocol pooled breaks a rule" in (tmp_path / "run/report.md").read_text("utf-8")) == pooled


def test_a_check_asks_the_rules_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("fglaudit.conformance.protocols.check_plugin", asked.append)
    path = scaffold("protocol", "asked-once", tmp_path)[0]
    with pytest.raises(SystemExit):
        main(["check", f"{path}:AskedOnce", "--quick"])
    assert len(asked) == 1
