"""Statements on what messages hold: how they were made of rows, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.errors import FglauditError, require_known
from fglaudit.payloads import (
    ClassReports,
    Embeddings,
    EmbeddingSums,
    FunctionalEmbeddings,
    GeneratorGradients,
    GeneratorInputs,
    GlobalNodes,
    HiddenGradients,
    HiddenRepresentations,
    HiddenStates,
    HopSums,
    Jacobians,
    Latents,
    MaskedMatrices,
    MaskedVectors,
    NeighborGenerators,
    NeighborSums,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
    RawFeatures,
)
from fglaudit.structure.statement import Statement

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
        require_known(self, weighting=(NORMALISED, COUNTS, ROW_MEAN), added_by=("server", "clients"))


@dataclass(frozen=True)
class Attention(Statement):
    """First layer of graph attention whose coefficients follow from a Chebyshev series
    (:func:`fglaudit.nn.chebyshev.attention_series`).

    Attributes:
        degree, domain: of the series, on [-domain, domain].
        smooth_over: 0: it is that of ``exp(LeakyReLU(x))``; else of a smooth function of x divided by this.
        rows: "unit-ball": feature rows are scaled to norm at most 1 before anything is computed from them; "as-held":
            they are not scaled; "smoothed": they are propagated over the graph before, so that a row is a sum of many.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (MaskedMatrices, MaskedVectors, Embeddings)
    about: ClassVar[str] = "the series of its attention, and the scale of the rows in it"

    degree: int
    domain: float
    rows: str = "unit-ball"
    smooth_over: int = 0

    def __post_init__(self) -> None:
        require_known(self, rows=("unit-ball", "as-held", "smoothed"))


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
        require_known(self, goes_on_from=("own", "common"))


@dataclass(frozen=True)
class NoisyRows(Statement):
    """Feature rows are sent with noise that is the protocol's own and no defense's.

    Attributes:
        std: standard deviation of the Gaussian noise on every entry.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (RawFeatures,)
    about: ClassVar[str] = "which noise rows are sent with"

    std: float


@dataclass(frozen=True)
class Encoder(Statement):
    """``h = activation(x W1) W2``, averaged over samples of a node; W1 and W2 are the two weights of the public layout.

    A Jacobian is ``dh / d(W1, W2)``, with the weights flattened one after the other as in ``ModelUpdate``.

    Attributes:
        activation: "relu".
        noise: standard deviation of Gaussian noise that the protocol itself adds to every entry of a Jacobian.
        samples: over which of a node's samples, "all" or those for "training".
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (HiddenRepresentations, Jacobians)
    about: ClassVar[str] = "the encoder, and the noise on its Jacobian"

    activation: str = "relu"
    noise: float = 0.0
    samples: str = "all"

    def __post_init__(self) -> None:
        require_known(self, samples=("all", "training"))


@dataclass(frozen=True)
class Propagation(Statement):
    """What client k receives is ``sum over j != k of A_kj (message of j)``, A by personalised propagation:
    ``A = (1 - alpha)^M P^M + alpha sum over m < M of (1 - alpha)^m P^m``, P the normalised adjacency
    of the whole graph, which the server knows: edges that clients drop stay in it.

    Attributes:
        alpha: teleport probability.
        steps: M.
        truncated: ``P^M`` has the weight ``alpha (1 - alpha)^M``.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (PropagatedRepresentations, PropagatedJacobians)
    about: ClassVar[str] = "with which weights the server adds messages"

    alpha: float
    steps: int
    truncated: bool = False


@dataclass(frozen=True)
class Centroids(Statement):
    """Global nodes are the centroids of an online clustering of the input layer's outputs at a client.

    Attributes:
        count, width: of the global nodes.
        momentum: share of the old centroid, and of its count, that a batch leaves.
        normalised: whether a batch's outputs are normalised by their own mean and variance before they are clustered,
            and centroids brought back by the mean of these over all batches; the clusters then follow the outputs
            themselves only about.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes,)
    about: ClassVar[str] = "how global nodes follow from the nodes"

    count: int
    width: int
    momentum: float
    normalised: bool = False


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
        read_after: after how many steps codes enter the models' inputs, side by side and each at length
            ``1 / sqrt(their number)``; empty: they enter none.
        inputs_from: which input is the first of these.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (HopSums,)
    about: ClassVar[str] = "which codes are propagated"

    width: int
    seed: int
    hops: int
    read_after: tuple[int, ...] = ()
    inputs_from: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "read_after", tuple(self.read_after))  # JSON has a list in its place


@dataclass(frozen=True)
class Reports(Statement):
    """A node reports, once, a class.

    Attributes:
        classes: how many there are.
        of: which one: the "prediction" of a model common to all clients from the node's own row alone, or its "label".
        keep: with what chance the protocol itself lets the true one be sent; all others are then equally likely.
        read_after: after how many steps, as :class:`Codes` are propagated, reports less ``1 / classes`` enter the
            models' inputs, first and side by side, each at length ``weight / sqrt(their number)``; empty: they enter
            none.
        weight: of the propagated reports in an input.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ClassReports,)
    about: ClassVar[str] = "what a node's report is made of"

    classes: int
    of: str = "prediction"
    keep: float = 1.0
    read_after: tuple[int, ...] = ()
    weight: float = 1.0

    def __post_init__(self) -> None:
        require_known(self, of=("prediction", "label"))
        if not 1 / self.classes <= self.keep <= 1:
            raise FglauditError(
                f"the true one of {self.classes} classes is reported with a probability in [1 / classes, 1]; got keep"
                f" {self.keep:g}; say another class less often"
            )
        object.__setattr__(self, "read_after", tuple(self.read_after))  # JSON has a list in its place


@dataclass(frozen=True)
class SpreadReports(Statement):
    """Step t of ``HopSums`` is ``Z_t = spread A Z_{t-1} + (1 - spread) Z_0`` over the whole graph with self-loops, with
    ``A_ij = 1 / sqrt((d_i + 1)(d_j + 1))`` and d the degree in the whole graph. ``Z_0`` are the reports as they
    arrived, zeros for nodes that sent none. Step t is sent in round t, step 0 by the server alone.

    Attributes:
        spread: share of a row that comes from the step before, in (0, 1].
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (HopSums,)
    about: ClassVar[str] = "how reports are propagated"

    spread: float


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
        require_known(self, later=("totals", "hidden"))


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
        convolutions: names in the public layout, before ``.weight`` and ``.bias``, of the graph convolutions up to that
            layer, ``relu(A h W + b)`` with symmetric weights and self-loops; none: another network.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (FunctionalEmbeddings,)
    about: ClassVar[str] = "which layer reads functional embeddings"

    weight: str
    bias: str
    convolutions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "convolutions", tuple(self.convolutions))  # JSON has a list in its place


@dataclass(frozen=True)
class BoundaryRows(Statement):
    """Hidden states are first-layer outputs of a GCN of two layers; holders of copies send back gradients of the sum of
    their training nodes' cross-entropies, times a positive factor, edges weighted by degrees in the whole graph.

    Attributes:
        rate: share of the copies that take part in a step.
        dropout: share of the units that a copy's holder drops, so that their gradient is 0.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (HiddenStates, HiddenGradients)
    about: ClassVar[str] = "what hidden states and their gradients are computed from"

    rate: float
    dropout: float
