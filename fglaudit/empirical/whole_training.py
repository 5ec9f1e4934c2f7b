"""One-run auditing of whole trainings: canaries at many nodes at once, the protocol trained for real with its defense.

Steinke, Nasr and Jagielski, NeurIPS 2023 (see :mod:`fglaudit.empirical.estimates.one_run`). A coin of its own puts at
every node a row of random signs, or what the neighbouring relation has instead: nothing, or the opposite row. Then
the protocol trains, all rounds, through the defense's own session, as in the run that is judged: the replays of the
other audits hand hooks inputs of the auditor's choice, and a defense that behaves only there is not seen by them.
White box: the auditor reads every message that the account is about. For every field with an axis of features it
takes the inner products of all that was sent with a canary; those of largest size, added up over rounds, are its
score.

Runs are repeated with fresh coins and seeds until there are enough canaries. The guesses that count, the surest share,
are fixed beforehand, so every canary is scored. A right guess at (epsilon, delta) is one at every point of the stated
curve, so the smallest p-value over points counts (theorem 5.2 holds at each, for the same count of right guesses).

It says little of noise that is a bit too small: what it is for is noise that is missing where nobody replays it. Up to
which epsilon it can say anything at all is printed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fglaudit.empirical.estimates.one_run import ceiling, one_run
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation, epsilon_of
from fglaudit.rng import derive
from fglaudit.wire.channel import Keep, RecordingChannel

CANARIES = 1200
"""Canaries to be had, over all runs, and most of one run."""
MOST_RUNS = 20
SHARES = (0.35, 0.35)
"""Of the canaries, those guessed to be there and gone: fixed beforehand."""
MOST_ROWS = 8192
"""Rows of a batch that are looked at, evenly spread."""
DELTAS = (1e-8, 1e-10, 1e-12)
"""Points of the stated curve beside its delta: at a large delta no number of guesses refutes at 1e-5."""
LENGTH = 3.0
"""Norm of a canary in norms of the longest row, at least 1: beyond the clip, and a network still trains on it."""


def whole_training_audit(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    accounted: Accounted,
    *,
    seed: int,
    device: torch.device,
) -> Audit:
    """Return whether real trainings tell more of their canaries than the stated curve allows."""
    if accounted.unit != "node" or graph.x.dim() != 2 or accounted.relation is Relation.ADD_OR_REMOVE:
        return Audit(
            AuditName.WHOLE_TRAINING,
            Outcome.UNTESTED,
            "canaries are feature rows, one per node, in a graph that stays as it is",
        )
    owned = torch.unique(torch.cat(graph.clients))
    chosen = torch.randperm(len(owned), generator=derive(seed, "audits", "whole training", "nodes"))[:CANARIES]
    owned = owned[chosen]
    runs = min(MOST_RUNS, math.ceil(CANARIES / len(owned)))
    found = [_run(protocol, graph, defense, accounted, owned, seed, run, device) for run in range(runs)]
    scores, there = (torch.cat(parts) for parts in zip(*found, strict=True))
    if not bool(torch.isfinite(scores).all()) or len(scores) < 20:
        return Audit(
            AuditName.WHOLE_TRAINING,
            Outcome.UNTESTED,
            "training on canaries gives values that are not finite, or too few",
        )
    if not bool(scores.any()):
        return Audit(AuditName.WHOLE_TRAINING, Outcome.UNTESTED, "nothing is sent that has an axis of features")
    p_values = []
    for delta in (accounted.delta, *DELTAS):
        try:
            epsilon = epsilon_of(accounted.event, delta, accounted.relation)
        except FglauditError:
            continue
        rng = derive(seed, "audits", "whole training", "ties")
        guessed = one_run(scores, there, delta=delta, confidence=1 - REFUTED_AT, rng=rng, shares=SHARES)
        p_values.append(guessed.p_value(epsilon))
    p = min(p_values, default=1.0)
    order = torch.argsort(scores, stable=True)
    ups, downs = (int(share * len(order)) for share in SHARES)
    right = int(there[order[-ups:]].sum().item()) + downs - int(there[order[:downs]].sum().item())
    reach = ceiling(ups + downs, 0.0, REFUTED_AT)
    detail = (
        f"one-run audit of {runs} whole trainings, {len(scores)} canaries: {right} of {ups + downs} guesses right;"
        f" all right would refute a pure epsilon of {reach:.3g}"
    )
    return Audit(
        AuditName.WHOLE_TRAINING, Outcome.REFUTED if p <= REFUTED_AT else Outcome.PASSED, detail, p, None, reach
    )


def _run(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    accounted: Accounted,
    owned: Tensor,
    seed: int,
    run: int,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Return scores and coins [n] of the canaries at ``owned`` in one training."""
    rng = derive(seed, "audits", "whole training", run)
    norm = LENGTH * max(1.0, float(graph.x.norm(dim=1).max().item()))
    signs = torch.randint(2, (len(owned), graph.num_features), generator=rng) * 2.0 - 1
    canaries = signs * (norm / graph.num_features**0.5)
    there = torch.randint(2, (len(owned),), generator=rng).bool()
    turned = accounted.relation is Relation.REPLACE
    x = graph.x.clone()
    x[owned] = torch.where(there[:, None], canaries, -canaries if turned else torch.zeros_like(canaries)).to(x)
    world = dataclasses.replace(graph, x=x)
    session = defense.bind(protocol.context(world))
    noise = derive(seed, "whole training", run)
    channel = _Listening(session, accounted, signs.float(), turned, graph.num_clients, noise)
    trained = protocol.train(world, channel, rng=derive(seed, "whole training", "train", run), device=device)
    return channel.scores_with(trained.layout), there


class _Listening(RecordingChannel):
    """The channel of a run, which scores what is sent.

    Args:
        signs: of the canaries [n, F].
        turned: whether the other world has the opposite rows, not none.
    """

    many_draws = False

    def __init__(
        self,
        session: DefenseSession,
        accounted: Accounted,
        signs: Tensor,
        turned: bool,
        num_clients: int,
        rng: torch.Generator,
    ) -> None:
        super().__init__(session, num_clients, rng, None, Keep({}))
        self.accounted, self.signs, self.turned = accounted, signs, turned
        self.models: list[Tensor] = []
        self.scores = torch.zeros(len(signs), dtype=torch.float64)

    def send(self, batch: MessageBatch) -> Payload:
        sent = super().send(batch)
        if _covered(batch, self.accounted):
            for value in sent.tensors().values():
                if value.is_floating_point():
                    self._add(value) if not isinstance(sent, ModelUpdate) else self.models.append(value.cpu())
        return sent

    def scores_with(self, layout: Mapping[str, tuple[int, ...]]) -> Tensor:
        """Return the scores [n], those of flat models among them."""
        sizes = [math.prod(shape) for shape in layout.values()]
        for vector in self.models:
            if vector.shape[1] == sum(sizes):
                for part, shape in zip(torch.split(vector, sizes, 1), layout.values(), strict=True):
                    self._add(part.reshape(-1, *shape))
        return self.scores

    def _add(self, value: Tensor) -> None:
        """Add what ``value`` [n, ...] says, if it has an axis of features."""
        features = self.signs.shape[1]
        axis = next((a for a in range(1, value.dim()) if value.shape[a] == features), None)
        if axis is None or not value.numel():
            return
        rows = value.movedim(axis, -1).reshape(-1, features)
        if len(rows) > MOST_ROWS:
            rows = rows[torch.linspace(0, len(rows) - 1, MOST_ROWS).long()]
        products = rows.float().cpu() @ self.signs.T
        typical = products.square().mean().sqrt()
        if typical > 0:
            best = products.gather(0, products.abs().argmax(0, keepdim=True))[0] / typical
            self.scores += (best if self.turned else best.abs()).double()


def _covered(batch: MessageBatch, accounted: Accounted) -> bool:
    """Whether the account is about such messages."""
    by_server = bool((batch.senders == SERVER).all())
    for part in accounted.mechanisms:
        if part.payload == "rows" or (part.payload == "gradients" and isinstance(batch.payload, ModelUpdate)):
            return True
        if (part.payload, part.by_server) == (type(batch.payload).__name__, by_server):
            return True
    return False
