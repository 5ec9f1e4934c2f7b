"""What travels. Protocols and attacks meet in these types and nowhere else.

A payload is a frozen dataclass whose fields are tensors. It comes in one of two forms:

* plain: every field has the leading axis P, one entry per message of the batch;
* ragged (``ragged = True``): every field has a leading axis of rows, and the batch's ``splits`` [P + 1] say which rows
  belong to which message, because messages differ in length.

Wire bytes are the bytes of the tensors as sent; framing (a few bytes per message) is not counted. A field may travel
sealed (:class:`fglaudit.sealing.SealedTensor`); then the bytes of its ciphertexts count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.payload import Payload as Payload
from fglaudit.payload import is_repeated as is_repeated
from fglaudit.payload import payload_type as payload_type
from fglaudit.shapes import NodeIds, Parties, RowIds, RowSplits, RowValues

SERVER = -1
"""The server's number among parties; clients are 0 ... K-1."""


@dataclass(frozen=True)
class NeighborSums(Payload):
    """Weighted sums of neighbour features, one row per node.

    Upwards: row (m, i) is ``sum over neighbours j of i at client m of A_ij x_j``; downwards: ``sum over all j``.

    Attributes:
        nodes: the node each sum belongs to [rows], 8 bytes each on the wire.
        sums: [rows, F].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues


@dataclass(frozen=True)
class RawFeatures(Payload):
    """Feature rows in the clear, with the nodes they belong to; 8 bytes per node id on the wire.

    Attributes:
        nodes: [rows].
        x: [rows, F].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    x: RowValues


@dataclass(frozen=True)
class MaskedMatrices(Payload):
    """FedGAT's matrices of one node i per message; all nodes of a batch have b neighbours, node i itself included.

    With orthonormal ``u1_j, u2_j`` in R^2b, a random r > 0 and
    ``U_j = 1/2 (u1_j u1_j' + u2_j u2_j' + r u1_j u2_j' + u2_j u1_j' / r)`` for every j in the neighbourhood of i:

    Attributes:
        node: i [P].
        m1: ``M1_i(s) = h_i(s) sum_j U_j`` [P, F, 2b, 2b].
        m2: ``M2_i(s) = sum_j h_j(s) U_j`` [P, F, 2b, 2b].
        k1: ``K1_i = sqrt(2) sum_j u1_j`` [P, 2b].
        k2: ``K2_i = sqrt(2) sum_j u1_j h_j'`` [P, 2b, F].
    """

    node: NodeIds
    m1: Float[Tensor, "messages features width width"]
    m2: Float[Tensor, "messages features width width"]
    k1: Float[Tensor, "messages width"]
    k2: Float[Tensor, "messages width features"]


@dataclass(frozen=True)
class MaskedVectors(Payload):
    """The vector variant of :class:`MaskedMatrices`: binary ``u_j`` in R^2b with disjoint supports of two entries each.

    Attributes:
        node: i [P].
        m1: ``(mask1 + h_i sum_j u_j')'`` [P, 2b, F].
        m2: ``(mask2 + sum_j h_j u_j')'`` [P, 2b, F].
        k1: ``mask3 + sum_j u_j h_j'`` [P, 2b, F], with ``u_j' mask3 = 0``.
        k2: ``mask4`` [P, 2b, 2b], with ``mask1 mask4 = mask2 mask4 = 0`` and ``u_j' mask4 = u_j'``.
        k3: ``mask5 + sum_j u_j`` [P, 2b], with ``u_j' mask5 = 0``.
    """

    node: NodeIds
    m1: Float[Tensor, "messages width features"]
    m2: Float[Tensor, "messages width features"]
    k1: Float[Tensor, "messages width features"]
    k2: Float[Tensor, "messages width width"]
    k3: Float[Tensor, "messages width"]


@dataclass(frozen=True)
class Embeddings(Payload):
    """Layer outputs of nodes that the receiver needs for the next layer.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        values: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues


@dataclass(frozen=True)
class HiddenStates(Payload):
    """Distributed GCN: first-layer outputs of nodes of which the receiver holds a neighbour.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        values: after the activation [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues


@dataclass(frozen=True)
class HiddenGradients(Payload):
    """Distributed GCN: gradient of the sender's losses with respect to the hidden states that it was sent.

    Attributes:
        nodes: the receiver's nodes [rows], 8 bytes each on the wire.
        values: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues


@dataclass(frozen=True)
class Latents(Payload):
    """nFedGNN: first-layer latents of users, one user (one node) per message; the sender is the user.

    Attributes:
        values: ``W_i x_i`` [P, D]; D is heads x hidden for attention.
    """

    values: Float[Tensor, "messages dimensions"]


@dataclass(frozen=True)
class LatentGradients(Payload):
    """nFedGNN: gradient of the server's loss with respect to the receiver's latent.

    Attributes:
        values: [P, D].
    """

    values: Float[Tensor, "messages dimensions"]


@dataclass(frozen=True)
class HiddenRepresentations(Payload):
    """GFL-APPNP: a node's encoder output, averaged over its samples; the sender is the node.

    Attributes:
        values: ``h_j`` [P, C].
    """

    values: Float[Tensor, "messages classes"]


@dataclass(frozen=True)
class Jacobians(Payload):
    """GFL-APPNP: the full Jacobian of the sender's hidden representation with respect to the encoder's weights.

    Attributes:
        values: ``dh_j / dW`` [P, C, W]; the layout of W is public (``PublicFacts.layout``).
    """

    values: Float[Tensor, "messages classes parameters"]


@dataclass(frozen=True)
class PropagatedRepresentations(Payload):
    """GFL-APPNP: what the server returns to client k of everyone else's hidden representations.

    Attributes:
        values: ``C_k = sum over j != k of A_kj h_j`` [P, C].
    """

    values: Float[Tensor, "messages classes"]


@dataclass(frozen=True)
class PropagatedJacobians(Payload):
    """GFL-APPNP: what the server returns to client k of everyone else's Jacobians.

    Attributes:
        values: ``dC_k = sum over j != k of A_kj dh_j / dW`` [P, C, W].
    """

    values: Float[Tensor, "messages classes parameters"]


@dataclass(frozen=True)
class GlobalNodes(Payload):
    """FedGT: the centroids that summarise a client's subgraph, and on the way back their personalised average.

    Attributes:
        values: [P, n_g, D].
    """

    values: Float[Tensor, "messages global_nodes dimensions"]


@dataclass(frozen=True)
class LabelDistributions(Payload):
    """FedGT's comparison of similarities: the share of every class among a client's training nodes.

    Attributes:
        values: [P, C]; rows of zeros from clients without training nodes.
    """

    values: Float[Tensor, "messages classes"]


@dataclass(frozen=True)
class FunctionalEmbeddings(Payload):
    """FED-PUB: what a client's model makes of a public random graph, averaged over its nodes.

    Attributes:
        values: [P, d].
    """

    values: Float[Tensor, "messages dimensions"]


@dataclass(frozen=True)
class ModelUpdate(Payload):
    """All weights of a model as one vector per message [P, D]; the layout is public (``PublicFacts.layout``).

    FedGT's clients send the difference between their new weights and those they received, its server sends weights.
    """

    vector: Float[Tensor, "messages parameters"]


@dataclass(frozen=True)
class HopSums(Payload):
    """Rows after some steps of propagation over the whole graph: what a neighbour at another client needs for the next.

    Upwards from a node's owner, downwards to the clients of its neighbours. What was propagated is nobody's feature
    row: public codes, or values that were released before.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        sums: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues


@dataclass(frozen=True)
class EmbeddingSums(Payload):
    """Sums of short rows over neighbourhoods, one row per node: aggregation perturbation.

    Upwards: row (m, i) is ``sum over neighbours j of i at client m of h_j``, every ``h_j`` of norm 1 at most; downwards
    ``sum over all j``, to the owner of i.

    Attributes:
        nodes: the node i each sum belongs to [rows], 8 bytes each on the wire.
        sums: [rows, D].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    sums: RowValues


@dataclass(frozen=True)
class ClassReports(Payload):
    """The class that a node reports of itself, one-hot: from its owner to the server, and on to neighbours' owners.

    Attributes:
        nodes: [rows], 8 bytes each on the wire.
        values: [rows, C].
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    values: RowValues


@dataclass(frozen=True)
class NeighborGenerators(Payload):
    """FedSage+: the weights of the sender's generator of missing neighbours, for another client to say how to change
    them.

    Attributes:
        vector: [P, D], laid out as :meth:`fglaudit.nn.neighbor_generator.FeatureGenerator.layout` says.
    """

    vector: Float[Tensor, "messages parameters"]


@dataclass(frozen=True)
class GeneratorInputs(Payload):
    """FedSage+: what the sender's generator is to be applied to, one row per node; which nodes is not said.

    Attributes:
        values: embeddings with noise [rows, d].
        counts: how many neighbours each node lacks [rows].
    """

    ragged: ClassVar[bool] = True
    values: RowValues
    counts: Float[Tensor, " rows"]


@dataclass(frozen=True)
class GeneratorGradients(Payload):
    """FedSage+: how the receiver's generator must change to make rows like the sender's.

    Attributes:
        vector: gradient with respect to the weights of :class:`NeighborGenerators` [P, D].
    """

    vector: Float[Tensor, "messages parameters"]


@dataclass(frozen=True)
class Ciphertexts(Payload):
    """What a sealed message shows without the key: which rows it has, and how many bytes.

    Attributes:
        nodes: the node each row belongs to [rows], where the sealed payload names it in the clear; otherwise -1.
        size: bytes [rows] of ciphertext per row: those of the message, shared out evenly over its rows.
    """

    ragged: ClassVar[bool] = True
    nodes: RowIds
    size: Float[Tensor, " rows"]


@dataclass(frozen=True)
class MessageBatch:
    """P messages of one kind sent in one step.

    Attributes:
        round: 0 for pre-training, then 1, 2, ...
        senders, receivers: party numbers [P] (``SERVER`` or a client).
        payload: see module docstring.
        splits: [P + 1] row offsets for ragged payloads, else None.
    """

    round: int
    senders: Parties
    receivers: Parties
    payload: Payload
    splits: RowSplits | None = None

    def __post_init__(self) -> None:
        if self.payload.ragged != (self.splits is not None):
            raise FglauditError(
                f"a ragged payload needs splits and a plain one must not have them; got {type(self.payload).__name__} "
                f"{'without' if self.splits is None else 'with'} splits"
            )
        entries = {name: shape[0] for name, shape in self.payload.shapes().items()}
        expected = int(self.splits[-1].item()) if self.splits is not None else len(self.senders)
        if any(count != expected for count in entries.values()) or len(self.senders) != len(self.receivers):
            raise FglauditError(
                f"all fields of a batch share their leading axis; expected {expected} entries, got {entries} "
                f"for {len(self.senders)} senders and {len(self.receivers)} receivers"
            )

    def entry_messages(self) -> Tensor:
        """Message index of every entry of the payload's leading axis."""
        count = len(self.senders)
        if self.splits is None:
            return torch.arange(count)
        return torch.repeat_interleave(torch.arange(count), self.splits.diff())

    def bytes_per_message(self) -> Tensor:
        """Exact wire bytes of every message [P]."""
        entry = self.payload.bytes_per_entry()
        clear = torch.full((len(self.senders),), entry) if self.splits is None else self.splits.diff() * entry
        return clear + self.sealed_bytes()

    def sealed_bytes(self) -> Tensor:
        """Bytes of ciphertext in every message [P]."""
        splits = torch.arange(len(self.senders) + 1) if self.splits is None else self.splits
        total = torch.zeros(len(self.senders), dtype=torch.long)
        for value in self.payload.sealed_fields().values():
            total += value.sealed.wire_bytes(splits)
        return total

    def ciphertexts(self) -> MessageBatch:
        """Return what the batch, which has sealed fields, shows without a key."""
        splits = torch.arange(len(self.senders) + 1) if self.splits is None else self.splits
        rows = splits.diff()
        size = torch.repeat_interleave(self.sealed_bytes() / rows.clamp(min=1), rows)
        nodes = getattr(self.payload, "nodes", torch.full((len(size),), -1))
        return MessageBatch(self.round, self.senders, self.receivers, Ciphertexts(nodes, size), splits)

    def select(self, messages: Tensor) -> MessageBatch:
        """Return the batch with only the messages where the mask ``messages`` [P] is true."""
        entries = messages[self.entry_messages()].nonzero().squeeze(1)
        splits = None
        if self.splits is not None:
            splits = torch.cat([self.splits.new_zeros(1), self.splits.diff()[messages].cumsum(0)])
        payload = self.payload.select(entries)
        return MessageBatch(self.round, self.senders[messages], self.receivers[messages], payload, splits)
