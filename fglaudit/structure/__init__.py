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
| ``NoisyRows`` | RawFeatures | noise of the protocol's own |
| ``Encoder`` | HiddenRepresentations, Jacobians | the map from rows, noise of the protocol's own |
| ``Propagation`` | PropagatedRepresentations, PropagatedJacobians | the server's weights of the senders |
| ``Centroids`` | GlobalNodes | number, width, momentum of the clusters |
| ``Codes`` | HopSums | the public codes that are propagated, and how |
| ``Reports`` | ClassReports | what a node reports |
| ``SpreadReports`` | HopSums | how reports themselves are propagated |
| ``EmbeddedRows`` | EmbeddingSums | what is summed, in how many steps |
| ``Generators`` | NeighborGenerators, GeneratorInputs, GeneratorGradients | the generator's shape |
| ``Functional`` | FunctionalEmbeddings | the layer that reads them |
| ``BoundaryRows`` | HiddenStates, HiddenGradients | sampling, dropout of copies |
| ``Models`` | ModelUpdate | weights or changes |
| ``PersonalAverages`` | ModelUpdate, GlobalNodes | with which weights the server averages for whom |
| ``Transformer`` | ModelUpdate | the network that the weights belong to |
| ``Convolutions`` | ModelUpdate | the network that the weights belong to |
| ``Training`` | - | how clients train between two messages |
"""

from fglaudit.structure.messages import (
    COUNTS,
    NORMALISED,
    ROW_MEAN,
    Attention,
    BoundaryRows,
    Centroids,
    Codes,
    EmbeddedRows,
    Encoder,
    Functional,
    Generators,
    Latent,
    NoisyRows,
    Propagation,
    Reports,
    SpreadReports,
    Sums,
)
from fglaudit.structure.statement import NotStated, NotStatedError, Statement
from fglaudit.structure.structure import BUILT_IN, Structure, Unread
from fglaudit.structure.training import Convolutions, Models, PersonalAverages, Training, Transformer

__all__ = [
    "BUILT_IN",
    "COUNTS",
    "NORMALISED",
    "ROW_MEAN",
    "Attention",
    "BoundaryRows",
    "Centroids",
    "Codes",
    "Convolutions",
    "EmbeddedRows",
    "Encoder",
    "Functional",
    "Generators",
    "Latent",
    "Models",
    "NoisyRows",
    "NotStated",
    "NotStatedError",
    "PersonalAverages",
    "Propagation",
    "Reports",
    "SpreadReports",
    "Statement",
    "Structure",
    "Sums",
    "Training",
    "Transformer",
    "Unread",
]
