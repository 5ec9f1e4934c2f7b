"""Statements on models that are sent, and on how clients train them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.errors import require_known
from fglaudit.payloads import FunctionalEmbeddings, GlobalNodes, ModelUpdate, Payload
from fglaudit.structure.statement import Statement


@dataclass(frozen=True)
class Models(Statement):
    """What clients upload as ``ModelUpdate``.

    Attributes:
        upload: "weights", or "changes" since the weights that they received.
        features_from: which input of the first weights is the first feature; all others follow, up to the last input.
        averaged: of how many uploads, with equal weights, the server returns the mean to everybody; 0: it makes
            something else of them. ``FederatedProtocol.stated`` reads it off ``uploads``.
        by_training_nodes: whether it is the mean of the uploads of all clients with training nodes, weighted by how
            many they have; ``FederatedProtocol.stated`` reads that off ``uploads`` too.
        mean_rounds: in how many rounds, from the first, it does that; 0: in all. Read off ``uploads`` too.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    about: ClassVar[str] = "whether clients upload weights or changes"

    upload: str
    features_from: int = 0
    averaged: int = 0
    by_training_nodes: bool = False
    mean_rounds: int = 0

    def __post_init__(self) -> None:
        require_known(self, upload=("weights", "changes"))


@dataclass(frozen=True)
class PersonalAverages(Statement):
    """The server returns to client i averages of all clients' models, weighted by ``softmax(tau S)``.

    Attributes:
        tau: sharpness of the weights.
        compared: what S is of: "global-nodes", the mean cosine of two clients' global nodes under their best matching,
            which are averaged as well; "functional-embeddings", their cosine.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate, GlobalNodes, FunctionalEmbeddings)
    about: ClassVar[str] = "with which weights the server averages for whom"

    tau: float
    compared: str = "global-nodes"

    def __post_init__(self) -> None:
        require_known(self, compared=("global-nodes", "functional-embeddings"))


@dataclass(frozen=True)
class Transformer(Statement):
    """The clients' network is :class:`fglaudit.nn.graph_transformer.GraphTransformer` of this shape.

    Attributes:
        separate_global: it is :class:`fglaudit.nn.two_attention_transformer.TwoAttentionTransformer` instead, with
            ``tokens`` and ``powers``.
        global_attention: nodes attend to global nodes.
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    about: ClassVar[str] = "the shape of a graph transformer"

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    separate_global: bool = False
    tokens: int = 0
    powers: int = 0
    global_attention: bool = True


@dataclass(frozen=True)
class Convolutions(Statement):
    """The clients' network is a GCN without biases, ``logits = A relu(A X W_1) W_2``: one weight [in, out] per layer,
    in the order of the public layout, each after a propagation over closed neighbourhoods with symmetric weights
    ``A_ij = 1 / sqrt((d_i + 1)(d_j + 1))``; ``Sums`` states other weights of the first.

    Attributes:
        activation: between layers, "relu".
    """

    payloads: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    about: ClassVar[str] = "that its network is a GCN"

    activation: str = "relu"

    def __post_init__(self) -> None:
        require_known(self, activation=("relu",))


@dataclass(frozen=True)
class Training(Statement):
    """How clients train between two messages. What is left at its default is stated not to be used.

    Attributes:
        optimizer: "sgd" or "adam"; another word for another one.
        learning_rate: per step.
        weight_decay: L2 penalty ``weight_decay / 2 ||W||^2``.
        momentum: of SGD.
        adam_beta1, adam_beta2, adam_epsilon: of Adam: decay of the means of gradients and of squares, and what is added
            to a step's divisor.
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
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8

    def unusual_adam(self) -> str | None:
        """Return in which constant this is not Adam as in its paper and every library, of whose steps attacks know the
        size, or None. A step of Adam with a large epsilon shows no sign but the gradient itself."""
        if self.optimizer != "adam":
            return None
        for name, usual in (("adam_beta1", 0.9), ("adam_beta2", 0.999), ("adam_epsilon", 1e-8)):
            if (value := getattr(self, name)) != usual:
                return (
                    f"steps of Adam are told by its usual constants; these clients have {name} {value:g}, not"
                    f" {usual:g}: not modelled, and no sign of protection"
                )
        return None
