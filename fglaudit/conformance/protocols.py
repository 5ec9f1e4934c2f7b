"""What a protocol promises."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import ClassVar

import torch

from fglaudit.conformance.comparing import assert_unchanged, check_plugin, graph_tensors, same_messages, same_weights
from fglaudit.conformance.exposed_rows import unexposed
from fglaudit.conformance.one_row import misstated
from fglaudit.conformance.overlisted_rows import overlisted
from fglaudit.conformance.public_words import overstated_losses, told_by_words
from fglaudit.conformance.reached_losses import MOST_GRADIENTS, farther_losses
from fglaudit.conformance.runs import CPU, Run, example_graph, record
from fglaudit.conformance.side_channels import KeptMessages, carried_past, told_without_message
from fglaudit.conformance.unlisted_rows import unlisted
from fglaudit.conformance.uploaded_models import misread_uploads
from fglaudit.context import Context, Uploads
from fglaudit.empirical.fields.unnamed import unnamed_fields
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Trained
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.structure import Models, Structure


def check_protocol(protocol: FederatedProtocol, graph: FederatedGraph | None = None) -> None:
    """Check a protocol: declared messages, determinism, no mutation, accuracies, rule 2 for every payload it sends,
    that parties use nothing of others but what was sent to them, nor test labels, that ``exposed`` names whose rows
    reach whom, whether edges between clients enter anything, that ``releases`` leave out none that carries a record
    past a guarantee, and that what it states is the same whatever rows and labels are.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    check_plugin(protocol)
    graph = graph or example_graph()
    before = graph_tensors(graph)
    first = KeptMessages()
    run = record(protocol, graph, tamper=first.keep)
    assert_unchanged(before, graph_tensors(graph), "a protocol must not change the graph it is given")
    past = carried_past(protocol, graph, run, first)
    assert not past, f"whatever crosses between parties goes through the channel, to who uses it: {past}"
    reached = unexposed(protocol, graph, first)
    assert not reached, f"`exposed` lists all nodes whose rows reach an observer; it lists none, and {reached}"
    left_out = unlisted(protocol, graph, first)
    assert not left_out, f"`exposed` lists all nodes whose rows reach an observer; {left_out}"
    wrong = misstated(protocol, graph, first) or misread_uploads(protocol, graph, first)
    assert not wrong, wrong
    _check_words(protocol, graph)
    wrong = farther_losses(protocol, graph)
    assert not wrong, wrong
    stated = protocol.structure(graph)
    plain = json.loads(json.dumps(stated.to_json()))
    assert Structure.from_json(plain).to_json() == stated.to_json(), "`structure` states plain values, saved as JSON"
    unnamed = unnamed_fields(protocol, graph, run.channel.counted, seed=0, device=CPU)
    assert not unnamed, f"`releases` must name every payload that carries what a guarantee is about; missing: {unnamed}"
    uploads, models = protocol.uploads(graph), stated.get(Models)
    if isinstance(uploads, Uploads) and models is not None:
        assert (models.upload == "changes") == uploads.changes, "`structure` and `uploads` agree on what clients upload"
    sent = {entry.payload for entry in run.transcript.entries}
    declared = {payload.__name__ for payload in type(protocol).emits}
    assert sent <= declared, f"`emits` must name every payload sent; missing: {sorted(sent - declared)}"
    trained = run.trained
    assert trained.accuracy.shape[1] == graph.num_clients, "accuracy has one column per client"
    assert len(trained.accuracy) == len(trained.accuracy_global), "both accuracies have one row per round"
    _check_right(trained, graph)
    for accuracy in (trained.accuracy[~trained.accuracy.isnan()], trained.accuracy_global):
        assert bool(((accuracy >= 0) & (accuracy <= 1)).all()), "accuracies are fractions in [0, 1]"
    again = record(protocol, graph)
    assert torch.equal(again.trained.accuracy_global, trained.accuracy_global), "same seed, same record (rule 8)"
    assert same_weights(again.trained, trained), "same seed, same weights (rule 8)"
    _check_cross_edges(protocol, graph, run)
    for name in sorted(sent):
        corrupted = record(protocol, graph, tamper=_corrupt(name))
        assert not same_weights(corrupted.trained, trained), (
            f"what is sent is trained on (rule 2): corrupting {name} changed nothing"
        )
    thinned = overlisted(protocol, graph, first)
    assert not thinned, f"`exposed` lists no nodes whose rows do not reach an observer, which thin out leaks; {thinned}"


def check_on_large(protocol: FederatedProtocol, graph: FederatedGraph, seed: int) -> None:
    """Check of a protocol on a graph of any size what misleads a report: that parties use nothing of others but what
    was sent to them, that ``exposed`` names whose rows reach whom, and that messages move as stated.

    Args:
        seed: of the training, which is repeated a dozen times.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    first = KeptMessages()
    run = record(protocol, graph, tamper=first.keep, seed=seed)
    past = told_without_message(protocol, graph, run, first, seed)
    assert not past, f"whatever crosses between parties goes through the channel, to who uses it: {past}"
    if seed:
        first = KeptMessages()
        record(protocol, graph, tamper=first.keep)
    reached = unexposed(protocol, graph, first) or unlisted(protocol, graph, first)
    assert not reached, f"`exposed` lists all nodes whose rows reach an observer; {reached}"
    wrong = misstated(protocol, graph, first) or farther_losses(protocol, graph, most=MOST_GRADIENTS)
    assert not wrong, wrong
    _check_words(protocol, graph)


def _check_words(protocol: FederatedProtocol, graph: FederatedGraph) -> None:
    """Check what defenses are calibrated on and attacks are told, without any training."""
    told = told_by_words(protocol, graph)
    assert not told, f"what a protocol states is public, and must not be made of rows or labels: {told}"
    wrong = overstated_losses(protocol, graph)
    assert not wrong, wrong


class _ApartSession(DefenseSession):
    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Return the client without any edge to another."""
        return client.keeping_cross(torch.zeros(client.boundary.shape[1], dtype=torch.bool))


@dataclasses.dataclass(frozen=True)
class _Apart(Defense):
    """Drops all edges between clients and states nothing: for a comparison alone."""

    name: ClassVar[str] = "apart"

    def bind(self, context: Context) -> DefenseSession:
        return _ApartSession()


def _check_cross_edges(protocol: FederatedProtocol, graph: FederatedGraph, run: Run) -> None:
    """Check what ``cross_edges`` states by a training without any edge between clients."""
    if not any(graph.client(k).boundary.numel() for k in range(graph.num_clients)):
        return
    apart = record(protocol, graph, _Apart())
    same = same_messages(apart, run) and same_weights(apart.trained, run.trained)
    stated = protocol.cross_edges(graph)
    assert stated is not same, (
        f"`cross_edges` states whether edges between clients, as Channel.prepare leaves them, enter what is sent or"
        f" trained on; it says {stated}, and without any of them {'nothing' if same else 'something'} changes"
    )


def _check_right(trained: Trained, graph: FederatedGraph) -> None:
    """Check that ``right``, if it is given, adds up to the accuracies: of all places, and client by client."""
    if trained.right is None:
        return
    samples = graph.x.shape[1] if graph.x.dim() == 3 and graph.test[0].dim() == 1 else 1
    places = [samples * int(mask.sum().item()) for mask in graph.test]
    assert trained.right.shape == (sum(places),), "right has one entry per test place"
    for part, accuracy in zip(
        torch.split(trained.right.double(), places), trained.accuracy[trained.round], strict=True
    ):
        close = bool(accuracy.isnan()) if not len(part) else abs(part.mean().item() - accuracy.item()) < 1e-6
        assert close, "right is in order of clients and adds up to each one's accuracy in the round that counts"


def _corrupt(name: str) -> Callable[[MessageBatch, Payload], Payload]:
    def tamper(batch: MessageBatch, payload: Payload) -> Payload:
        if type(payload).__name__ != name:
            return payload
        changed = {n: v * 1.5 + 0.1 if v.is_floating_point() else v for n, v in payload.tensors().items()}
        return type(payload).from_tensors(changed)

    return tamper
