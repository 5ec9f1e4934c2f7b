"""What a protocol states about a training run before it starts: what it releases, what its server adds up, who trains.

A defense is bound to these facts: it calibrates noise, packs ciphertexts, or refuses with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from torch import Tensor

from fglaudit.facts import Field
from fglaudit.payloads import Payload

REPORTING_NODE: Final = "reporting node"
"""The unit of a node in neither the training nor the validation set of any client, whose row enters nothing that is
sent but its own report."""

Unit = Literal["feature", "node", "reporting node", "edge", "client"]
"""What one record can be, of a release and of a guarantee."""
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True)
class Release:
    """A kind of payload through which private features leave a client: what a defense needs to calibrate noise.

    Attributes:
        payload: the type.
        times: how often training releases it.
        gain: joint L2 norm, over all messages of one release, of the change when one node's feature row (with
            ``row_norm``: what is summed of it) changes by norm 1, or when an edge comes or goes between rows of norm 1;
            None where no bound is known, and then no epsilon can be stated.
        unit: what one record is, of ``UNITS``. "node" is the whole feature row of
            one node; "reporting node" that of a node as ``REPORTING_NODE`` says; "edge" one edge between two nodes,
            there or not.
        covers_training: whether everything sent later is computed from this release alone, so that its guarantee covers
            the whole training (as to features; labels are never covered).
        why: where ``gain`` comes from, in words.
        by_server: whether the server releases it, made from what clients sent it in the clear: a defense then changes
            the server's messages, and whatever it promises holds against clients alone.
        fields: the payload's fields that depend on features; empty means all that are floating-point.
        subgraphs: whether ``gain`` also bounds the change where edges were dropped beforehand.
        row_norm: L2 norm that the protocol itself gives the rows that its messages are sums of, whatever the features
            are; None: they are feature rows, of any norm, for a defense to clip.
        one_message: whether one record enters one message of each release at most, so that clipping that message bounds
            what the record can change.
    """

    payload: type[Payload]
    times: int
    gain: float | None
    unit: str
    covers_training: bool
    why: str
    by_server: bool = False
    fields: tuple[str, ...] = ()
    one_message: bool = False
    subgraphs: bool = False
    row_norm: float | None = None


@dataclass(frozen=True)
class Examples:
    """Local training as a sum of losses, one or more per training node: what a defense of gradients must know.

    Attributes:
        passes: how often a client's losses are gone through; within a pass each of them enters one gradient step.
        hops: from how far away features reach a loss.
        by_degree: whether the weight of an edge depends on its sender's degree.
        across: whether losses see nodes of other clients.
        per_node: losses of one training node.
        most: losses that can change together, at most: of one client, or of all where losses see ``across`` clients.
        widest: neighbours up to which a node's draws do not depend on how many others there are; None: any number.
        pooled: whether there is one model for all nodes, so that clients make no difference.
        losses: of every model [K] in one pass; empty where that is not stated.
    """

    passes: int
    hops: int
    by_degree: bool
    across: bool
    per_node: int
    most: int
    widest: int | None = None
    pooled: bool = False
    losses: tuple[int, ...] = ()


@dataclass(frozen=True)
class Uploads:
    """How clients' models get to the server and what it makes of them: what a defense of whole clients must know.

    Attributes:
        senders: clients that send a model in a round.
        among: how many clients these are drawn from, afresh every round and without replacement.
        share: largest weight of one of them in what the server returns.
        changes: whether they send the change of their weights, or the weights.
        mean: whether the server returns the weighted mean of what it receives, the same to all, and keeps nothing else.
        by_training_nodes: whether a client's weight is how many training nodes it has.
        mean_rounds: of what is no ``mean``: in how many rounds, from the first, what all clients are sent moves by one.
    """

    senders: int
    among: int
    share: float
    changes: bool = False
    mean: bool = True
    by_training_nodes: bool = False
    mean_rounds: int = 0

    @property
    def averaged(self) -> int:
        """Of how many uploads the server returns the mean with equal weights; 0: of none."""
        return self.senders if self.mean and math.isclose(self.share * self.senders, 1, rel_tol=1e-9) else 0


@dataclass(frozen=True)
class Aggregate:
    """What the server does with a payload that clients send, where it only adds rows (times public numbers) and passes
    the results on: what a defense must know to hide the payload from the server.

    Attributes:
        rows: ids [n] of result rows: ``Payload.nodes`` where there are any; otherwise 0 where all messages of one round
            are added up, or the receiver where everyone gets a combination of its own. A row with several receivers is
            listed once for each.
        receivers: the client [n] that gets the row.
        columns: entries of an uploaded row.
        largest: by row id, bound on what the absolute values of an entry come to over all messages of the row, so that
            neither a message nor any sum of them exceeds it; None where no bound is known. It counts as public.
        summands: bound on the number of messages in each result row, by row id.
        integers: whether all entries are whole numbers.
        signed: whether entries may be negative.
        weighted: whether the summands of a result row get different public factors; those of a mean get equal ones.
        weight: where they differ, bound on the sum of their absolute values in a row; None: as many as it has summands.
        releases: how often training sends the payload.
        uploads: rows that clients upload in one release; None: as many as all result rows have summands.
        parts: how many rows of ``columns`` entries each result row [n] is made of; None: one.
        returned: the payload that brings results back, if it is another one than brings the rows.
    """

    rows: Tensor
    receivers: Tensor
    columns: int
    largest: Tensor | None
    summands: Tensor
    integers: bool = False
    signed: bool = True
    weighted: bool = False
    weight: float | None = None
    releases: int = 1
    uploads: int | None = None
    parts: Tensor | None = None
    returned: type[Payload] | None = None

    def targets(self, payload: type[Payload]) -> tuple[Field, ...]:
        """Return what a fact about ``payload``, both ways, and about what the server makes of it is about."""
        if self.returned is None or self.returned is payload:
            return (Field(payload.__name__),)
        return Field(payload.__name__, direction="up"), Field(self.returned.__name__, direction="down")


@dataclass(frozen=True)
class Context:
    """Facts a defense is bound to before training starts.

    Attributes:
        aggregates: see :meth:`FederatedProtocol.aggregates`.
        readers: see :meth:`FederatedProtocol.readers`.
        sends: whether the protocol sends anything at all.
        rows_per_node: how many feature rows one node has at most, over all clients that hold it and all its samples.
        holders: how many clients hold one node, at most.
        examples, uploads: see :class:`Examples` and :class:`Uploads`; where there are none, why.
        num_classes: how many classes the data has, a public fact.
        cross_edges: whether edges between clients enter anything that is sent or trained on, as a defense leaves them;
            see :meth:`FederatedProtocol.cross_edges`.
        features_used: whether feature rows enter anything that is sent or trained on.
    """

    protocol: str
    rounds: int
    num_clients: int
    num_features: int
    releases: tuple[Release, ...]
    aggregates: Mapping[type[Payload], Aggregate] = field(default_factory=dict)
    readers: Mapping[type[Payload], str] = field(default_factory=dict)
    sends: bool = True
    rows_per_node: int = 1
    holders: int = 1
    examples: Examples | str = "nothing is known of its losses"
    uploads: Uploads | str = "nothing is known of the models that its clients send"
    num_classes: int = 0
    cross_edges: bool = False
    features_used: bool = True

    def left_open(self, covered: Collection[str]) -> str:
        """Return the end of a mechanism's description: payloads with features besides those ``covered``, or nothing."""
        names = sorted({release.payload.__name__ for release in self.releases} - set(covered))
        return f"; {', '.join(names)} in the clear, so nothing bounds the whole" if names else ""

    def sent_words(self) -> str:
        """Return what is sent instead, to end a reason why a defense has nothing to change."""
        names = list(dict.fromkeys(release.payload.__name__ for release in self.releases))
        return f"; the key on can name: {', '.join(names)}" if names else ""

    def unsealable(self, payload: type[Payload]) -> str | None:
        """Return why ``payload`` cannot be hidden from the server, or None if it can."""
        if payload in self.aggregates:
            return None
        name = payload.__name__
        for sent, aggregate in self.aggregates.items():
            if aggregate.returned is payload:
                return (
                    f"{self.protocol}'s server makes {name} of {sent.__name__}, and is blind to it where that is"
                    " sealed; seal that"
                )
        if payload in self.readers:
            return f"{name} of {self.protocol} must be readable: {self.readers[payload]}"
        return f"{self.protocol} sends no {name} with these settings"
