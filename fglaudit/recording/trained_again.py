"""Was what audits replayed what was trained? A protocol of another author may count its trainings, or know the run's
own channel by its type, and behave in all others. So it is trained once more, from the same seed, over another channel:
rule 8 wants the same weights and the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import Defense, FederatedProtocol, Trained
from fglaudit.tracebacks import kept
from fglaudit.wire.channel import RecordingChannel

_RELATIVE, _ABSOLUTE = 1e-3, 1e-5
"""By how much weights may differ: schemes that seal add random numbers of their own, far below a record's."""


class _Another(RecordingChannel):
    """Keeps nothing."""

    many_draws = False


def trained_again(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    trained: Trained,
    wire: RecordingChannel,
    rng: Callable[[str], torch.Generator],
    device: torch.device,
) -> Audit | None:
    """Return how a second training differs from the one over ``wire``; None if it does not.

    Args:
        rng: the generator of a purpose, as of the first training.
    """
    try:
        other = _Another(defense.bind(context), graph.num_clients, rng("defense"))
        other.states(context)
        again = protocol.train(graph, other, rng=rng("train"), device=device)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        why = f"could not be trained again: {kept(error, 'a second training')}"
        return Audit(AuditName.PROTOCOL, Outcome.UNTESTED, f"protocol {type(protocol).name} {why}")
    same_bytes = torch.equal(wire.bytes_up, other.bytes_up) and torch.equal(wire.bytes_down, other.bytes_down)
    if same_bytes and _alike(trained.weights, again.weights):
        return None
    what = "weights" if same_bytes else "bytes that are sent"
    why = f"a second training from the same seed has other {what}: what audits replay need not be what was trained"
    return Audit(AuditName.PROTOCOL, Outcome.UNTESTED, f"protocol {type(protocol).name}: {why}")


def _alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        value.shape == other[name].shape and torch.allclose(value, other[name], _RELATIVE, _ABSOLUTE, equal_nan=True)
        for name, value in one.items()
    )
