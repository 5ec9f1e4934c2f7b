"""Other private data behind the same messages (rule 1): what is replaced after recording must change no attack."""

from __future__ import annotations

import dataclasses

from fglaudit.graph import FederatedGraph
from fglaudit.testing import Run
from fglaudit.wire.side_knowledge import SideKnowledge, labelled_parties


def with_data(run: Run, graph: FederatedGraph) -> Run:
    """Return ``run`` with the messages as recorded, and ``graph`` in place of what parties hold and the scorer
    knows."""
    side = run.recording.side
    labelled = labelled_parties(run.protocol, graph)
    swapped = SideKnowledge.of(graph, side.own, side.auxiliary, labelled, side.inputs, run.recording.seed)
    return dataclasses.replace(
        run,
        recording=dataclasses.replace(run.recording, side=swapped),
        truth=dataclasses.replace(run.truth, graph=graph),
    )
