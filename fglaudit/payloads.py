"""What travels. Protocols and attacks meet in these types and nowhere else.

A payload is a frozen dataclass whose fields are tensors. It comes in one of two forms:

* plain: every field has the leading axis P, one entry per message of the batch;
* ragged (``ragged = True``): every field has a leading axis of rows, and the batch's ``splits`` [P + 1] say which rows
  belong to which message, because messages differ in length.

Wire bytes are the bytes of the tensors as sent; framing (a few bytes per message) is not counted. A field may travel
sealed (:class:`fglaudit.sealing.SealedTensor`); then the bytes of its ciphertexts count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from fglaudit.errors import FglauditError, unknown
from fglaudit.sealing import SealedTensor
from fglaudit.shapes import NodeIds, Parties, RowIds, RowSplits, RowValues

SERVER = -1
"""The server's number among parties; clients are 0 ... K-1."""


P = TypeVar("P", bound="Payload")
_CLOSED = "_closed"
if TYPE_CHECKING:
    Fields = dict[str, Tensor]
else:
    Fields = dict  # a check of the values at run time would read them


@dataclass(frozen=True)
class _Closed:
    """The fields of a payload whose readings are noted in ``log``."""

    kind: str
    tensors: dict[str, Tensor]
    log: set[tuple[str, str]]

    def read(self, name: str) -> Tensor:
        self.log.add((self.kind, name))
        return self.tensors[name]


class _Noted(dict[str, Tensor]):
    """Fields by name that notes which were looked up; those that are gone through are all read."""

    def __init__(self, closed: _Closed) -> None:
        super().__init__(closed.tensors)
        self._closed = closed

    def __getitem__(self, name: str) -> Tensor:
        return self._closed.read(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self._closed.read(name) if name in self else default

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            self._closed.read(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:  # its own, so that dict(...) and ** look every field up
        return super().__iter__()

    def values(self) -> Any:
        return {name: self[name] for name in self}.values()

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()

    def copy(self) -> dict[str, Tensor]:
        return {name: self[name] for name in self}


class Payload:
    """Base of all payloads: frozen dataclasses of tensors. Defining a subclass registers it for loading transcripts."""

    ragged: ClassVar[bool] = False
    registry: ClassVar[dict[str, type[Payload]]] = {}

    def __init_subclass__(cls) -> None:
        Payload.registry[cls.__name__] = cls

    def tensors(self) -> Fields:
        """Fields by name."""
        closed = self.__dict__.get(_CLOSED)
        if closed is not None:
            return _Noted(closed)
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the fields by name; asking for them is no reading of values."""
        return {name: tuple(value.shape) for name, value in self._fields().items()}

    def numbers(self) -> int:
        """Return how many numbers the fields hold; asking is no reading of values."""
        return sum(math.prod(shape) for shape in self.shapes().values())

    def real_fields(self) -> tuple[str, ...]:
        """Return the names of the fields of real numbers, not ids; asking is no reading of values."""
        return tuple(name for name, value in self._fields().items() if value.is_floating_point())

    def ids(self) -> Tensor | None:
        """Return the first field of ids [n]; None where there is none."""
        known = (name for name, value in self._fields().items() if value.dtype == torch.long and value.dim() == 1)
        name = next(known, None)
        return None if name is None else self.tensors()[name]

    def with_fields(self: P, changed: dict[str, Tensor]) -> P:
        """Return the payload with other values in some fields; the rest is not read."""
        tensors, closed = {**self._fields(), **changed}, self.__dict__.get(_CLOSED)
        return type(self).from_tensors(tensors) if closed is None else self._closed_with(tensors, closed.log)

    def noted(self: P, log: set[tuple[str, str]]) -> P:
        """Return the same payload, which adds (type, field) to ``log`` when a field is read.

        Type and values are the same: fields that nobody has read yet are no attributes, and Python asks
        :meth:`__getattr__` for them.
        """
        return self._closed_with(self._fields(), log)

    def _closed_with(self: P, tensors: dict[str, Tensor], log: set[tuple[str, str]]) -> P:
        closed = object.__new__(type(self))
        closed.__dict__[_CLOSED] = _Closed(type(self).__name__, tensors, log)
        return closed

    if not TYPE_CHECKING:  # a type checker would take any name for a field

        def __getattr__(self, name: str) -> Tensor:
            closed = self.__dict__.get(_CLOSED)
            if closed is None or name not in closed.tensors:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value: Tensor = closed.read(name)
            return value

    def _fields(self) -> dict[str, Tensor]:
        """Return the fields without a word in any log: for what is no reading of values."""
        closed = self.__dict__.get(_CLOSED)
        return self.tensors() if closed is None else closed.tensors

    @classmethod
    def from_tensors(cls: type[P], tensors: dict[str, Tensor]) -> P:
        """Rebuild from :meth:`tensors`."""
        return cls(**tensors)

    def select(self: P, index: Tensor) -> P:
        """Return the payload with ``index`` (positions or a mask) taken along the leading axis of every field."""
        return self.with_fields({name: _taken(value, index) for name, value in self._fields().items()})

    def bytes_per_entry(self) -> int:
        """Wire bytes of one entry of the leading axis, without sealed fields."""
        clear = (value for value in self._fields().values() if not isinstance(value, SealedTensor))
        return sum(value[:1].numel() * value.element_size() for value in clear)

    def sealed_fields(self) -> dict[str, SealedTensor]:
        """Return the fields whose values are hidden, by name."""
        return {name: value for name, value in self._fields().items() if isinstance(value, SealedTensor)}


def is_repeated(value: Tensor) -> bool:
    """Whether ``value`` [P, ...] is one entry repeated without copies (``expand``): a broadcast, stored once."""
    return value.dim() > 0 and len(value) > 1 and value.stride(0) == 0


def _taken(value: Tensor, index: Tensor) -> Tensor:
    if not is_repeated(value):
        return value[index]
    count = int(index.sum().item()) if index.dtype is torch.bool else len(index)
    return value[:1].expand(count, *value.shape[1:])


def payload_type(name: str) -> type[Payload]:
    """Return the payload class called ``name``."""
    if name not in Payload.registry:
        raise unknown("payload", name, Payload.registry)
    return Payload.registry[name]


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
