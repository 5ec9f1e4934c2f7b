"""The models that an observer saw the server send."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.view import View


def server_models(view: View) -> Iterator[tuple[int, Tensor]]:
    """Yield the round and the model [D] of every batch in which the server sends one; of several, the first."""
    for batch, payload in view.sent(ModelUpdate):
        sent = (batch.senders == SERVER).nonzero().squeeze(1)
        if len(sent):
            yield batch.round, payload.vector[sent[0]]
