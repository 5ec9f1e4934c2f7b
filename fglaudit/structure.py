"""What a protocol states of its payloads and of its training, so that attacks need neither its name nor its fields.

A statement is a frozen dataclass of plain values (numbers, words, truth values). ``FederatedProtocol.structure``
returns a protocol's statements, ``PublicFacts.structure`` carries them, and they are saved with every recording. An
attack asks for the kinds it needs:

    if missing := view.public.structure.missing(Sums, Training):
        return missing                                  # in ``unsupported``: names the payload, and the fix
    rate = view.public.structure.of(Training).learning_rate

Nothing is assumed of what is not stated. Another distribution states facts of payloads of its own by a subclass of
:class:`Statement`; built-in ones:

| statement | payloads | what it says |
|---|---|---|
| ``Sums`` | NeighborSums | weights of the terms, hops, who adds |
| ``Attention`` | MaskedMatrices, MaskedVectors, Embeddings | series, scale of the rows |
| ``Latent`` | Latents | first weights, and whose weights a user goes on from |
| ``Encoder`` | HiddenRepresentations, Jacobians | the map from rows, noise of the protocol's own |
| ``Propagation`` | PropagatedRepresentations, PropagatedJacobians | the server's weights of the senders |
| ``Centroids`` | GlobalNodes | number, width, momentum of the clusters |
| ``Codes`` | HopSums | the public codes that are propagated, and how |
| ``Reports`` | ClassReports | what a node reports |
| ``EmbeddedRows`` | EmbeddingSums | what is summed, in how many steps |
| ``Generators`` | NeighborGenerators, GeneratorInputs, GeneratorGradients | the generator's shape |
| ``Functional`` | FunctionalEmbeddings | the layer that reads them |
| ``Models`` | ModelUpdate | weights or changes |
| ``Transformer`` | ModelUpdate | the network that the weights belong to |
| ``Convolutions`` | ModelUpdate | the network that the weights belong to |
| ``Training`` | - | how clients train between two messages |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from fglaudit.errors import FglauditError, unknown
from fglaudit.payloads import (
    ClassReports,
    Embeddings,
    EmbeddingSums,
    FunctionalEmbeddings,
    GeneratorGradients,
    GeneratorInputs,
    GlobalNodes,
    HiddenRepresentations,
    HopSums,
    Jacobians,
    Latents,
    MaskedMatrices,
    MaskedVectors,
    ModelUpdate,
    NeighborGenerators,
    NeighborSums,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
)

S = TypeVar("S", bound="Statement")


class NotStatedError(FglauditError):
    """An attack asked for a statement that the protocol does not make."""


class Statement:
    """Base of all statements: frozen dataclasses of plain values."""

    payloads: ClassVar[tuple[type[Payload], ...]] = ()
    """The payloads it is about; none: the training."""
    about: ClassVar[str]
    """What a protocol without it leaves open, after "the protocol does not state"."""

    @classmethod
    def missing(cls) -> str:
        """Return what to say where a protocol does not make this statement: what is open, and the fix."""
        subject = " and ".join(payload.__name__ for payload in cls.payloads)
        start = f"{subject}: the protocol" if subject else "the protocol"
        return f"{start} does not state {cls.about}; state it in structure(): {cls.__name__}(...)"

    def values(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]


def one_of(field: str, value: str, known: Sequence[str]) -> None:
    """Raise :class:`FglauditError` unless ``value`` is one of the ``known`` words."""
    if value not in known:
        raise unknown(field, value, known)


NORMALISED, COUNTS, ROW_MEAN = "normalised", "counts", "row-mean"


@dataclass(frozen=True)
class Sums(Statement):
    """Sums ``S_i = sum of A_ij x_j`` over the closed neighbourhood of i, of which parties send parts.

    Attributes:
        weighting: with d the degree in the whole graph, ``A_ij`` is ``1 / sqrt((d_i + 1)(d_j + 1))`` ("normalised"),
            1 ("counts") or ``1 / (d_i + 1)`` ("row-mean").
        hops: a client receives the sums of all nodes within ``hops - 1`` of its own; 1: of its own alone.
        added_by: "server": clients send their parts to the server, which returns totals; "clients": they send them to
            the nodes' owners, who add.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    about: ClassVar[str] = "how sums are weighted"

    weighting: str
    hops: int = 1
    added_by: str = "server"

    def __post_init__(self) -> None:
        one_of("weighting", self.weighting, (NORMALISED, COUNTS, ROW_MEAN))
        one_of("added_by", self.added_by, ("server", "clients"))


@dataclass(frozen=True)
class Attention(Statement):
    """First layer of graph attention whose coefficients follow from a Chebyshev series of ``exp(LeakyReLU(x))``.

    Attributes:
        degree, domain: of the series, on [-domain, domain].
        rows: "unit-ball": feature rows are scaled to norm at most 1 before anything is computed from them; "as-held":
            they are not scaled.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices, MaskedVectors, Embeddings)
    about: ClassVar[str] = "the series of its attention, and the scale of the rows in it"

    degree: int
    domain: float
    rows: str = "unit-ball"

    def __post_init__(self) -> None:
        one_of("rows", self.rows, ("unit-ball", "as-held"))


@dataclass(frozen=True)
class Latent(Statement):
    """A latent is ``x_i W_i``, linear in the user's row.

    Attributes:
        bound: first weights are uniform on [-bound, bound], independent of each other.
        goes_on_from: the weights with which a user enters a round: "own" ones, which only it has stepped on, or
            "common" ones, which all receive.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (Latents,)
    about: ClassVar[str] = "which weights users go on from"

    bound: float
    goes_on_from: str = "own"

    def __post_init__(self) -> None:
        one_of("goes_on_from", self.goes_on_from, ("own", "common"))


@dataclass(frozen=True)
class Encoder(Statement):
    """``h = activation(x W1) W2``, averaged over a node's samples; W1 and W2 are the two weights of the public layout.

    A Jacobian is ``dh / d(W1, W2)``, with the weights flattened one after the other as in ``ModelUpdate``.

    Attributes:
        activation: "relu".
        noise: standard deviation of Gaussian noise that the protocol itself adds to every entry of a Jacobian.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (HiddenRepresentations, Jacobians)
    about: ClassVar[str] = "the encoder, and the noise on its Jacobian"

    activation: str = "relu"
    noise: float = 0.0


@dataclass(frozen=True)
class Propagation(Statement):
    """What client k receives is ``sum over j != k of A_kj (message of j)``, A by personalised propagation:
    ``A = (1 - alpha)^M P^M + alpha sum over m < M of (1 - alpha)^m P^m``, P the normalised adjacency
    of the whole graph, which the server knows: edges that clients drop stay in it.

    Attributes:
        alpha: teleport probability.
        steps: M.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (PropagatedRepresentations, PropagatedJacobians)
    about: ClassVar[str] = "with which weights the server adds messages"

    alpha: float
    steps: int


@dataclass(frozen=True)
class Centroids(Statement):
    """Global nodes are the centroids of an online clustering of the input layer's outputs at a client.

    Attributes:
        count, width: of the global nodes.
        momentum: share of the old centroid, and of its count, that a batch leaves.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes,)
    about: ClassVar[str] = "how global nodes follow from the nodes"

    count: int
    width: int
    momentum: float


@dataclass(frozen=True)
class Codes(Statement):
    """Hop t of ``HopSums`` is ``S_t = A S_{t-1}`` over the whole graph with self-loops, ``A_ij = 1 / sqrt((d_i + 1)
    (d_j + 1))`` and d the degree in the whole graph. The first ``width`` columns of ``S_0`` are
    :func:`fglaudit.nn.codes.public_codes` of the seed, which all parties know. With codes hop 1 is sent first, without
    hop 0; the next hops in later rounds.

    Attributes:
        width: 0: no public codes.
        seed: of the codes.
        hops: how many steps are taken; the last one is not sent.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (HopSums,)
    about: ClassVar[str] = "which codes are propagated"

    width: int
    seed: int
    hops: int


@dataclass(frozen=True)
class Reports(Statement):
    """A node reports, once, the class that a model common to all clients predicts from the node's own row alone.

    Attributes:
        classes: how many there are.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    about: ClassVar[str] = "what a node's report is made of"

    classes: int


@dataclass(frozen=True)
class EmbeddedRows(Statement):
    """Sums over open neighbourhoods, weights 1. In the first step of embeddings: with ``W`` the first rows of the first
    weight of the public layout, in the model that all clients have, ``h = W' x`` at length 1.

    Attributes:
        width: of an embedding.
        steps: how many are taken so, each in a later round.
        later: what later steps sum: "totals" of the step before at length 1, or "hidden" rows again, which a later
            model makes of own rows and of the totals.
        most_uses: neighbours that use one node's embedding, at most; 0: all.
        padded: whether clients send a row for every node, zeros where they have nothing to add.
        code_seed: from 0: what the first step sums are :func:`fglaudit.nn.codes.public_codes` of this seed at length 1,
            and no embeddings; -1: embeddings.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (EmbeddingSums,)
    about: ClassVar[str] = "what is summed"

    width: int
    steps: int
    later: str = "totals"
    most_uses: int = 0
    padded: bool = False
    code_seed: int = -1

    def __post_init__(self) -> None:
        one_of("later", self.later, ("totals", "hidden"))


@dataclass(frozen=True)
class Generators(Statement):
    """Generators are :class:`fglaudit.nn.neighbor_generator.FeatureGenerator` of this shape, whose last width is that
    of a feature row; a client answers with :meth:`fglaudit.nn.neighbor_generator.FeatureGenerator.gradients`."""

    payloads: ClassVar[tuple[type[Payload], ...]] = (NeighborGenerators, GeneratorInputs, GeneratorGradients)
    about: ClassVar[str] = "the shape of its neighbour generators"

    embedding: int
    hidden: int
    slots: int


@dataclass(frozen=True)
class Functional(Statement):
    """A functional embedding is what the last hidden layer of a client's model makes of a public random graph, before
    its relu, mean over the graph's nodes.

    Attributes:
        weight, bias: names in the public layout of the linear layer [d, C], [C] that reads that hidden layer.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (FunctionalEmbeddings,)
    about: ClassVar[str] = "which layer reads functional embeddings"

    weight: str
    bias: str


@dataclass(frozen=True)
class Models(Statement):
    """What clients upload as ``ModelUpdate``.

    Attributes:
        upload: "weights", or "changes" since the weights that they received.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    about: ClassVar[str] = "whether clients upload weights or changes"

    upload: str

    def __post_init__(self) -> None:
        one_of("upload", self.upload, ("weights", "changes"))


@dataclass(frozen=True)
class Transformer(Statement):
    """The clients' network is :class:`fglaudit.nn.graph_transformer.GraphTransformer` of this shape."""

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    about: ClassVar[str] = "the shape of a graph transformer"

    layers: int
    hidden: int
    heads: int
    feed_forward: int


@dataclass(frozen=True)
class Convolutions(Statement):
    """The clients' network is a GCN without biases, ``logits = A relu(A X W_1) W_2``: one weight [in, out] per layer,
    in the order of the public layout, each after a propagation over closed neighbourhoods.

    Attributes:
        activation: between layers, "relu".
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    about: ClassVar[str] = "that its network is a GCN"

    activation: str = "relu"

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ("relu",))


@dataclass(frozen=True)
class Training(Statement):
    """How clients train between two messages. What is left at its default is stated not to be used.

    Attributes:
        optimizer: "sgd" or "adam"; another word for another one.
        learning_rate: per step.
        weight_decay: L2 penalty ``weight_decay / 2 ||W||^2``.
        momentum: of SGD.
        dropout: share of hidden units dropped between layers.
        feature_dropout: share of the input features that is dropped, afresh in every step.
        proximal: weight of half the squared distance to the received weights in the loss.
        local_steps: steps between two messages; 0: as many as there are batches, which depends on the client.
        keep_optimizer: whether the optimizer's state is kept from round to round.
        participation: share of the clients that is sampled in a round.
    """

    about: ClassVar[str] = "how clients train"

    optimizer: str
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    dropout: float = 0.0
    feature_dropout: float = 0.0
    proximal: float = 0.0
    local_steps: int = 1
    keep_optimizer: bool = False
    participation: float = 1.0


@dataclass(frozen=True)
class Unread(Statement):
    """A statement of a class that was not known when it was loaded."""

    about: ClassVar[str] = "anything that this distribution can read"

    kind: str
    stated: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Structure:
    """All that a protocol states, at most one statement of a kind."""

    statements: tuple[Statement, ...] = ()

    def __post_init__(self) -> None:
        names = [_name(statement) for statement in self.statements]
        for name in names:
            if names.count(name) > 1:
                raise FglauditError(f"a protocol states {name} at most once; got {names.count(name)}; keep one of them")

    def get(self, kind: type[S]) -> S | None:
        """Return the statement of this ``kind``, or None."""
        for statement in self.statements:
            if isinstance(statement, kind):
                return statement
            if isinstance(statement, Unread) and statement.kind == kind.__name__:
                return kind(**dict(statement.stated))
        return None

    def of(self, kind: type[S]) -> S:
        """Return the statement of this ``kind``.

        Raises:
            NotStatedError: with what is open, and the fix.
        """
        found = self.get(kind)
        if found is None:
            raise NotStatedError(kind.missing())
        return found

    def missing(self, *kinds: type[Statement]) -> str | None:
        """Return the reason for ``Attack.unsupported`` if one of ``kinds`` is not stated, or None."""
        return next((kind.missing() for kind in kinds if self.get(kind) is None), None)

    def replace(self, kind: type[Statement], **values: Any) -> Structure:
        """Return a copy in which the statement of this ``kind``, if there is one, has other ``values``."""
        old = self.get(kind)
        if old is None:
            return self
        rest = tuple(s for s in self.statements if _name(s) != kind.__name__)
        return Structure((*rest, dataclasses.replace(old, **values)))  # type: ignore[type-var]

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the statements' values by the name of their class, for JSON."""
        return {_name(s): dict(s.stated) if isinstance(s, Unread) else s.values() for s in self.statements}

    @staticmethod
    def from_json(stored: Mapping[str, Mapping[str, Any]]) -> Structure:
        """Read what :meth:`to_json` returned. Classes that are not known yet are looked up when they are asked for."""
        found = []
        for name, values in stored.items():
            kind = BUILT_IN.get(name)
            found.append(Unread(name, tuple(values.items())) if kind is None else kind(**values))
        return Structure(tuple(found))


BUILT_IN: dict[str, type[Statement]] = {
    kind.__name__: kind
    for kind in (
        *(
            Sums,
            Attention,
            Latent,
            Encoder,
            Propagation,
            Centroids,
            Codes,
            Reports,
            EmbeddedRows,
            Generators,
            Functional,
            Models,
            Transformer,
            Convolutions,
            Training,
        ),
    )
}


def _name(statement: Statement) -> str:
    return statement.kind if isinstance(statement, Unread) else type(statement).__name__
