"""What an observer of FedGT's uploads holds, round by round: every client's global nodes and model, received and sent.

In round t client k continues from the global nodes and the model that the server returned in round t - 1, which an
observer of the uploads has sent or seen itself, and uploads the global nodes and the model's change. The order of a
client's global nodes stays: the server aligns the others' with it, and returns averages in its order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.clipping import added_std, clip_on
from fglaudit.adversary.public_rules import flooding_on, noise_std, rounding_of_sums
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.means import EVERYBODY, ModelRound, one_is_left, others_means
from fglaudit.adversary.uploads.personal_averages import last_uploads
from fglaudit.errors import FglauditError
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, GlobalNodes, MessageBatch, ModelUpdate, Payload
from fglaudit.structure import Models, Training
from fglaudit.view import View

_WEIGHT_ERROR = 8.0
"""By how much more uploads that are left of averages are off than rounding: the weights are known to so much."""


@dataclass(frozen=True)
class Codebooks:
    """Global nodes of the K clients that do not belong to the observer, in T rounds.

    Attributes:
        clients: [K].
        received: global nodes that the clients started from [T, K, g, d].
        uploaded: what they sent [T, K, g, d].
    """

    clients: Tensor
    received: Tensor
    uploaded: Tensor


def check_rounds(rounds: int, kept: int) -> None:
    """Raise :class:`fglaudit.errors.FglauditError` unless an attack that reads ``rounds`` finds them among the first
    ``kept``, which a recorder keeps for it."""
    if not 1 <= rounds <= kept:
        raise FglauditError(
            f"rounds counts the uploads that are read, of the {kept} that are kept; got {rounds}; use 1 to {kept}"
        )


def missing_uploads(view: View, *payloads: type[Payload]) -> str | None:
    """Return which of ``payloads`` the observer did not see anybody else upload, or None."""
    for payload in payloads:
        if not others_upload(view, payload):
            return f"the observer sees no {payload.__name__} that others upload, only the server's averages, if any"
    return view.public.structure.missing(Models) if ModelUpdate in payloads else None


@once_per_view
def others_upload(view: View, payload: type[Payload]) -> bool:
    """Whether the observer has a message with ``payload`` that a client other than its own sends: it sees one, or one
    is left of a mean."""
    if _sees_others(view, payload) or (payload is ModelUpdate and one_is_left(view)):
        return True
    first = [one for one in last_uploads(view)[:1] if one.sound]
    return bool(first) and (payload is ModelUpdate or (payload is GlobalNodes and first[0].uploaded is not None))


@once_per_view
def _sees_others(view: View, payload: type[Payload]) -> bool:
    return any(len(_from_others(view, batch)) for batch in view.messages.of(payload))


def follow_from_averages(view: View) -> bool:
    """Whether others' uploads are not seen, but follow from what the observer's clients upload and are sent."""
    return not _sees_others(view, ModelUpdate) and (one_is_left(view) or bool(last_uploads(view)))


def unknown_adam(view: View) -> str | None:
    """Return why clients' updates are not steps of Adam of a known size, or None."""
    stated = view.public.structure.get(Training)
    if stated is None:
        return Training.missing()
    if stated.optimizer != "adam":
        return f"updates are read as steps of Adam; these clients step with {stated.optimizer}"
    return stated.unusual_adam()


def _from_others(view: View, batch: MessageBatch) -> Tensor:
    """Return the indices of the messages that others than the observer upload."""
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    return ((batch.senders != SERVER) & ~torch.isin(batch.senders, mine)).nonzero().squeeze(1)


def _values(batch: MessageBatch) -> Tensor:
    return next(iter(batch.payload.tensors().values()))


def _rounds(view: View, payload: type[Payload], most: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield clients [K], what they received and what they uploaded, [K, ...] each, of at most ``most`` rounds.

    Models are uploaded as changes.
    """
    if not _sees_others(view, payload):
        for one in last_uploads(view)[:most] if payload in (ModelUpdate, GlobalNodes) else ():
            received, uploaded = (one.model, one.change) if payload is ModelUpdate else (one.received, one.uploaded)
            if received is not None and uploaded is not None:
                yield torch.tensor([one.client]), received, uploaded
        return
    held: dict[int, Tensor] = {}
    whole = payload is ModelUpdate and view.public.structure.of(Models).upload == "weights"
    # Of sealed changes the server returns a change as well, to be added to what clients have.
    sums = payload.__name__ in view.public.sealed and not whole
    done = 0
    for batch in view.messages.of(payload):
        values = _values(batch)
        uploads = _from_others(view, batch)
        if len(uploads):
            order = uploads[batch.senders[uploads].argsort()]
            clients = batch.senders[order]
            blank = torch.zeros_like(values[0])
            received = torch.stack([held.get(k, blank) for k in clients.tolist()])
            yield clients, received, values[order] - received if whole else values[order]
            done += 1
            if done == most:
                return
        for index in (batch.senders == SERVER).nonzero().squeeze(1).tolist():
            client = int(batch.receivers[index].item())
            held[client] = held[client] + values[index] if sums and client in held else values[index]


def uploads(view: View, payload: type[Payload], most: int | None = None) -> Iterator[Tensor]:
    """Yield what others upload [K, ...], in the order of the clients, of at most ``most`` rounds, from the first."""
    if payload is ModelUpdate:
        yield from (models.change for models in model_rounds(view, most))
        return
    for _, _, uploaded in _rounds(view, payload, most):
        yield uploaded


def sending_clients(view: View, payload: type[Payload]) -> Tensor:
    """Return the clients, beside the observer's, that upload ``payload`` [K]."""
    if payload is ModelUpdate:
        return next(sent_models(view, 1))[0]
    return next(_rounds(view, payload, 1))[0]


def codebooks(view: View, most: int | None = None) -> Codebooks:
    """Return the global nodes of at most ``most`` rounds, from the first."""
    clients, received, uploaded = zip(*_rounds(view, GlobalNodes, most), strict=True)
    return Codebooks(clients[0], torch.stack(received), torch.stack(uploaded))


def model_rounds(view: View, most: int | None = None) -> Iterator[ModelRound]:
    """Yield at most ``most`` rounds of models, from the first: one at a time, since models are large."""
    for _, models in sent_models(view, most):
        yield models


def sent_models(view: View, most: int | None = None) -> Iterator[tuple[Tensor, ModelRound]]:
    """Yield the clients [K] that upload in a round, others than the observer's, and their models, of at most ``most``
    rounds; who uploads may differ from round to round. Where the observer sees no upload and one is left of the mean,
    it is that one."""
    if not _sees_others(view, ModelUpdate) and one_is_left(view):
        found = others_means(view, most)
        yield from ((torch.tensor([client]), models) for client, models in found if client != EVERYBODY)
        return
    for clients, received, change in _rounds(view, ModelUpdate, most):
        yield clients, ModelRound(received, change)


def upload_noise_std(view: View, payload: type[Payload], values: Tensor | None = None) -> float:
    """Return the standard deviation of what is added to an entry of ``payload`` on the way up; 0 if nothing is.

    Args:
        values: what was uploaded [K, ...]: rounding to levels over the range of each message is then counted too.
    """
    if values is None:
        return math.hypot(noise_std(view, payload, direction="up"), flooding_on(view, payload))
    return math.hypot(added_std(view, payload, values, "up"), flooding_on(view, payload))


def model_noise_std(view: View, models: ModelRound) -> float:
    """Return :func:`upload_noise_std` of uploaded models; what is left of a mean has what was added to that too."""
    whole = view.public.structure.of(Models).upload == "weights"
    up = upload_noise_std(view, ModelUpdate, models.received + models.change if whole else models.change)
    if not models.of:
        return up
    down = noise_std(view, ModelUpdate, direction="down")
    return math.hypot(up / models.of**0.5, models.spread * down)


def encoding_error(view: View) -> float:
    """Return the largest error on an entry of one model, or of a mean of several, by which sealing rounds it."""
    return rounding_of_sums(view, ModelUpdate) / view.public.num_clients


def rounding_growth(view: View) -> float:
    """Return by how much more than float32's rounding uploads of global nodes are off: what is left of averages is."""
    found = () if _sees_others(view, GlobalNodes) else last_uploads(view)
    return _WEIGHT_ERROR * max((one.spread for one in found), default=1 / _WEIGHT_ERROR)


def one_other(view: View) -> str | None:
    """Return why nobody asks which client something is of where one client alone does not observe, or None."""
    if view.public.num_clients - len(view.observer.clients) > 1:
        return None
    return "one client alone does not observe: whatever is not the observer's is that client's"


def one_sender(view: View, payload: type[Payload]) -> str | None:
    """Return why uploads of ``payload`` are not compared with each other, or None: a single client sends any (others
    have no training nodes, say)."""
    if len(sending_clients(view, payload)) > 1:
        return None
    return "a single client uploads, so that there is no other to compare it with"


def unknown_changes(view: View) -> str | None:
    """Return why models' changes do not follow from what clients upload, or None."""
    stated, clip = view.public.structure.get(Models), clip_on(view, ModelUpdate, direction="up")
    if stated is None:
        return Models.missing()
    if clip is not None and (clip.around == "received") != (stated.upload == "weights"):
        return f"uploaded {stated.upload} are clipped around {clip.around}, which leaves too little of the change"
    return None


def input_map(view: View, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features' rows of the input layer [K, F, d] and its bias [K, 1, d] of ``models`` [K, D].

    The positional encoding of a node is unknown to the observer and left out.
    """
    weights = unflatten(models, view.public.layout)
    return weights["input.weight"][:, : view.public.num_features], weights["input.bias"].unsqueeze(1)
