"""The upload of the one client that does not observe, from personal averages (FedGT, equations (7) and (8); FED-PUB,
equations (4) and (5)).

In every round the server returns to client i the average ``sum_j a_ij theta_j`` of all clients' models, with weights
``a_ij`` proportional to ``exp(tau S_ij)``, S of what clients upload beside models: their global nodes, which are
averaged as well, or functional embeddings. Clients that pool what they have know the models theta_j of each other and
that, so S_ij, and with it all weights but for their sum: with m_i the average of their own models by these weights, and
a_i the weight of the single other client v in what i is sent, that is

    (1 - a_i) m_i + a_i theta_v.

Two of them have two equations of hundreds of thousands of entries in theta_v and two numbers: least squares gives all
of it. The averages of global nodes then give v's, in an order that follows from the nearest of those it went on from,
and these a_i exactly (:mod:`fglaudit.adversary.uploads.averaged_nodes`), or up to a few values. Of embeddings the a_i
give S_iv. One of two clients has one equation, and the other's upload too: a_i is the value under which its model
moved as far as its own, since steps of Adam are of one size. In the first round v went on from what everybody was sent;
then the observer has all that the server averages for v.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.public_rules import stated
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.averaged_nodes import stretches
from fglaudit.facts import Absent
from fglaudit.nn.matched_nodes import align, average_global_nodes
from fglaudit.payloads import SERVER, FunctionalEmbeddings, GlobalNodes, ModelUpdate, Payload
from fglaudit.structure import Models, PersonalAverages
from fglaudit.view import View

ROUNDS = 5
"""Rounds that are read."""
_ROUGHLY = 1.1
"""Ratio up to which a weight from models is taken to be one from global nodes."""


@dataclass(frozen=True)
class LastUpload:
    """What the only other client was sent and uploaded in a round.

    Attributes:
        client: which it is.
        model, change: the model that it was sent, and by how much it changed it, [1, D].
        received, uploaded: global nodes [1, g, d]; None where clients have none.
        spread: by how much rounding of what the server returned grew in them.
        sound: whether the weights that follow are weights: on messages of noise they are not.
    """

    client: int
    model: Tensor
    change: Tensor
    received: Tensor | None
    uploaded: Tensor | None
    spread: float
    sound: bool


@once_per_view
def last_uploads(view: View) -> tuple[LastUpload, ...]:
    """Return what the only client that is not the observer's did in the first rounds; nothing where it does not
    follow."""
    rule, mine = view.public.structure.get(PersonalAverages), view.observer.clients
    others = set(range(view.public.num_clients)) - set(mine)
    if rule is None or len(others) != 1 or not mine or view.public.sealed:
        return ()
    compared = FunctionalEmbeddings if rule.compared == "functional-embeddings" else GlobalNodes
    facts = [fact for payload in (ModelUpdate, compared) for fact in stated(view, payload)]
    down = any(stated(view, payload, direction="down") for payload in (ModelUpdate, compared))
    if down or any(isinstance(fact, Absent) for fact in facts):
        return ()
    by = _by_functional_embeddings if compared is FunctionalEmbeddings else _by_global_nodes
    return tuple(by(view, rule.tau, others.pop()))


def _by_global_nodes(view: View, tau: float, client: int) -> Iterator[LastUpload]:
    models, nodes = _rounds(view, ModelUpdate), _rounds(view, GlobalNodes)
    if not models or not nodes:
        return
    model, start = models[0][0][:1], nodes[0][0][:1]  # what everybody was sent
    for (held, moved, average), (_, uploaded, returned) in zip(models, nodes, strict=False):
        similarity, order = align(uploaded)
        weight, sent = (tau * similarity).softmax(1), _models(view, held, moved)
        plain = average_global_nodes(uploaded, order, weight)
        rough = _stretch(weight @ sent, average)  # of two averages or more
        parts = [stretches(tau, *each) for each in zip(similarity, uploaded, plain, returned, strict=True)]
        if len(sent) == 1:
            rough = _of_size(parts[0], average - sent, sent - model, (sent - held).norm())
        stretch = _refined(rough, parts)
        sound = bool((stretch > 1).all())
        stretch = torch.where(stretch > 1, stretch, float(view.public.num_clients))
        last = _last_model(stretch, weight @ sent, average)
        around = plain[0] + stretch[0] * (returned[0] - plain[0])
        around = around[_matching(normalize(start[0], dim=1) @ normalize(around, dim=1).T)].unsqueeze(0)
        before, change, begun, ended = (part.float() for part in (model, last - model, start, around))
        yield LastUpload(client, before, change, begun, ended, float(stretch[0].item()), sound)
        everybody = torch.cat([around, uploaded])
        similarity, order = align(everybody)
        weights = (tau * similarity[0]).softmax(0)
        model = (weights @ torch.cat([last, sent])).unsqueeze(0)
        start = average_global_nodes(everybody, order[:1], weights.unsqueeze(0))


def _by_functional_embeddings(view: View, tau: float, client: int) -> Iterator[LastUpload]:
    models, model = _rounds(view, ModelUpdate), torch.empty(0)
    for (held, moved, average), embedded in zip(models, _own_embeddings(view), strict=False):
        model = model if len(model) else held[:1]  # what everybody was sent
        unit, sent = normalize(embedded, dim=1), _models(view, held, moved)
        likeness = tau * unit @ unit.T
        own = likeness.softmax(1) @ sent
        stretch = (
            _stretch(own, average) if len(sent) > 1 else _as_far(average - sent, sent - model, (sent - held).norm())
        )
        sound = bool((stretch > 1).all())
        stretch = torch.where(stretch > 1, stretch, float(view.public.num_clients))
        last = _last_model(stretch, own, average)
        yield LastUpload(client, model.float(), (last - model).float(), None, None, float(stretch[0].item()), sound)
        # a_i = 1 / stretch and a_i / (1 - a_i) = exp(tau S_iv) / sum_j exp(tau S_ij)
        shared = likeness.logsumexp(1) - (stretch - 1).log()
        weights = torch.cat([shared.new_tensor([tau]), shared]).softmax(0)
        model = (weights @ torch.cat([last, sent])).unsqueeze(0)


def _models(view: View, held: Tensor, uploaded: Tensor) -> Tensor:
    """Return the models [c, D] of clients that were sent ``held`` and uploaded ``uploaded``."""
    return uploaded if view.public.structure.of(Models).upload == "weights" else held + uploaded


def _last_model(stretch: Tensor, own: Tensor, shown: Tensor) -> Tensor:
    """Return the other client's model [1, D] from one over its weight in each of the averages ``shown`` [c, D], of
    which ``own`` [c, D] are those of the observer's models."""
    return (own + stretch.unsqueeze(1) * (shown - own)).mean(0, keepdim=True)


def _of_size(fitting: Tensor, away: Tensor, off: Tensor, size: Tensor) -> Tensor:
    """Return the one [1] of those that are ``fitting`` [r] under which the other client's change, ``off + s away``, has
    a length nearest to ``size``, the observer's own; 0 where there is none."""
    if not len(fitting):
        return size.new_zeros(1)
    length = (off + fitting.unsqueeze(1) * away).norm(dim=1)
    return fitting[(length / size).log().abs().argmin()].unsqueeze(0)


def _as_far(away: Tensor, off: Tensor, size: Tensor) -> Tensor:
    """Return s [1] under which the other client's change, ``off + s away`` [1, D], has the length ``size``, the
    observer's own: the larger of two, as the smaller is about the observer's own model; 0 where they are far apart."""
    square, across, beyond = away.square().sum(), (away * off).sum(), off.square().sum() - size.square()
    root = (across.square() - square * beyond).clamp(min=0).sqrt()
    return ((root - across) / square).nan_to_num(0.0, 0.0, 0.0).unsqueeze(0)


def _refined(rough: Tensor, fitting: Sequence[Tensor]) -> Tensor:
    """Return of what fits each average of global nodes the nearest to the ``rough`` ones [c] of models, of which the
    errors are larger; a rough one itself where nothing fits it."""
    found = rough.clone()
    for place, several in enumerate(fitting):
        ratio = several / rough[place]
        near = (ratio > 1 / _ROUGHLY) & (ratio < _ROUGHLY)
        if bool(near.any()):
            found[place] = several[near][(ratio[near] - 1).abs().argmin()]
    return found


def _own_embeddings(view: View) -> Iterator[Tensor]:
    """Yield by round the functional embeddings [c, d] of the observer's clients, in order."""
    for batch, payload in view.sent(FunctionalEmbeddings):
        place = {sender: index for index, sender in enumerate(batch.senders.tolist())}
        yield payload.values[[place[k] for k in sorted(view.observer.clients)]].double()


def _stretch(own: Tensor, shown: Tensor) -> Tensor:
    """Return one over the other client's weight in each of the averages ``shown`` [c, D], of which ``own`` [c, D] are
    those of the observer's models; 0 where it does not follow."""
    away = shown - own
    center = torch.eye(len(own), dtype=torch.double) - 1 / len(own)
    system, target = center * (away @ away.T), -(center * (away @ own.T)).sum(1)
    found, failed = torch.linalg.solve_ex(system, target)
    return found.nan_to_num(0.0, 0.0, 0.0) if not int(failed.item()) else torch.zeros_like(found)


def _rounds(view: View, payload: type[Payload]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return by round what the observer's clients, in order, were sent before it, uploaded in it, and were sent after
    it, [c, ...] each."""
    mine, found = sorted(view.observer.clients), list[tuple[Tensor, Tensor, Tensor]]()
    held, up = dict[int, Tensor](), dict[int, Tensor]()
    for batch in view.messages.of(payload):
        values = next(iter(batch.payload.tensors().values()))
        ends = zip(batch.senders.tolist(), batch.receivers.tolist(), strict=True)
        back = {receiver: values[index] for index, (sender, receiver) in enumerate(ends) if sender == SERVER}
        if not back:
            up.update({sender: values[index] for index, sender in enumerate(batch.senders.tolist())})
            continue
        if all(k in part for k in mine for part in (held, up, back)):
            parts = [torch.stack([part[k] for k in mine]).double() for part in (held, up, back)]
            found.append((parts[0], parts[1], parts[2]))
        held, up = back, {}
        if len(found) == ROUNDS:
            break
    return found


def _matching(cosines: Tensor) -> Tensor:
    """Return which column [g] each row of ``cosines`` [g, g] belongs to."""
    return torch.from_numpy(linear_sum_assignment(cosines.numpy(), maximize=True)[1])
