"""Every built-in defense, asked as those of others are: none says anything of what it remembers."""

from __future__ import annotations

from typing import Any

import pytest
from watched_defenses import CASES, graph_for

from fglaudit import registry
from fglaudit.interfaces import FederatedProtocol
from fglaudit.rng import derive
from fglaudit.testing import CPU
from fglaudit.wire.channel import RecordingChannel

NEEDS_MORE = ("threshold-encryption",)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "arguments", "protocol"), [case for case in CASES if case[0] not in NEEDS_MORE])
def test_honest_defenses_are_believed_whoever_wrote_them(
    name: str, arguments: dict[str, Any], protocol: FederatedProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_for(protocol)
    session = registry.build("defense", name, arguments).bind(protocol.context(graph))
    channel = RecordingChannel(session, graph.num_clients, derive(0, "defense"))
    monkeypatch.setattr("fglaudit.wire.observing.call_replay.is_foreign", lambda session: True)
    monkeypatch.setattr("fglaudit.wire.observing.repeated_draws.SEEDS", 0)  # many draws of few messages take long
    protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
    assert channel.unstated == ()
