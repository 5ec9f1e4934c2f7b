"""What travels. Protocols and attacks meet in these types and nowhere else.

A payload is a frozen dataclass whose fields are tensors. It comes in one of two forms:

* plain: every field has the leading axis P, one entry per message of the batch;
* ragged (``ragged = True``): every field has a leading axis of rows, and the batch's ``splits`` [P + 1] say which rows
  belong to which message, because messages differ in length.

Wire bytes are the bytes of the tensors as sent; framing (a few bytes per message) is not counted. A field may travel
sealed (:class:`fglaudit.sealing.SealedTensor`); then the bytes of its ciphertexts count.
"""

from fglaudit.payloads.base import Payload, PayloadName, is_repeated, payload_type, payload_types
from fglaudit.payloads.batch import SERVER, Ciphertexts, MessageBatch
from fglaudit.payloads.generators import GeneratorGradients, GeneratorInputs, NeighborGenerators
from fglaudit.payloads.hidden_states import HiddenGradients, HiddenStates
from fglaudit.payloads.jacobians import HiddenRepresentations, Jacobians, PropagatedJacobians, PropagatedRepresentations
from fglaudit.payloads.latents import LatentGradients, Latents
from fglaudit.payloads.models import FunctionalEmbeddings, GlobalNodes, LabelDistributions, ModelUpdate
from fglaudit.payloads.neighborhoods import MaskedMatrices, MaskedVectors
from fglaudit.payloads.rows import ClassReports, Embeddings, RawFeatures
from fglaudit.payloads.sums import EmbeddingSums, HopSums, NeighborSums
from fglaudit.shapes import RowIds, RowValues

__all__ = [
    "SERVER",
    "Ciphertexts",
    "ClassReports",
    "EmbeddingSums",
    "Embeddings",
    "FunctionalEmbeddings",
    "GeneratorGradients",
    "GeneratorInputs",
    "GlobalNodes",
    "HiddenGradients",
    "HiddenRepresentations",
    "HiddenStates",
    "HopSums",
    "Jacobians",
    "LabelDistributions",
    "LatentGradients",
    "Latents",
    "MaskedMatrices",
    "MaskedVectors",
    "MessageBatch",
    "ModelUpdate",
    "NeighborGenerators",
    "NeighborSums",
    "Payload",
    "PayloadName",
    "PropagatedJacobians",
    "PropagatedRepresentations",
    "RawFeatures",
    "RowIds",
    "RowValues",
    "is_repeated",
    "payload_type",
    "payload_types",
]
