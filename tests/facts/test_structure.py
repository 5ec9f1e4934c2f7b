"""What protocols state of their payloads and training: complete and true."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from node_graphs import graph as node_graph
from user_graphs import GCN as USERS
from user_graphs import user_graph

from fglaudit.context import Uploads
from fglaudit.errors import FglauditError
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import SERVER, FunctionalEmbeddings, GlobalNodes, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols import PROTOCOLS
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.registry import build
from fglaudit.structure import (
    BUILT_IN,
    Attention,
    Codes,
    Convolutions,
    Encoder,
    Latent,
    Models,
    NoisyRows,
    NotStatedError,
    PersonalAverages,
    SpreadReports,
    Statement,
    Structure,
    Sums,
    Training,
    Transformer,
)
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer


def built(name: str) -> FederatedProtocol:
    protocol = build("protocol", name, {})
    assert isinstance(protocol, FederatedProtocol)
    return protocol


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_states_all_that_is_asked_of_its_payloads(name: str) -> None:
    protocol, graph = built(name), example_graph()
    stated = protocol.structure(graph)
    kinds = {type(statement) for statement in stated.statements}
    sent = set(type(protocol).emits)
    uploads = protocol.uploads(graph)
    about = {kind for kind in BUILT_IN.values() if set(kind.payloads) & sent} | {Training}
    if GlobalNodes not in sent:
        about -= {Transformer}  # no attack evaluates models without global nodes
    if not sent & {GlobalNodes, FunctionalEmbeddings}:
        about -= {PersonalAverages}
    about -= {NoisyRows}  # by default no protocol adds noise of its own to rows that it sends
    together = name in ("distributed-gcn", "bds-gcn")  # clients train one GCN together: nobody can train as one does
    if together:
        about -= {Training}
    elif not isinstance(protocol, FedGCN):
        about -= {Convolutions}  # no other protocol's clients train a GCN that the server receives
    if not isinstance(uploads, Uploads):
        about -= {Models}
    if getattr(protocol, "smoothing_hops", 1) == 0 or getattr(protocol, "free_steps", 1) == 0:
        about -= {Codes}  # nothing is propagated further, so no HopSums are sent
    if name == "label-propagation":
        about -= {Training, Codes}  # no model is trained, and what is propagated are labels
    else:
        about -= {SpreadReports}
    assert kinds == about
    if isinstance(uploads, Uploads):
        assert stated.of(Models).upload == ("changes" if uploads.changes else "weights")
    if Training not in about:
        return
    training = stated.of(Training)
    for field in dataclasses.fields(Training):
        own = getattr(protocol, field.name, None)
        of_server = field.name == "dropout" and isinstance(protocol, NFedGNN | CNFGNN)
        clustering = field.name == "momentum" and hasattr(protocol, "global_nodes")
        if own is not None and not of_server and not clustering:
            assert getattr(training, field.name) == own, field.name


@pytest.mark.parametrize("name", PROTOCOLS)
def test_structure_survives_json(name: str) -> None:
    stated = built(name).structure(example_graph())
    assert Structure.from_json(json.loads(json.dumps(stated.to_json()))) == stated


def test_noise_is_the_protocols_own() -> None:
    graph = node_graph()
    assert GFLAPPNP(variant="v1", jacobian_noise=0.3).structure(graph).of(Encoder).noise == 0.3
    assert GFLAPPNP(variant="full", jacobian_noise=0.3).structure(graph).of(Encoder).noise == 0.0


@pytest.mark.parametrize("protocol", [NFedGNN(**USERS), NFedGNN(**USERS, split="gat", heads=3), CNFGNN(**USERS)])
def test_first_weights_lie_within_the_stated_bound(protocol: FederatedProtocol) -> None:
    graph = user_graph(nodes=12, features=24)
    run = record(protocol, graph)
    payload = next(iter(run.view(Observer((SERVER,))).messages.of(ModelUpdate))).payload
    assert isinstance(payload, ModelUpdate)
    bound = protocol.structure(graph).of(Latent).bound
    assert 0.8 * bound < float(payload.vector[0].abs().max()) <= bound


@dataclass(frozen=True)
class Rotation(Statement):
    """A statement of another distribution."""

    payloads: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    about: ClassVar[str] = "how sums are rotated"

    angle: float


def test_statements_of_other_distributions() -> None:
    stated = Structure((Sums("counts", 2), Rotation(0.25)))
    loaded = Structure.from_json(json.loads(json.dumps(stated.to_json())))
    assert loaded.of(Rotation) == Rotation(0.25) and loaded.of(Sums) == Sums("counts", 2)
    assert loaded.to_json() == stated.to_json()
    assert loaded.replace(Rotation, angle=0.5).of(Rotation).angle == 0.5
    assert loaded.missing(Sums, Rotation) is None


def test_what_is_not_stated_is_named_with_the_fix() -> None:
    nothing = Structure()
    assert nothing.missing(Sums, Training) == Sums.missing() and nothing.missing() is None
    assert nothing.get(Attention) is None and nothing.replace(Sums, hops=3) == nothing
    with pytest.raises(NotStatedError, match=r"MaskedMatrices and MaskedVectors and Embeddings: .* in structure\(\)"):
        nothing.of(Attention)
    assert (
        Training.missing()
        == "the protocol does not state how clients train; if it is your own, state it in structure(): Training(...)"
    )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Sums, {"weighting": "normalized"}),
        (Sums, {"weighting": "counts", "added_by": "sender"}),
        (Attention, {"degree": 16, "domain": 2.0, "rows": "unit"}),
        (Latent, {"bound": 1.0, "goes_on_from": "mine"}),
        (Models, {"upload": "deltas"}),
    ],
)
def test_unknown_words_are_refused(kind: type[Statement], values: dict[str, Any]) -> None:
    with pytest.raises(FglauditError, match="known:"):
        kind(**values)


def test_two_statements_of_a_kind_are_refused() -> None:
    with pytest.raises(FglauditError, match="at most once"):
        Structure((Models("weights"), Models("changes")))


def test_fedgt_states_its_network() -> None:
    protocol = FedGT(layers=3, hidden=16, heads=2, feed_forward=24, global_nodes=5, momentum=0.8)
    found = protocol.structure(example_graph()).to_json()
    assert found["Transformer"] == {
        "layers": 3,
        "hidden": 16,
        "heads": 2,
        "feed_forward": 24,
        "separate_global": False,
        "tokens": 0,
        "powers": 0,
        "global_attention": True,
    }
    assert found["Centroids"] == {"count": 5, "width": 16, "momentum": 0.8, "normalised": False}
