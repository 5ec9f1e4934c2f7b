"""Do clients upload weights or the changes of them, as ``structure`` states? Attacks that read one as the other find
nothing, and pass their self-tests.

Weights follow those that a client was sent; changes do not, or go against them as training brings them back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.conformance.runs import record
from fglaudit.conformance.side_channels import KeptMessages
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import derive
from fglaudit.structure import Models

_STEP = 0.1
"""Standard deviation of what is added to the weights that clients are sent first."""
_FOLLOWS = 0.25
"""From which share on of it that comes back uploads are weights: all of it where nothing is trained."""


def misread_uploads(protocol: FederatedProtocol, graph: FederatedGraph, first: KeptMessages) -> str:
    """Return in words what clients upload other than stated; empty if nothing was seen to be.

    Args:
        first: the messages of a training of ``protocol`` on ``graph`` without a defense.
    """
    stated = protocol.structure(graph).get(Models)
    if stated is None or ModelUpdate not in type(protocol).emits:
        return ""
    as_is, moved = _FirstModels(0.0), _FirstModels(_STEP)
    for batch in first.batches:
        as_is.pass_on(batch, batch.payload)
    try:
        record(protocol, graph, NoDefense(), tamper=moved.pass_on)
    except FglauditError:  # it refuses models that differ by receiver: some may be sent none
        return ""
    shares = [
        float((moved.sent[k] - as_is.sent[k]) @ step / (step @ step))
        for k, step in moved.added.items()
        if k in moved.sent and k in as_is.sent and moved.sent[k].shape == as_is.sent[k].shape == step.shape
    ]
    if not shares:
        return ""
    share = sum(shares) / len(shares)
    if (share > _FOLLOWS) == (stated.upload == "weights"):
        return ""
    found = "weights" if share > _FOLLOWS else "changes"
    return (
        f"`structure` states that clients upload {stated.upload}; they look like {found}: of what is added to the"
        f" weights that they are sent {share:.0%} come back"
    )


class _FirstModels:
    """Adds a random step [D], the same for all, to the first model that each client is sent, and keeps what it uploads
    next."""

    def __init__(self, size: float) -> None:
        self.added: dict[int, Tensor] = {}
        self.sent: dict[int, Tensor] = {}
        self._size = size

    def pass_on(self, batch: MessageBatch, payload: Payload) -> Payload:
        if not isinstance(payload, ModelUpdate) or payload.vector.is_meta:
            return payload
        vector = payload.vector.clone()
        for row, (sender, receiver) in enumerate(zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)):
            if sender == SERVER and receiver not in self.added:
                step = torch.randn(vector.shape[1], generator=derive(0, "uploaded models")).to(vector) * self._size
                self.added[receiver] = step
                vector[row] += step
            elif sender in self.added:
                self.sent.setdefault(sender, batch.payload.tensors()["vector"][row].detach().clone())
        return ModelUpdate(vector)
